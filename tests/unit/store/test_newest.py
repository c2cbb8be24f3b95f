"""Newest only: once a version was granted, no lower one is, unless its owner had died before."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import Any, cast

import pytest

from fairlock.aws.executions import Delivery
from fairlock.protocol import grants
from fairlock.protocol.admission import NOT_SUPERSEDED
from fairlock.protocol.model import BY_TIME, Grant
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.protocol.schema import lock_key
from fairlock.store import keep_alive
from fairlock.store.context import WaitersSuperseded
from fairlock.testing.manual_clock import START_MS, ManualClock
from tests.support import LOCK, TABLE, acquire, heartbeat, release
from tests.support.checkout import blocks
from tests.support.faulty_table import meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench, late

POLLS = {"task_token": None, "execution_arn": None, "poll_interval_ms": 5_000}


@pytest.fixture
def bench(dynamodb: object, clock: ManualClock) -> Bench:
    return Bench(dynamodb, clock)


def deploy(bench: Bench, version: int, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
    """A deployment of a workflow asks for the newest only."""
    return bench.wait(f"v{version}", **{"only_newest": version, **fields})


def deploy_all(bench: Bench, *versions: int, **fields: Any) -> None:  # noqa: ANN401 - same
    """The first holds, the others wait."""
    first, *others = [deploy(bench, version, **fields) for version in versions]
    assert isinstance(first, Grant)
    assert all(isinstance(other, Queued) for other in others)


def finish(bench: Bench, name: str) -> None:
    bench.release(name, execution_arn=RUN)


def reason(answer: Grant | Queued | Refusal) -> RefusalReason | None:
    return answer.reason if isinstance(answer, Refusal) else None


def told(bench: Bench) -> list[str]:
    """Who was told that it is superseded."""
    return sorted(t for t, answer in bench.workflows.woken if isinstance(answer, Refusal))


def granted(bench: Bench) -> list[str]:
    return [token for token, answer in bench.workflows.woken if isinstance(answer, Grant)]


def test_a_release_hands_over_to_the_highest_version_and_drops_the_lower_ones(bench: Bench) -> None:
    deploy_all(bench, 1, 2, 5, 3, 4)
    finish(bench, "v1")
    assert (bench.holders(), bench.waiters(), bench.state.newest) == (["v5"], [], 5)
    assert (granted(bench), told(bench)) == (["v5"], ["v2", "v3", "v4"])
    events = [event for event in bench.events if isinstance(event, WaitersSuperseded)]
    assert [(event.newest, event.waiters, event.told) for event in events] == [(5, 3, 3)]


def test_a_newer_version_may_stand_behind_everything_that_one_page_reads(bench: Bench) -> None:
    deploy_all(bench, *range(1, 32), 99)
    calls = bench.requests(lambda store: store.release(release("v1", execution_arn=RUN)))
    assert (bench.holders(), bench.waiters()) == (["v99"], [])
    assert len(told(bench)) == 30
    # Refused, ten waiters, the rest of them, hand-off, and one transaction that removes all; claim.
    assert calls == [
        *("update_item", "query", "query", "transact_write_items", "transact_write_items"),
        "update_item",
    ]


def test_a_lower_version_is_refused_once_a_higher_one_was_granted(bench: Bench) -> None:
    deploy(bench, 7)
    late = deploy(bench, 6)
    assert (reason(late), cast("Refusal", late).newest) == (RefusalReason.SUPERSEDED, 7)
    finish(bench, "v7")
    assert reason(deploy(bench, 5)) is RefusalReason.SUPERSEDED  # also on a free lock
    assert isinstance(deploy(bench, 8), Grant)


def test_equal_versions_take_turns(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.wait(name, only_newest=3)
    finish(bench, "a")
    assert (bench.holders(), bench.waiters(), told(bench)) == (["b"], ["c"], [])


def test_a_holder_is_not_superseded_and_its_lost_reply_finds_its_grant(bench: Bench) -> None:
    """ "Already holder" comes before "superseded": here two may hold."""
    deploy(bench, 1, limit=2)
    deploy(bench, 2, limit=2)
    again = deploy(bench, 1, limit=2)
    assert isinstance(again, Grant)
    assert again.repeated
    assert bench.state.newest == 2  # Its renewal has not moved it back.


def test_a_waiter_that_was_not_told_learns_it_when_it_asks(bench: Bench) -> None:
    deploy_all(bench, 1, 2, 3)
    bench.workflows.wakes = Delivery.UNKNOWN  # All pushes are lost.
    finish(bench, "v1")
    bench.clock.advance(3)
    assert reason(deploy(bench, 2)) is RefusalReason.SUPERSEDED
    assert isinstance(deploy(bench, 3), Grant)


def test_the_turn_of_plain_waiters_stays_theirs(bench: Bench) -> None:
    """Mixed callers: a version takes the place of the oldest version, and never more than one."""
    bench.wait("holder")
    bench.wait("plain-1")
    deploy(bench, 1)
    bench.wait("plain-2")
    deploy(bench, 2)
    order = []
    for _ in range(3):
        (holder,) = bench.holders()
        order.append(holder)
        finish(bench, holder)
    assert [*order, *bench.holders()] == ["holder", "plain-1", "v2", "plain-2"]
    assert bench.waiters() == []


def test_a_version_behind_the_first_page_counts_when_its_turn_comes(bench: Bench) -> None:
    bench.wait("holder")
    for number in range(9):
        bench.wait(f"plain-{number}")
    for version in (1, 2, 3):
        deploy(bench, version)
    for _ in range(10):
        finish(bench, bench.holders()[0])
    assert (bench.holders(), told(bench)) == (["v3"], ["v1", "v2"])


def test_a_plain_grant_leaves_the_newest_as_it_is(bench: Bench) -> None:
    deploy(bench, 5)
    finish(bench, "v5")
    bench.wait("plain")
    finish(bench, "plain")
    assert bench.state.newest == 5


def two_runs(bench: Bench) -> None:
    """v1 holds, v2 and v3 wait; no one waits for the push to v3, which has an execution its own."""
    deploy_all(bench, 1, 2)
    deploy(bench, 3, execution_arn=OTHER_RUN)
    bench.gone("v3")


def test_a_newest_that_has_died_while_it_waited_stops_no_older_one(bench: Bench) -> None:
    two_runs(bench)
    bench.end(OTHER_RUN)
    finish(bench, "v1")
    assert (bench.holders(), bench.state.newest, told(bench)) == (["v2"], 2, [])


def test_the_last_newest_that_has_died_leaves_no_mark(bench: Bench) -> None:
    two_runs(bench)
    bench.end(OTHER_RUN)
    bench.release("v2", waits=True, execution_arn=RUN)
    finish(bench, "v1")
    assert (bench.holders(), bench.state.newest) == ([], 1)
    assert isinstance(deploy(bench, 2, owner_id="another-deployment"), Grant)


def test_a_newest_between_two_polls_marks_when_it_asks(bench: Bench) -> None:
    """Its execution runs: it may be back, or it may not."""
    two_runs(bench)
    finish(bench, "v1")
    assert (bench.holders(), bench.state.newest, bench.waiters()) == (["v3"], 1, ["v2"])
    assert isinstance(deploy(bench, 2), Queued)
    assert isinstance(deploy(bench, 3, execution_arn=OTHER_RUN), Grant)
    assert (bench.state.newest, bench.waiters(), told(bench)) == (3, [], ["v2"])


def test_a_waiter_that_polls_counts_only_when_it_has_found_its_grant(bench: Bench) -> None:
    deploy_all(bench, 1, 2, 3, **POLLS)
    bench.release("v1")
    assert (bench.holders(), bench.state.newest, bench.waiters()) == (["v3"], 1, ["v2"])
    assert isinstance(deploy(bench, 2, **POLLS), Queued)
    assert isinstance(deploy(bench, 3, **POLLS), Grant)
    assert (bench.state.newest, bench.waiters()) == (3, [])
    assert reason(deploy(bench, 2, **POLLS)) is RefusalReason.SUPERSEDED


def test_a_polling_newest_that_has_died_costs_its_lease_and_no_deployment(bench: Bench) -> None:
    deploy_all(bench, 1, 2, 3, **POLLS)
    bench.release("v1")
    bench.clock.advance(5)
    assert isinstance(deploy(bench, 2, **POLLS), Queued)
    bench.clock.advance(120)
    deploy(bench, 2, **POLLS)
    assert (bench.holders(), bench.state.newest) == (["v2"], 2)


def test_a_caller_waits_while_it_is_unknown_whether_the_newest_lives(bench: Bench) -> None:
    """v3 has died. v2 asks in the very moment in which v3 is handed the lock."""
    two_runs(bench)
    bench.end(OTHER_RUN)
    answers: list[object] = []
    bench.gone("v3", then=lambda: answers.append(deploy(bench, 2, task_token="v2 again")))
    finish(bench, "v1")
    assert [type(answer) for answer in answers] == [Queued]
    assert (bench.holders(), bench.state.newest, granted(bench)[-1]) == (["v2"], 2, "v2 again")


def test_a_late_acquire_is_refused_by_its_version_alone(bench: Bench) -> None:
    """Within the slack nothing else tells it from a living call."""
    deploy(bench, 1)
    finish(bench, "v1")
    v2 = acquire("v2", only_newest=2)
    wire = late(bench, "#newest <= :version", lambda store: store.acquire(v2))
    bench.ask("v3", only_newest=3)
    bench.release("v3")
    assert not wire.land()
    assert wire.land(without=(NOT_SUPERSEDED,))  # the control


def test_a_hand_off_goes_below_no_version_that_was_found_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two may hold. v9 finds its grant while b, which releases, is about to hand over to v2.

    It dies before it comes to tell the older waiters.
    """
    monkeypatch.setattr(keep_alive, "_supersede_waiters", lambda *_: None)
    for name in ("a", "b"):
        bench.wait(name, only_newest=1, limit=2, **POLLS)
    deploy(bench, 9, limit=2, **POLLS)
    deploy(bench, 2, limit=2)
    bench.release("a")
    bench.release("b", over=meanwhile(3, lambda: deploy(bench, 9, limit=2, **POLLS)))
    assert (bench.holders(), told(bench)) == (["v9"], ["v2"])


def test_a_redriven_workflow_does_not_take_the_lock_again_after_a_newer_one(bench: Bench) -> None:
    deploy(bench, 1)
    bench.bury()
    bench.ask("v2", only_newest=2)
    bench.release("v2")
    bench.redrive()
    assert bench.beat("v1", only_newest=1, redrives=1).name == "LOST"


def test_by_time_the_version_is_the_place_in_the_queue(bench: Bench) -> None:
    bench.wait("a", only_newest=BY_TIME)
    assert bench.state.newest == bench.clock.wall_ms()
    bench.wait("b", only_newest=BY_TIME)
    entered = bench.clock.wall_ms()
    bench.wait("c", only_newest=BY_TIME)
    finish(bench, "a")
    assert (bench.holders(), told(bench)) == (["c"], ["b"])
    assert bench.state.newest == entered + 1_000


def corrected(dynamodb: Any) -> bool:  # noqa: ANN401 - a client
    """Runs the command of the runbook; whether it changed the lock."""
    [block] = [b for b in blocks("console") if "newest = :right" in b.code]
    words = shlex.split(block.code.replace("\\\n", " "))
    given = dict(zip(words[4::2], words[5::2], strict=True))
    try:
        dynamodb.update_item(
            TableName=TABLE,
            Key=lock_key(LOCK) if "deploy/shop" in given["--key"] else {},
            UpdateExpression=given["--update-expression"],
            ConditionExpression=given["--condition-expression"],
            ExpressionAttributeValues=json.loads(given["--expression-attribute-values"]),
        )
    except dynamodb.exceptions.ConditionalCheckFailedException:
        return False
    return True


def test_an_operator_corrects_a_version_that_was_too_high(
    fresh_dynamodb: object, clock: ManualClock
) -> None:
    bench = Bench(fresh_dynamodb, clock)
    deploy(bench, 1_042)
    finish(bench, "v1042")
    assert not corrected(fresh_dynamodb)
    deploy(bench, 104_200)
    finish(bench, "v104200")
    assert reason(deploy(bench, 1_043)) is RefusalReason.SUPERSEDED
    assert corrected(fresh_dynamodb)
    assert reason(deploy(bench, 1_041)) is RefusalReason.SUPERSEDED
    assert isinstance(deploy(bench, 1_043), Grant)
    assert not corrected(fresh_dynamodb), "another version was granted meanwhile"


def test_a_call_that_is_repeated_stays_as_old_as_it_was(bench: Bench) -> None:
    for name, task_token in (("a", "a"), ("b", "b"), ("c", "c"), ("b", "b again")):
        bench.wait(name, only_newest=BY_TIME, task_token=task_token)
    finish(bench, "a")
    assert bench.holders() == ["c"]


def test_a_plain_lock_neither_stores_nor_asks_for_a_version(bench: Bench) -> None:
    for make in (
        partial(grants.acquire_permit, sent_at_ms=START_MS, now_ms=START_MS),
        partial(grants.reacquire_permit, now_ms=START_MS),
    ):
        update = make(acquire("plain"))
        assert "newest" not in update.change + update.condition + str(update.names)
    bench.wait("plain")
    bench.wait("other")
    finish(bench, "plain")
    assert not any("newest" in name for item in bench.items("LOCK#") for name in item)


def test_an_uncontended_version_is_one_request(bench: Bench) -> None:
    client, store = bench.counting()
    store.acquire(acquire("v1", only_newest=1))
    store.heartbeat(heartbeat("v1"))
    store.release(release("v1"))
    store.acquire(acquire("v2", only_newest=2))
    assert client.calls == ["update_item"] * 4
