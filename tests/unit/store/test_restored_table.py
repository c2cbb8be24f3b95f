"""A lock table that was restored from a backup: what its old items do to those who lock there now.

The runbook says to use an empty table instead. Here is why, and that a restored one blocks no one.
"""

from __future__ import annotations

import copy

import pytest

from fairlock.aws.executions import Delivery
from fairlock.protocol.outcomes import Grant, NotHeld, Queued, Refusal
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, heartbeat, release
from tests.support.store_bench import OTHER_RUN, RUN, Bench, workflow_heartbeat
from tests.support.workflows import FakeWorkflows

DAY = 24 * 3600


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def back_up(bench: Bench) -> MemoryTable:
    return MemoryTable(items=copy.deepcopy(bench.client.items))


def granted(bench: Bench, name: str, **terms: object) -> Grant:
    answer = bench.store().acquire(acquire(name, **terms))
    assert isinstance(answer, Grant)
    return answer


def tokens_before_and_after(bench: Bench, *, restored: bool) -> tuple[int, int]:
    """The token of a grant after the backup, and that of the first grant in the other table."""
    granted(bench, "anna")
    bench.store().release(release("anna"))
    backup = back_up(bench)
    bench.clock.advance(DAY)
    before = granted(bench, "ben").fencing_token
    bench.store().release(release("ben"))
    bench.client = backup if restored else MemoryTable()
    bench.clock.advance(1)
    return before, granted(bench, "carl").fencing_token


def test_in_an_empty_table_fencing_tokens_go_on_growing(bench: Bench) -> None:
    before, after = tokens_before_and_after(bench, restored=False)
    assert after > before


def test_in_a_restored_table_a_fencing_token_is_granted_twice(bench: Bench) -> None:
    before, after = tokens_before_and_after(bench, restored=True)
    assert after == before


@pytest.mark.parametrize("restored", [True, False])
def test_who_was_granted_since_the_backup_is_told_that_it_holds_nothing(
    bench: Bench, *, restored: bool
) -> None:
    backup = back_up(bench)
    granted(bench, "anna")
    granted(bench, "run", lock_name="another", execution_arn=RUN)
    bench.client = backup if restored else MemoryTable()
    assert isinstance(bench.store().heartbeat(heartbeat("anna")), NotHeld)
    assert isinstance(bench.store().release(release("anna")), NotHeld)
    kept_alive = workflow_heartbeat("run", lock_name="another")
    assert bench.store().keep_alive(kept_alive) is KeepAliveOutcome.LOST


def restore_a_queue_of_the_dead(bench: Bench) -> None:
    """A day later: the holder, a workflow and a client in the queue are gone for long."""
    granted(bench, "anna")
    bench.wait("dead workflow")
    bench.store().acquire(acquire("dead client", waits=True))
    backup = back_up(bench)
    bench.store().release(release("anna"))
    bench.end()
    bench.clock.advance(DAY)
    bench.client = backup
    bench.workflows = FakeWorkflows(wakes=Delivery.GONE, runs=bench.describe)


def test_the_first_caller_passes_the_dead_of_a_restored_queue(bench: Bench) -> None:
    restore_a_queue_of_the_dead(bench)
    granted(bench, "ben")
    assert (bench.holders(), bench.waiters()) == (["ben"], [])


def test_a_workflow_that_released_since_the_backup_and_still_runs_holds_until_it_ends(
    bench: Bench,
) -> None:
    """Nothing in the table says that it has released. An operator ends that: release by force."""
    granted(bench, "run", execution_arn=RUN, owner_name=RUN)
    backup = back_up(bench)
    bench.store().release(release("run", execution_arn=RUN))
    bench.client = backup
    bench.clock.advance(DAY)
    waiting = acquire("ben", waits=True, execution_arn=OTHER_RUN, task_token="ben")
    assert isinstance(bench.store().acquire(waiting), Queued)
    assert bench.holders() == [RUN]
    bench.end()
    assert bench.reap().holders == 1
    assert bench.holders() == ["ben"]


def test_leases_of_a_restored_table_that_have_not_ended_are_respected(bench: Bench) -> None:
    """The control: what the first caller passes above, it passes because it is over."""
    granted(bench, "anna")
    backup = back_up(bench)
    bench.store().release(release("anna"))
    bench.client = backup
    assert isinstance(bench.store().acquire(acquire("ben")), Refusal)
