"""Items of long ago: spared by TTL, restored from a backup, or written by an earlier version."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

import pytest

from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, RefusalReason, Released
from fairlock.protocol.schema import FOREVER_SECONDS
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import AskedTooEarly, ExecutionEnded
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, acquire, heartbeat, release
from tests.support.faulty_table import Killed, kill, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench

DAY_SECONDS = 24 * 3600
LONG_AGO_DAYS = 399
SHORTEST_SECONDS = 48 * 3600
LONGEST_SECONDS = 400 * DAY_SECONDS


@pytest.fixture
def used_bench(clock: ManualClock) -> Bench:
    """A lock that a workflow has used, a year and a month ago."""
    bench = Bench(MemoryTable(), clock)
    bench.ask("workflow", execution_arn=RUN)
    bench.release("workflow", execution_arn=RUN)
    clock.advance(LONG_AGO_DAYS * DAY_SECONDS)
    return bench


def seconds_to_live(bench: Bench) -> int:
    return int(bench.item()["expiry_time"]["N"]) - bench.own_clock.wall_ms() // 1000


def take(bench: Bench) -> None:
    bench.grant("anna")


def renew_for_long(bench: Bench) -> None:
    """A leader, for instance: it became the holder in good time, and holds for months."""
    bench.own_clock.skew_ms = -30 * DAY_SECONDS * 1000
    take(bench)
    for _ in range(60):
        bench.clock.advance(DAY_SECONDS)
        assert isinstance(bench.renew("anna"), Grant)


def serve_waiter(bench: Bench) -> None:
    bench.own_clock.skew_ms = -2 * DAY_SECONDS * 1000
    take(bench)
    bench.wait("ben", execution_arn=None, waiter_timeout_ms=2 * DAY_SECONDS * 1000)
    bench.clock.advance(2 * DAY_SECONDS - 1)
    bench.release("anna")
    assert bench.holders() == ["ben"]


def take_over_permit(bench: Bench) -> None:
    bench.own_clock.skew_ms = -2 * DAY_SECONDS * 1000
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
    used_bench.own_clock.skew_ms = -30 * DAY_SECONDS * 1000
    take(used_bench)
    used_bench.clock.advance(30 * DAY_SECONDS)
    client = meanwhile(2, lambda: used_bench.set_ceiling(0))
    assert isinstance(used_bench.renew("anna", over=client), Grant)
    assert seconds_to_live(used_bench) == FOREVER_SECONDS - used_bench.own_clock.wall_ms() // 1000


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


# What an earlier version has written: who holds keeps it, who waits keeps its place, the dead go.

LATER: Final = (
    *("released_at", "retain_until"),
    *("asked_at_ms", "written_at_ms", "redrives", "done"),
)
"""The attributes that commit 87ff4e7 did not write yet. All others are as they were then."""


def as_it_was(bench: Bench) -> Bench:
    for item in bench.client.items.values():
        for name in LATER:
            item.pop(name, None)
    return bench


@pytest.fixture
def held(bench: Bench) -> Bench:
    """Anna holds the lock."""
    bench.grant("anna")
    return as_it_was(bench)


@pytest.fixture
def queue(held: Bench) -> Bench:
    """A workflow waits, and behind it a caller that polls."""
    held.wait("ben")
    held.ask("carl", waits=True, poll_interval_ms=2_000)
    return as_it_was(held)


@pytest.fixture
def kept_alive(bench: Bench) -> Bench:
    """A workflow holds the lock, and sends heartbeats."""
    bench.grant("run", execution_arn=RUN)
    bench.beat("run")
    return as_it_was(bench)


def test_a_holder_of_before_renews_and_releases_by_its_own_token(held: Bench) -> None:
    (before,) = held.state.holders
    renewed = held.renew("anna")
    assert isinstance(renewed, Grant)
    assert renewed.fencing_token == before.fencing_token
    assert isinstance(held.release("anna"), Released)
    as_it_was(held)
    assert held.refuse("anna").reason is RefusalReason.ALREADY_RELEASED
    assert held.grant("ben").fencing_token > before.fencing_token


def test_no_one_takes_a_lock_from_a_holder_of_before_until_its_lease_is_over(held: Bench) -> None:
    held.clock.advance(60)
    held.refuse("ben")
    held.clock.advance(3)
    held.grant("ben")


@pytest.mark.parametrize("asks", [True, False])
def test_who_waited_before_is_served_in_its_turn_whether_it_asks_again_or_not(
    queue: Bench, *, asks: bool
) -> None:
    """Both ask once more, as a workflow does after its fallback period."""
    described = queue.store().describe(LOCK)
    assert described is not None
    assert [described] == list(queue.store().list_locks())
    assert [each.owner_name for each in described.waiters.first] == ["ben", "carl"]
    ticket = queue.clock.wall_ms()
    if asks:
        assert isinstance(queue.wait("ben", task_token="later"), Queued)
        queue.queue("carl", poll_interval_ms=2_000, ticket=ticket)
    queue.release("anna")
    assert (queue.holders(), queue.pushed) == (["ben"], ["later" if asks else "ben"])
    queue.release("ben", execution_arn=RUN)
    assert (queue.holders(), queue.waiters()) == (["carl"], [])


def test_the_event_of_a_run_that_the_claim_does_not_tell_is_not_believed(kept_alive: Bench) -> None:
    """Step Functions is asked: the claim may be of a later run, which works."""
    ended = ExecutionEnded(execution_arn=RUN, redrives=0, ended_at_ms=kept_alive.clock.wall_ms())
    with pytest.raises(AskedTooEarly):
        kept_alive.store().reap(ended)
    assert kept_alive.holders() == ["run"]
    kept_alive.end()
    assert kept_alive.store().reap(ended).holders == 1
    assert kept_alive.holders() == []


def test_a_workflow_of_before_is_kept_alive_and_ends_in_the_usual_way(kept_alive: Bench) -> None:
    assert kept_alive.beat("run") is KeepAliveOutcome.RENEWED
    kept_alive.release("run", execution_arn=RUN)
    assert (kept_alive.holders(), kept_alive.claims()) == ([], [])


def test_a_pass_of_the_reaper_goes_on_where_the_earlier_version_stopped(kept_alive: Bench) -> None:
    kept_alive.end()
    with pytest.raises(Killed):
        kept_alive.reap(client=kill(3))
    as_it_was(kept_alive)
    assert kept_alive.reap().holders == 1
    kept_alive.reap(second=True)
    kept_alive.refuse("run", execution_arn=RUN)
    assert kept_alive.holders() == []


def test_a_workflow_that_was_fenced_and_is_redriven_takes_its_lock_again(kept_alive: Bench) -> None:
    kept_alive.come_back()
    as_it_was(kept_alive)
    assert kept_alive.beat("run", redrives=1) is KeepAliveOutcome.REACQUIRED
    assert kept_alive.holders() == ["run"]


def test_an_execution_that_died_unnoticed_loses_its_lock_to_the_next_caller(
    kept_alive: Bench,
) -> None:
    kept_alive.clock.advance(63)
    kept_alive.refuse("ben", execution_arn=OTHER_RUN)
    kept_alive.end()
    kept_alive.clock.advance(63)
    kept_alive.grant("ben", execution_arn=OTHER_RUN)
