"""TTL never deletes a lock under the hands of a holder, however long ago a workflow used it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld
from fairlock.protocol.schema import FOREVER_SECONDS
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, heartbeat, release
from tests.support.faulty_table import meanwhile
from tests.support.store_bench import (
    OTHER_RUN,
    RUN,
    Bench,
)

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


def claim(bench: Bench) -> None:
    bench.grant("anna")


def renew_for_long(bench: Bench) -> None:
    """A leader, for instance: it became the holder in good time, and holds for months."""
    bench.clock.advance(-30 * DAY_SECONDS)
    claim(bench)
    for _ in range(60):
        bench.clock.advance(DAY_SECONDS)
        assert isinstance(bench.renew("anna"), Grant)


def serve_waiter(bench: Bench) -> None:
    bench.clock.advance(-2 * DAY_SECONDS)
    claim(bench)
    bench.wait("ben", execution_arn=None, waiter_timeout_ms=2 * DAY_SECONDS * 1000)
    bench.clock.advance(2 * DAY_SECONDS - 1)
    bench.release("anna")
    assert bench.holders() == ["ben"]


def take_over_permit(bench: Bench) -> None:
    bench.clock.advance(-2 * DAY_SECONDS)
    bench.ask("gone")
    bench.clock.advance(2 * DAY_SECONDS)
    claim(bench)


WAYS = [claim, renew_for_long, serve_waiter, take_over_permit]


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
    claim(used_bench)
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
    claim(bench)
    bench.clock.advance(3600)
    bench.release("anna")
    assert seconds_to_live(bench) == SHORTEST_SECONDS


# A lock table that was restored from a backup: what its old items do to those who lock there now.
#
# The runbook says to use an empty table instead. Here is why, and that a restored one blocks no
# one.


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
