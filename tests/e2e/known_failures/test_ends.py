"""What the known ways get wrong, and a guard does not: deaths, leases that end, waits."""

from __future__ import annotations

import time

import pytest

from fairlock.clock import over_at_ms, stored_end_ms
from fairlock.protocol.schema import TTL_ATTRIBUTE, WAITER_PREFIX, partition_of
from tests.e2e.deployment import wait_until
from tests.e2e.known_failures.lock import LEASE_SECONDS, Lock
from tests.e2e.known_failures.scenarios import FOR_EVER_SECONDS, OVERRUN_SECONDS, Freed
from tests.e2e.scenario_runs import ScenarioRuns

# The attribute by which DynamoDB removes what no one uses any more.

LONGEST_LEASE_SECONDS = 12 * 3600
WEEK_SECONDS = 7 * 86_400
TWO_YEARS_SECONDS = 2 * 365 * 86_400
"""An execution may run for one, and its lock must not be removed under it."""


def expiry(item: dict[str, dict[str, str]]) -> int:
    return int(item[TTL_ATTRIBUTE]["N"])


def removed_meanwhile(lock: Lock, expiry_time: int) -> bool:
    """Whether TTL removes the lock's item, which expires as said, before one that surely goes."""
    dynamodb = lock.dynamodb
    other = Lock(lock.deployment)
    for one, seconds in ((lock, expiry_time), (other, int(time.time()) - 1)):
        one.release(one.take())
        dynamodb.put_item(
            TableName=one.table_name, Item={**one.item(), TTL_ATTRIBUTE: {"N": str(seconds)}}
        )
    wait_until(lambda: other.item() == {})
    return lock.item() == {}


def test_what_a_workflow_leaves_in_the_table_expires_in_time_and_not_too_soon(
    lock: Lock,
) -> None:
    holder = lock.take()
    execution = lock.start("Guarded", seconds=0)
    wait_until(lambda: lock.deployment.waiters(lock.name) == [execution])
    [waiter] = lock.dynamodb.query(
        TableName=lock.table_name,
        KeyConditionExpression="pk = :lock AND begins_with(sk, :waiter)",
        ExpressionAttributeValues={
            ":lock": {"S": partition_of(lock.name)},
            ":waiter": {"S": WAITER_PREFIX},
        },
    )["Items"]
    contended = lock.item()
    lock.release(holder)
    lock.ended(execution)
    now = int(time.time())
    place_ends = int(waiter["expires_at_ms"]["N"]) // 1000
    assert now < place_ends < expiry(waiter) < now + WEEK_SECONDS
    for item in (contended, lock.item()):
        assert now + LONGEST_LEASE_SECONDS < expiry(item) < now + TWO_YEARS_SECONDS


@pytest.mark.parametrize(("unit", "is_removed"), [(1, True), (1000, False)])
def test_an_expiry_of_the_past_removes_in_seconds_and_never_in_milliseconds(
    lock: Lock, unit: int, *, is_removed: bool
) -> None:
    """TTL takes the number for seconds: in milliseconds the past is far in the future."""
    assert removed_meanwhile(lock, (int(time.time()) - 1) * unit) is is_removed


# Waiting: not for oneself, not for ever, and not behind newcomers.

MOST_TRIES = 5


def test_a_repeated_acquire_finds_the_grant_whose_reply_was_lost(lock: Lock) -> None:
    execution = lock.start("LostReply", seconds=0)
    assert lock.ended(execution).status == "SUCCEEDED"
    assert set(lock.deployment.failed_calls(execution)) == {"ConnectionError"}
    assert "Guard: Wait" not in lock.deployment.states_entered(execution)
    assert lock.state().held == 0


def test_a_new_owner_for_the_repeated_acquire_waits_for_itself(failure_runs: ScenarioRuns) -> None:
    seen = failure_runs.only("waits for itself")
    assert seen.holders == [seen.execution]
    assert (seen.is_running, seen.was_inside) == (True, False)


def test_a_wait_ends_after_max_wait_in_an_error_of_its_own(failure_runs: ScenarioRuns) -> None:
    ended = failure_runs.only("gave up").ended
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")


def test_a_chain_without_max_wait_waits_on(failure_runs: ScenarioRuns) -> None:
    seen = failure_runs.only("gave up")
    assert seen.other_is_running
    assert seen.other_tries > 1


def test_a_newcomer_does_not_overtake_a_workflow_in_the_queue(lock: Lock) -> None:
    holder = lock.take()
    execution = lock.start("Guarded", seconds=FOR_EVER_SECONDS)
    wait_until(lambda: lock.deployment.waiters(lock.name) == [execution])
    lock.release(holder)
    assert lock.ask()["reason"] == "HELD"
    assert lock.deployment.holders(lock.name) == [execution]
    lock.deployment.stop(execution)


def test_a_newcomer_overtakes_a_workflow_that_polls(lock: Lock) -> None:
    assert any(overtakes(lock) for _ in range(MOST_TRIES))


def overtakes(lock: Lock) -> bool:
    """Whether a newcomer was quicker than a workflow that came long before."""
    holder = lock.take()
    execution = lock.start("Polling", seconds=0)
    wait_until(lambda: "Guard: Wait" in lock.deployment.states_entered(execution))
    lock.release(holder)
    answer = lock.ask()
    if answer["acquired"]:
        lock.release(answer["owner_id"])
    assert lock.ended(execution).status == "SUCCEEDED"
    return bool(answer["acquired"])


# Work that takes longer than its lease.

OVER_AFTER_MS = over_at_ms(stored_end_ms(0, LEASE_SECONDS * 1000))


def test_work_that_overruns_its_lease_is_not_robbed_and_its_result_stands(
    failure_runs: ScenarioRuns,
) -> None:
    overrun = failure_runs.only("overrun")
    assert overrun.ended.status == "SUCCEEDED"
    span = overrun.ended.output
    assert span["ended_ms"] - span["began_ms"] >= OVERRUN_SECONDS * 1000 > OVER_AFTER_MS
    assert len(overrun.knocks.leases_seen) > 1, "its lease was never over"
    assert overrun.knocks.granted_at_ms >= span["ended_ms"]


def test_work_that_overruns_its_lease_and_fails_keeps_its_own_error(
    failure_runs: ScenarioRuns,
) -> None:
    overrun = failure_runs.only("failing overrun")
    assert (overrun.ended.status, overrun.ended.error) == ("FAILED", "CardDeclined")
    failed_at_ms = int(overrun.ended.cause or "")
    assert len(overrun.knocks.leases_seen) > 1, "its lease was never over"
    assert overrun.knocks.granted_at_ms >= failed_at_ms


def test_a_holder_whose_execution_no_one_knows_is_robbed_when_its_lease_is_over(
    failure_runs: ScenarioRuns,
) -> None:
    robbed = failure_runs.only("robbed")
    span, release = robbed.ended.output["work"], robbed.ended.output["release"]
    # None, where a busy machine knocked for the first time when the lease was over.
    assert len(robbed.knocks.leases_seen) <= 1, "its lease was extended"
    assert robbed.knocks.granted_at_ms < span["ended_ms"]
    assert (release["released"], release["reason"]) == (False, "NOT_HELD")


# Workflows that die where nothing inside them can release.
#
# What becomes of their locks if no event tells the reaper is in `e2e/lifetimes/test_unnoticed.py`.

SLACK_MS = 25_000
"""For a busy machine; less than until the reaper's second pass."""


@pytest.fixture(params=["stopped", "acquired late"])
def freed(failure_runs: ScenarioRuns, request: pytest.FixtureRequest) -> Freed:
    """After a stop in the middle of the work, and after an acquire that landed after the stop."""
    freed: Freed = failure_runs.only(request.param)
    return freed


def test_the_lock_of_a_stopped_workflow_is_free_before_its_lease_is_over(
    failure_runs: ScenarioRuns,
) -> None:
    freed = failure_runs.only("stopped")
    assert freed.status == "ABORTED"
    assert freed.knocks.granted_at_ms < freed.lease_ends_at_ms


def test_a_lock_acquired_late_for_a_dead_workflow_is_free_when_its_lease_is_over(
    failure_runs: ScenarioRuns,
) -> None:
    """Between the reaper's two passes, when another caller asks."""
    freed = failure_runs.only("acquired late")
    assert freed.status == "ABORTED"
    over_ms = over_at_ms(freed.lease_ends_at_ms)
    assert over_ms < freed.knocks.granted_at_ms < over_ms + SLACK_MS
    assert len(freed.knocks.leases_seen) <= 1, "its lease was extended"


def test_while_the_workflow_runs_its_lock_is_not_free(freed: Freed) -> None:
    assert (freed.meanwhile["acquired"], freed.meanwhile["reason"]) == (False, "HELD")
    assert [holder["owner_name"] for holder in freed.meanwhile["holders"]] == [
        freed.other_execution
    ]
