"""A ceiling: a limit that an operator has set, above which no grant goes, and a pause."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol import admission, ceiling, grants
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.model import Grant, LockState
from fairlock.protocol.outcomes import Refusal, RefusalReason, Released
from fairlock.protocol.schema import FOREVER_SECONDS, NEXT_TOKEN, Part, lock_key, number
from fairlock.protocol.table_requests import Update
from fairlock.store import administration
from fairlock.store.context import CeilingChanged
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, TABLE, FakeClock, acquire, heartbeat, release
from tests.support.faulty_table import (
    FaultyTable,
    Killed,
    fault,
    kill,
    lost_reply,
    meanwhile,
    repeat,
)
from tests.support.store_bench import RUN, Bench, Wire, late, workflow_heartbeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

DAY_SECONDS = 24 * 3600


def change(limit: int | None, **fields: Any) -> SetCeilingRequest:  # noqa: ANN401 - fields of the request
    told = {"requested_by": "olga", "reason": "freeze", **fields}
    return SetCeilingRequest(lock_name=LOCK, limit=limit, **told)


def state(bench: Bench) -> LockState:
    return bench.store().read_state(LOCK)


def item(bench: Bench) -> dict[str, Any]:
    return dict(bench.client.get_item(TableName=TABLE, Key=lock_key(LOCK))["Item"])


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def test_a_paused_lock_is_refused_with_who_paused_it_and_why_and_resumed_by_one_write(
    fresh_dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    """On moto, so that the expressions are judged by other code; a lock never used before."""
    bench = Bench(fresh_dynamodb, clock)
    client, store = bench.counting()
    store.change_ceiling(change(0))
    assert client.calls == ["get_item", "update_item"]
    refused = bench.store().acquire(acquire("anna"))
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.holders) == (RefusalReason.HELD, ())
    assert refused.ceiling is not None
    assert (refused.ceiling.requested_by, refused.ceiling.reason) == ("olga", "freeze")
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert (lock.is_paused, lock.is_in_use, lock.holders) == (True, True, ())
    client, store = bench.counting()
    store.change_ceiling(change(None))
    assert client.calls == ["get_item", "update_item"]
    bench.grant("anna")
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert lock.ceiling is None
    assert [type(event) for event in bench.events] == [CeilingChanged, CeilingChanged]


def test_the_first_token_after_a_pause_of_an_unused_lock_is_above_all_before(bench: Bench) -> None:
    bench.store().change_ceiling(change(0))
    bench.store().change_ceiling(change(None))
    assert bench.grant("anna").fencing_token > bench.clock.now_ms * 1000


def test_a_pause_stops_no_holder(bench: Bench) -> None:
    mine = bench.grant("anna")
    bench.store().change_ceiling(change(0))
    assert granted(bench.store().heartbeat(heartbeat("anna"))).fencing_token == mine.fencing_token
    assert isinstance(bench.store().release(release("anna")), Released)
    assert isinstance(bench.store().acquire(acquire("ben")), Refusal)


@pytest.mark.parametrize("limit", [0, 3])
def test_below_a_ceiling_a_redriven_execution_that_still_holds_renews(
    bench: Bench, limit: int
) -> None:
    """Its pass has died behind the fence, and a ceiling retains the item by itself."""
    bench.grant("anna", limit=5, execution_arn=RUN)
    bench.store().change_ceiling(change(limit))
    bench.end()
    with suppress(LockStoreUnavailable):
        bench.reap(client=FaultyTable(bench.client, fault(lost_reply(), 2)))
    assert "fenced" in bench.claims()[0]
    bench.redrive()
    beat = workflow_heartbeat("anna", limit=5)
    assert bench.store().keep_alive(beat) is KeepAliveOutcome.RENEWED
    assert int(item(bench)["expiry_time"]["N"]) == FOREVER_SECONDS


@pytest.mark.parametrize("limit", [1, 5])
def test_no_grant_goes_above_a_ceiling(bench: Bench, limit: int) -> None:
    bench.store().change_ceiling(change(2))
    answers = [bench.store().acquire(acquire(f"owner{i}", limit=limit)) for i in range(4)]
    assert sum(isinstance(answer, Grant) for answer in answers) == min(limit, 2)


def test_a_lowered_ceiling_grants_nothing_until_fewer_hold(bench: Bench) -> None:
    for name in ("anna", "ben", "carl"):
        bench.grant(name, limit=3)
    bench.store().change_ceiling(change(2))
    bench.wait("dora", limit=3)
    bench.store().release(release("anna"))
    assert bench.holders() == ["ben", "carl"]
    bench.store().release(release("ben"))
    assert bench.holders() == ["carl", "dora"]
    assert bench.pushed == ["dora"]


def test_resume_serves_all_who_wait_the_first_by_the_write_that_lifts_the_pause(
    fresh_dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    bench = Bench(fresh_dynamodb, clock)
    bench.store().change_ceiling(change(0))
    for name in ("anna", "ben", "carl"):
        bench.wait(name, limit=2)
    assert bench.waiters() == ["anna", "ben", "carl"]
    client, store = bench.counting()
    store.change_ceiling(change(None))
    assert client.calls[:3] == ["get_item", "query", "transact_write_items"]
    assert (bench.holders(), bench.waiters()) == (["anna", "ben"], ["carl"])
    assert bench.pushed == ["anna", "ben"]
    bench.store().release(release("anna"))
    assert bench.holders() == ["ben", "carl"]


def test_an_operator_who_dies_after_its_first_write_leaves_no_one_asleep(bench: Bench) -> None:
    bench.store().change_ceiling(change(0))
    for name in ("anna", "ben"):
        bench.wait(name, limit=2)
    with pytest.raises(Killed):
        bench.store(FaultyTable(bench.client, kill(4))).change_ceiling(change(None))
    assert bench.holders() == ["anna"]
    bench.store().release(release("anna"))
    assert bench.holders() == ["ben"]


def raise_while_the_head_gives_up(bench: Bench) -> list[str]:
    """Who holds, if the operator's process dies as soon as a write of its own has happened.

    Ben has no room beside Anna, and leaves the queue between the operator's read and its write.
    Carl behind him comes in at the new ceiling.
    """
    bench.grant("anna", limit=2)
    bench.store().change_ceiling(change(1))
    bench.wait("ben", limit=1, execution_arn=RUN)
    bench.wait("carl", limit=2)
    passing = FaultyTable(bench.client)

    def ben_leaves() -> None:
        bench.store().release(release("ben", waits=True, execution_arn=RUN))

    def dies_if_written() -> None:
        if state(bench).ceiling != before:
            raise Killed

    before = state(bench).ceiling
    passing.will(meanwhile(3, ben_leaves), meanwhile(range(4, 21), dies_if_written))
    with suppress(Killed):
        bench.store(passing).change_ceiling(change(2))
    assert bench.waiters() in ([], ["carl"])
    return bench.holders()


def test_a_waiter_that_gives_up_while_a_ceiling_is_raised_leaves_no_one_asleep(
    bench: Bench,
) -> None:
    assert raise_while_the_head_gives_up(bench) == ["anna", "carl"]


def test_control_a_ceiling_raised_without_a_look_at_who_left_lets_a_waiter_sleep(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a free permit, until it asks by itself."""
    everybody_left = Part(":wait_seq = :wait_seq")
    monkeypatch.setattr(ceiling, "nobody_left", lambda _: everybody_left)
    assert raise_while_the_head_gives_up(bench) == ["anna"]


def test_raising_a_ceiling_serves_as_many_as_may_come_in(bench: Bench) -> None:
    bench.store().change_ceiling(change(1))
    bench.grant("anna", limit=5)
    for name in ("ben", "carl", "dora"):
        bench.wait(name, limit=5)
    bench.store().change_ceiling(change(3))
    assert (bench.holders(), bench.waiters()) == (["anna", "ben", "carl"], ["dora"])
    bench.store().change_ceiling(change(None))
    assert (bench.holders(), bench.waiters()) == (["anna", "ben", "carl", "dora"], [])


def second_write(bench: Bench, pause: Callable[[], object]) -> None:
    """A caller whose first write was refused, because another owner has left, writes as seen."""
    bench.store().acquire(acquire("other"))
    bench.store().release(release("other"))
    bench.clock.advance(-30)
    bench.store(FaultyTable(bench.client, meanwhile(2, pause))).acquire(acquire("anna"))


def hand_off(bench: Bench, pause: Callable[[], object]) -> None:
    """A departing holder has read the queue."""
    bench.grant("other")
    bench.wait("anna")
    bench.store(FaultyTable(bench.client, meanwhile(3, pause))).release(release("other"))


def takeover(bench: Bench, pause: Callable[[], object]) -> None:
    """A contender has found that a lease is over."""
    bench.grant("other")
    bench.clock.advance(3600)
    bench.store(FaultyTable(bench.client, meanwhile(2, pause))).acquire(acquire("anna"))


def redriven_under_a_pause(bench: Bench) -> list[str]:
    """A workflow was stopped, reaped and redriven; its heartbeat would take the lock again."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    bench.reap()
    bench.clock.advance(40)
    bench.reap(second=True)
    bench.store().change_ceiling(change(0))
    bench.redrive()
    bench.store().keep_alive(workflow_heartbeat("anna", redrives=1))
    return bench.holders()


def test_a_redriven_workflow_does_not_take_a_paused_lock_again(bench: Bench) -> None:
    assert redriven_under_a_pause(bench) == []
    bench.store().change_ceiling(change(None))
    bench.store().keep_alive(workflow_heartbeat("anna", redrives=1))
    assert bench.holders() == ["anna"]


def test_if_its_write_did_not_ask_for_a_ceiling_it_would(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "NO_CEILING", "#h_limit <> :limit")
    assert redriven_under_a_pause(bench) == ["anna"]


@pytest.fixture
def unraised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling is set, and the fencing token stays as it is."""

    def weak(made: ceiling.CeilingChange, *, now_ms: int) -> Update:
        update = ceiling.set_ceiling(made, now_ms=now_ms)
        values = {name: value for name, value in update.values.items() if name != ":one"}
        stays = update.change.replace(NEXT_TOKEN, NEXT_TOKEN.removesuffix(" + :one"))
        return replace(update, change=stays, values=values)

    monkeypatch.setattr(administration, "set_ceiling", weak)


UNDER_WAY = [second_write, hand_off, takeover]


@pytest.mark.parametrize("grant", UNDER_WAY)
def test_a_grant_that_is_under_way_is_refused_once_a_pause_is_answered(
    bench: Bench, grant: Callable[..., None]
) -> None:
    grant(bench, lambda: bench.store().change_ceiling(change(0)))
    assert "anna" not in bench.holders()


@pytest.mark.usefixtures("unraised")
@pytest.mark.parametrize("grant", UNDER_WAY)
def test_without_raising_the_fencing_token_it_goes_through(
    bench: Bench, grant: Callable[..., None]
) -> None:
    grant(bench, lambda: bench.store().change_ceiling(change(0)))
    assert "anna" in bench.holders()


def test_a_first_write_that_does_not_ask_for_a_ceiling_would_be_granted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store().change_ceiling(change(0))
    monkeypatch.setattr(admission, "NO_CEILING", "#h_limit <> :limit")
    bench.grant("anna")


def uses(bench: Bench) -> Iterator[None]:
    """Writes of workflows, which retain an item for 400 days, below a ceiling of 2."""
    run = {"execution_arn": RUN, "limit": 3}
    bench.grant("anna", **run)
    yield
    bench.grant("ben", **run)
    yield
    bench.wait("carl", limit=3)
    yield
    granted(bench.store().heartbeat(heartbeat("anna")))
    yield
    bench.store().release(release("anna"))
    assert bench.holders() == ["ben", "carl"]
    yield


def test_ttl_spares_a_lock_with_a_ceiling_whatever_is_written_meanwhile(bench: Bench) -> None:
    bench.store().change_ceiling(change(2))
    for _ in uses(bench):
        assert int(item(bench)["expiry_time"]["N"]) == FOREVER_SECONDS
    for limit in (1, 2, 3):
        bench.store().change_ceiling(change(limit))
        assert int(item(bench)["expiry_time"]["N"]) == FOREVER_SECONDS
    bench.store().change_ceiling(change(None))
    left = int(item(bench)["expiry_time"]["N"]) - bench.clock.now_ms // 1000
    assert left == 400 * DAY_SECONDS


def test_a_grant_that_ignores_the_ceiling_would_let_ttl_delete_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store().change_ceiling(change(2))
    monkeypatch.setattr(LockState, "ceiling", None)
    next(uses(bench))
    assert int(item(bench)["expiry_time"]["N"]) < FOREVER_SECONDS


def test_resume_that_hands_over_lets_ttl_have_the_item_again(bench: Bench) -> None:
    bench.store().change_ceiling(change(0))
    bench.wait("anna")
    bench.store().change_ceiling(change(None))
    assert bench.holders() == ["anna"]
    assert int(item(bench)["expiry_time"]["N"]) < FOREVER_SECONDS


@pytest.mark.parametrize("number", [0, 1, 2])
def test_resume_serves_all_though_a_holder_leaves_meanwhile(bench: Bench, number: int) -> None:
    """It leaves below a pause, so it serves no one."""
    a_holder_leaves_while_two_are_resumed(bench, number)
    assert bench.holders() == ["ben", "carl"]


@pytest.mark.parametrize("number", [1, 2])
def test_if_it_did_not_look_for_leavers_a_waiter_would_sleep_beside_a_free_permit(
    bench: Bench, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = ceiling.CeilingChange.part
    monkeypatch.setattr(ceiling.CeilingChange, "part", lambda change, _=None: blind(change))
    a_holder_leaves_while_two_are_resumed(bench, number)
    assert (bench.holders(), bench.waiters()) == (["ben"], ["carl"])


def a_holder_leaves_while_two_are_resumed(bench: Bench, number: int) -> None:
    bench.grant("anna", limit=2)
    bench.store().change_ceiling(change(0))
    for name in ("ben", "carl"):
        bench.wait(name, limit=2)
    leaves = lambda: bench.store().release(release("anna"))  # noqa: E731 - a race in a line
    table = FaultyTable(bench.client, meanwhile(number + 1, leaves))
    bench.store(table).change_ceiling(change(None))


def test_the_later_of_two_operators_wins(bench: Bench) -> None:
    bench.store().change_ceiling(change(3, requested_by="olga"))
    other = lambda: bench.store().change_ceiling(change(0, requested_by="paul"))  # noqa: E731 - a race in a line
    bench.store(FaultyTable(bench.client, meanwhile(2, other))).change_ceiling(change(5))
    found = state(bench).ceiling
    assert found is not None
    assert (found.limit, found.requested_by) == (5, "olga")


@pytest.mark.parametrize("waiting", [False, True])
def test_a_change_whose_first_reply_was_lost_is_made_once(bench: Bench, *, waiting: bool) -> None:
    bench.store().change_ceiling(change(0))
    if waiting:
        bench.wait("anna")
    changes = state(bench).last_ceiling
    assert changes is not None
    bench.store(FaultyTable(bench.client, repeat())).change_ceiling(change(None))
    after = state(bench).last_ceiling
    assert after is not None
    assert (after.limit, after.change) == (None, changes.change + 1)


def pause_of_unknown_outcome(bench: Bench) -> Wire:
    return late(bench, "#ceiling = :ceiling", lambda store: store.change_ceiling(change(0)))


@pytest.mark.parametrize("is_used", [False, True])
def test_a_pause_of_unknown_outcome_does_not_land_after_the_resume(
    bench: Bench, *, is_used: bool
) -> None:
    if is_used:
        bench.grant("anna")
    pause = pause_of_unknown_outcome(bench)
    bench.store().change_ceiling(change(None))
    pause.land()
    assert state(bench).ceiling is None


def test_if_resuming_an_unpaused_lock_wrote_nothing_the_pause_would_land(bench: Bench) -> None:
    pause = pause_of_unknown_outcome(bench)
    pause.land()
    assert state(bench).ceiling is not None


def test_a_lock_without_a_ceiling_pays_56_bytes_of_each_first_request_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size() -> int:
        update = grants.acquire_permit(acquire("anna"), sent_at_ms=0, now_ms=0)
        sent = [update.condition, update.change, dict(update.names), dict(update.values)]
        return len(json.dumps(sent, separators=(",", ":")))

    client, store = bench.counting()
    granted(store.acquire(acquire("anna")))
    store.heartbeat(heartbeat("anna"))
    store.release(release("anna"))
    assert client.calls == ["update_item"] * 3
    assert not {"ceiling", "last_ceiling"} & item(bench).keys()
    with_it = size()
    monkeypatch.setattr(grants, "may_enter", may_enter_without)
    assert with_it - size() == 56


def may_enter_without(limit: int) -> Part:
    return Part(admission.PERMIT_FREE, {":limit": number(limit)})
