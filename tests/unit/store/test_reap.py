"""Reaping through the store: what the end of an execution frees, and what it leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlock.aws.executions import Execution
from fairlock.aws.retry import RetryBudget
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Liveness
from fairlock.protocol.outcomes import Grant, Reaped
from tests.support import LOCK, FakeClock, acquire, release
from tests.support.faulty_table import FaultyTable
from tests.support.store_bench import OTHER_RUN, RUN, Bench

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

DAYS_15 = 15 * 24 * 3600


@pytest.fixture
def bench(dynamodb: DynamoDBClient, clock: FakeClock) -> Bench:
    return Bench(dynamodb, clock)


def test_the_first_pass_frees_the_lock_of_an_execution_that_is_over(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    assert bench.reap() == Reaped(holders=1)
    assert bench.holders() == []
    assert isinstance(bench.store().acquire(acquire("ben")), Grant)


def test_the_lock_goes_to_the_oldest_living_waiter_who_is_told(bench: Bench) -> None:
    bench.wait("anna")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.wait("carl", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == Reaped(holders=1)
    assert (bench.holders(), bench.pushed, bench.waiters()) == (["ben"], ["ben"], ["carl"])


def test_all_iterations_of_a_map_leave_and_none_is_handed_the_lock(bench: Bench) -> None:
    for name in ("anna", "abe", "zita", "zoe"):
        bench.wait(name)
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == Reaped(holders=1, waiters=3)
    assert (bench.holders(), bench.pushed, bench.waiters()) == (["ben"], ["ben"], [])


def test_without_the_waiters_going_first_the_dead_are_handed_the_lock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    monkeypatch.setattr("fairlock.store.reap._stop_waiting", lambda _context, _claim: False)
    for name in ("anna", "zita"):
        bench.wait(name)
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    bench.reap()
    assert bench.pushed == ["zita", "ben"]


def test_several_locks_of_one_execution_are_all_freed(bench: Bench) -> None:
    for lock_name in ("a", "b", "c"):
        bench.wait("anna", lock_name=lock_name)
    bench.wait("ben", lock_name="d", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == Reaped(holders=3)
    assert [bench.holders(name) for name in ("a", "b", "c", "d")] == [[], [], [], ["ben"]]


def test_locks_of_other_executions_and_of_direct_callers_are_untouched(bench: Bench) -> None:
    bench.wait("anna", limit=3)
    bench.wait("ben", limit=3, execution_arn=OTHER_RUN)
    bench.wait("carl", limit=3, execution_arn=None)
    bench.end()
    bench.reap()
    bench.reap(second=True)
    assert bench.holders() == ["ben", "carl"]


def test_a_lock_that_was_released_and_granted_to_another_is_untouched(bench: Bench) -> None:
    bench.wait("anna")
    bench.store().release(release("anna", execution_arn=RUN))
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == bench.reap(second=True) == Reaped()
    assert bench.holders() == ["ben"]


@pytest.mark.parametrize(
    "passes",
    [(False,), (True,), (False, True), (True, False), (False, False), (True, True, False, True)],
    ids=str,
)
def test_passes_may_come_twice_late_and_in_any_order(
    bench: Bench, passes: tuple[bool, ...]
) -> None:
    bench.wait("anna")
    bench.wait("zita")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    reaped = [bench.reap(second=second) for second in passes]
    assert reaped == [Reaped(holders=1, waiters=1), *[Reaped()] * (len(passes) - 1)]
    bench.clock.advance(3600)
    assert (bench.reap(), bench.reap(second=True)) == (Reaped(), Reaped())
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben"])


def test_events_of_two_executions_may_come_in_reverse_order(bench: Bench) -> None:
    bench.wait("anna")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.wait("carl", execution_arn=None)
    bench.end(RUN)
    bench.end(OTHER_RUN)
    assert bench.reap(OTHER_RUN) == Reaped(waiters=1)
    assert bench.reap(RUN) == Reaped(holders=1)
    assert (bench.holders(), bench.pushed) == (["carl"], ["carl"])


def test_an_execution_without_claims_is_not_even_asked_about(bench: Bench) -> None:
    assert bench.reap() == bench.reap(second=True) == Reaped()
    assert bench.workflows.described == []


def test_after_two_passes_nothing_is_asked_any_more(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    bench.reap()
    bench.reap(second=True)
    assert len(bench.workflows.described) == 2
    assert bench.reap(second=True) == Reaped()
    assert len(bench.workflows.described) == 2


def test_claims_of_the_dead_are_kept_as_long_as_they_can_be_redriven(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    bench.reap()
    bench.reap(second=True)
    (claim,) = bench.claims()
    assert int(claim["expiry_time"]["N"]) == bench.clock.now_ms // 1000 + DAYS_15


def test_a_redriven_execution_is_left_alone(bench: Bench) -> None:
    bench.wait("anna")
    bench.executions[RUN] = Execution(Liveness.RUNNING, redrives=1)
    assert bench.reap() == Reaped()
    assert bench.holders() == ["anna"]


def test_an_execution_that_step_functions_has_forgotten_is_over(bench: Bench) -> None:
    bench.wait("anna")
    bench.executions[RUN] = Execution(Liveness.OVER)
    assert bench.reap(redrives=2) == Reaped(holders=1)


def test_if_step_functions_does_not_say_nothing_is_freed_and_the_pass_fails(bench: Bench) -> None:
    bench.wait("anna")
    bench.executions[RUN] = Execution(Liveness.UNKNOWN)
    with pytest.raises(LockStoreUnavailable, match="did not say"):
        bench.reap()
    assert bench.holders() == ["anna"]


def test_a_waiter_with_a_wider_limit_behind_the_dead_gets_the_free_permit(bench: Bench) -> None:
    bench.wait("ben", execution_arn=OTHER_RUN, limit=2)
    bench.wait("anna")
    bench.wait("carl", execution_arn=OTHER_RUN, limit=2)
    bench.end()
    assert bench.reap() == Reaped(waiters=1)
    assert (bench.holders(), bench.pushed) == (["ben", "carl"], ["carl"])


def test_a_lock_whose_name_reads_like_another_claim_is_its_own(bench: Bench) -> None:
    bench.wait("anna", lock_name=f"{LOCK}#x")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == Reaped(holders=1)
    assert (bench.holders(f"{LOCK}#x"), bench.holders()) == ([], ["ben"])


def test_a_pass_that_has_no_time_left_asks_no_one(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    over = RetryBudget(clock=bench.clock, deadline=bench.clock.monotonic())
    client = FaultyTable(bench.client)
    assert bench.reap(client=client, retry_budget=over) == Reaped(complete=False)
    assert (client.calls, bench.workflows.described) == ([], [])
