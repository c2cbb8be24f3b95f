"""Items of long ago: spared by TTL, restored from a backup, or written by an earlier version."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.protocol.schema import FOREVER_SECONDS
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import AskedTooEarly, ExecutionEnded
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, START_MS, FakeClock, acquire, heartbeat, owner, release
from tests.support.faulty_table import meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench

DAY_SECONDS = 24 * 3600
LONG_AGO_DAYS = 399
SHORTEST_SECONDS = 48 * 3600
LONGEST_SECONDS = 400 * DAY_SECONDS


@pytest.fixture
def used_bench(clock: FakeClock) -> Bench:
    """A lock that a workflow has used, a year and a month ago."""
    bench = Bench(MemoryTable(), clock)
    bench.ask("workflow", execution_arn=RUN)
    bench.release("workflow", execution_arn=RUN)
    clock.advance(LONG_AGO_DAYS * DAY_SECONDS)
    return bench


def seconds_to_live(bench: Bench) -> int:
    return int(bench.item()["expiry_time"]["N"]) - bench.clock.now_ms // 1000


def take(bench: Bench) -> None:
    bench.grant("anna")


def renew_for_long(bench: Bench) -> None:
    """A leader, for instance: it became the holder in good time, and holds for months."""
    bench.clock.advance(-30 * DAY_SECONDS)
    take(bench)
    for _ in range(60):
        bench.clock.advance(DAY_SECONDS)
        assert isinstance(bench.renew("anna"), Grant)


def serve_waiter(bench: Bench) -> None:
    bench.clock.advance(-2 * DAY_SECONDS)
    take(bench)
    bench.wait("ben", execution_arn=None, waiter_timeout_ms=2 * DAY_SECONDS * 1000)
    bench.clock.advance(2 * DAY_SECONDS - 1)
    bench.release("anna")
    assert bench.holders() == ["ben"]


def take_over_permit(bench: Bench) -> None:
    bench.clock.advance(-2 * DAY_SECONDS)
    bench.ask("gone")
    bench.clock.advance(2 * DAY_SECONDS)
    take(bench)


WAYS = [take, renew_for_long, serve_waiter, take_over_permit]


@pytest.mark.parametrize("become_holder", WAYS)
def test_a_holder_has_two_days_until_ttl_may_delete_its_lock(
    used_bench: Bench, become_holder: Callable[[Bench], None]
) -> None:
    become_holder(used_bench)
    assert seconds_to_live(used_bench) > SHORTEST_SECONDS


def test_a_renewal_for_long_leaves_the_retention_of_a_ceiling_that_was_set_meanwhile(
    used_bench: Bench,
) -> None:
    used_bench.clock.advance(-30 * DAY_SECONDS)
    take(used_bench)
    used_bench.clock.advance(30 * DAY_SECONDS)
    client = meanwhile(2, lambda: used_bench.set_ceiling(0))
    assert isinstance(used_bench.renew("anna", over=client), Grant)
    assert seconds_to_live(used_bench) == FOREVER_SECONDS - used_bench.clock.now_ms // 1000


def test_it_costs_one_request_more_and_then_none(used_bench: Bench) -> None:
    anna, ben = acquire("anna"), acquire("ben")
    assert len(used_bench.requests(lambda store: store.acquire(anna))) == 2
    assert len(used_bench.requests(lambda store: store.heartbeat(heartbeat("anna")))) == 1
    assert len(used_bench.requests(lambda store: store.release(release("anna")))) == 1
    assert len(used_bench.requests(lambda store: store.acquire(ben))) == 1


def test_ttl_never_takes_a_lock_out_of_the_hands_of_a_workflow(bench: Bench) -> None:
    """Nor of one to which the lock is handed over."""
    bench.ask("anna", limit=2, execution_arn=RUN)
    bench.ask("ben", limit=2)
    bench.release("ben")
    assert seconds_to_live(bench) == LONGEST_SECONDS
    bench.client = MemoryTable()
    bench.ask("anna")
    bench.wait("ben")
    bench.release("anna")
    assert seconds_to_live(bench) == LONGEST_SECONDS


def test_a_lock_that_no_workflow_has_used_is_kept_for_two_days_after_its_last_write(
    bench: Bench,
) -> None:
    take(bench)
    bench.clock.advance(3600)
    bench.release("anna")
    assert seconds_to_live(bench) == SHORTEST_SECONDS


# A lock table that was restored from a backup. The runbook says to use an empty one instead: here
# is why, and that a restored one blocks no one.


def back_up(bench: Bench) -> MemoryTable:
    return MemoryTable(items=copy.deepcopy(bench.client.items))


@pytest.mark.parametrize("restored", [True, False])
def test_in_an_empty_table_fencing_tokens_go_on_growing(bench: Bench, *, restored: bool) -> None:
    """In a restored one a token is granted twice."""
    bench.grant("anna")
    bench.release("anna")
    backup = back_up(bench)
    bench.clock.advance(DAY_SECONDS)
    before = bench.grant("ben").fencing_token
    bench.release("ben")
    bench.client = backup if restored else MemoryTable()
    bench.clock.advance(1)
    after = bench.grant("carl").fencing_token
    assert after == before if restored else after > before


@pytest.mark.parametrize("restored", [True, False])
def test_who_was_granted_since_the_backup_is_told_that_it_holds_nothing(
    bench: Bench, *, restored: bool
) -> None:
    backup = back_up(bench)
    bench.grant("anna")
    bench.grant("run", lock_name="another", execution_arn=RUN)
    bench.client = backup if restored else MemoryTable()
    assert isinstance(bench.renew("anna"), NotHeld)
    assert isinstance(bench.release("anna"), NotHeld)
    assert bench.beat("run", lock_name="another") is KeepAliveOutcome.LOST


def test_the_first_caller_passes_the_dead_of_a_restored_queue(bench: Bench) -> None:
    """A day later: the holder, a workflow and a client in the queue are gone for long."""
    bench.grant("anna")
    bench.wait("dead workflow")
    bench.ask("dead client", waits=True)
    backup = back_up(bench)
    bench.release("anna")
    bench.end()
    bench.clock.advance(DAY_SECONDS)
    bench.client = backup
    bench.gone("dead workflow")
    bench.grant("ben")
    assert (bench.holders(), bench.waiters()) == (["ben"], [])


def test_a_workflow_that_released_since_the_backup_and_still_runs_holds_until_it_ends(
    bench: Bench,
) -> None:
    """Nothing in the table says that it has released. An operator ends that: release by force."""
    bench.grant("run", execution_arn=RUN, owner_name=RUN)
    backup = back_up(bench)
    bench.release("run", execution_arn=RUN)
    bench.client = backup
    bench.clock.advance(DAY_SECONDS)
    bench.queue("ben", execution_arn=OTHER_RUN, task_token="ben")
    assert bench.holders() == [RUN]
    bench.end()
    assert bench.reap().holders == 1
    assert bench.holders() == ["ben"]


# The items stand here as commit 87ff4e7 wrote them, without the attributes that came later:
# `released_at`, `asked_at_ms`, `written_at_ms`, `redrives` and `done`.

TOKEN: Final = START_MS * 1000 + 1
STATE: Final = {"pk": {"S": f"LOCK#{LOCK}"}, "sk": {"S": "STATE"}}
POLLS: Final = {"waits": True, "poll_interval_ms": 2000}


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def record(name: str) -> dict[str, Any]:
    times = {"a": number(START_MS), "e": number(START_MS + 60_000), "l": number(60_000)}
    who = {"x": {"S": "billing:run"}} if name == "run" else {"o": {"S": name}}
    return {"M": {**times, "n": number(1), "r": number(1), **who}}


def held(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - attributes
    return {
        **STATE,
        f"holder:{owner(name)}": record(name),
        f"token:{owner(name)}": number(TOKEN),
        "fencing_token": number(TOKEN),
        "limit": number(1),
        "held": number(1),
        "expiry_time": number(START_MS // 1000 + 172_800),
        "executions": {"S": "arn:aws:states:us-east-1:123456789012:execution:"},
        **more,
    }


def waiter(name: str, entered_at_ms: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - same
    return {
        "pk": STATE["pk"],
        "sk": {"S": f"WAITER#{entered_at_ms:015d}#{owner(name)}"},
        "lease_ms": number(60_000),
        "owner_name": {"S": name},
        "owner_id": {"S": owner(name)},
        "limit": number(1),
        "entered_at_ms": number(entered_at_ms),
        "expires_at_ms": number(entered_at_ms + 12_000),
        "expiry_time": number(entered_at_ms // 1000 + 3_612),
        **more,
    }


def claim(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - same
    return {
        "pk": {"S": f"EXECUTION#{RUN}"},
        "sk": {"S": f"LOCK#{LOCK}#{owner(name)}#16"},
        "lock_name": {"S": LOCK},
        "owner_id": {"S": owner(name)},
        "expiry_time": number(START_MS // 1000 + 34_560_000),
        "revision": number(1),
        **more,
    }


QUEUE: Final = (
    held("anna", contended={"BOOL": True}, wait_seq=number(4)),
    waiter("ben", START_MS, task_token={"S": "ben"}, execution_arn={"S": RUN}),
    claim("ben", entered_at_ms=number(START_MS)),
    waiter("carl", START_MS + 1, poll_interval_ms=number(2000)),
)
KEPT_ALIVE: Final = (held("run"), claim("run", task_token={"S": "heartbeat"}))


def put(bench: Bench, *items: dict[str, Any]) -> None:
    for item in items:
        bench.client.items[item["pk"]["S"], item["sk"]["S"]] = item


def ask_again(bench: Bench, name: str, **terms: Any) -> str:  # noqa: ANN401 - of the request
    bench.clock.advance(2)
    return type(bench.ask(name, waits=True, **terms)).__name__


def test_a_holder_renews_and_releases_by_its_own_token(bench: Bench) -> None:
    put(bench, held("anna"))
    renewed = bench.renew("anna")
    assert isinstance(renewed, Grant)
    assert renewed.fencing_token == TOKEN
    assert isinstance(bench.release("anna"), Released)
    after = bench.grant("ben")
    assert after.fencing_token > TOKEN


def test_no_one_takes_a_lock_from_its_holder_before_its_lease_is_over(bench: Bench) -> None:
    put(bench, held("anna"))
    bench.clock.advance(60)
    bench.refuse("ben")
    bench.clock.advance(2)
    bench.grant("ben")


def test_who_released_is_still_refused_when_it_comes_late(bench: Bench) -> None:
    put(bench, {**STATE, "fencing_token": number(TOKEN), "last_released": {"S": owner("anna")}})
    assert bench.refuse("anna").reason is RefusalReason.ALREADY_RELEASED


def test_who_waits_asks_again_and_is_served_in_its_turn(bench: Bench) -> None:
    """Both ask once more, as a workflow does after its fallback period."""
    put(bench, *QUEUE)
    place = {"execution_arn": RUN, "task_token": "ben, later"}
    assert ask_again(bench, "ben", **place) == Queued.__name__
    assert ask_again(bench, "carl", poll_interval_ms=2000, ticket=START_MS + 1) == Queued.__name__
    bench.release("anna")
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben, later"])
    bench.release("ben", execution_arn=RUN)
    assert (bench.holders(), bench.waiters()) == (["carl"], [])


def test_who_waits_is_handed_the_lock_without_asking_again(bench: Bench) -> None:
    put(bench, *QUEUE)
    bench.release("anna")
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben"])


def test_the_event_of_a_run_that_the_claim_does_not_tell_is_not_believed(bench: Bench) -> None:
    """Step Functions is asked: the claim may be of a later run, which works."""
    put(bench, *KEPT_ALIVE)
    ended = ExecutionEnded(execution_arn=RUN, redrives=0, ended_at_ms=START_MS)
    with pytest.raises(AskedTooEarly):
        bench.store().reap(ended)
    assert bench.holders() == [RUN]
    bench.end()
    assert bench.store().reap(ended).holders == 1
    assert bench.holders() == []


def test_a_workflow_is_kept_alive_and_ends_in_the_usual_way(bench: Bench) -> None:
    put(bench, *KEPT_ALIVE)
    assert bench.beat("run") is KeepAliveOutcome.RENEWED
    bench.release("run", execution_arn=RUN)
    assert (bench.holders(), bench.claims()) == ([], [])


def test_a_pass_of_the_reaper_goes_on_where_the_earlier_version_stopped(bench: Bench) -> None:
    put(bench, held("run"), claim("run", fenced=number(1)))
    bench.end()
    assert bench.reap().holders == 1
    bench.reap(second=True)
    bench.refuse("run", execution_arn=RUN)
    assert bench.holders() == []


def test_a_fenced_workflow_that_is_redriven_takes_its_lock_again(bench: Bench) -> None:
    put(bench, claim("run", fenced=number(2)))
    bench.redrive()
    outcome = bench.beat("run", redrives=1)
    assert outcome is KeepAliveOutcome.REACQUIRED
    assert bench.holders() == ["run"]


def test_an_execution_that_died_unnoticed_loses_its_lock_to_the_next_caller(bench: Bench) -> None:
    put(bench, *KEPT_ALIVE)
    bench.clock.advance(62)
    other = acquire("ben", execution_arn=OTHER_RUN)
    assert isinstance(bench.store().acquire(other), Refusal)
    bench.end()
    bench.clock.advance(62)
    assert isinstance(bench.store().acquire(other), Grant)


def test_all_of_it_is_shown(bench: Bench) -> None:
    put(bench, *QUEUE)
    [shown] = bench.store().list_locks()
    described = bench.store().describe(LOCK)
    assert described is not None
    assert described == shown
    assert [each.owner_name for each in described.waiters.first] == ["ben", "carl"]
