"""Acquire, on a table where no one else moves between two requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlock.protocol.model import Liveness
from fairlock.protocol.outcomes import Grant, Queued, Refusal, RefusalReason, Released
from tests.support import LOCK, START_MS, FakeClock, acquire, heartbeat, owner, release, store_over
from tests.support.faulty_table import FaultyTable
from tests.support.workflows import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"


def granted(answer: Grant | Queued | Refusal) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def refused(answer: Grant | Queued | Refusal) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def test_the_first_use_of_a_lock_grants_it(dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    answer = store_over(dynamodb, clock).acquire(acquire("anna", lease_ms=5_000))
    assert answer == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=START_MS * 1000 + 1,
        lease_ms=5_000,
        acquired_at_ms=START_MS,
        expires_at_ms=START_MS + 6_500,
    )


def test_a_held_lock_is_refused_and_the_holder_is_named(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna"))
    answer = refused(store.acquire(acquire("ben")))
    assert answer.reason is RefusalReason.HELD
    assert [h.owner_name for h in answer.holders] == ["anna"]
    assert answer.retry_after_seconds == 1


def test_a_repeated_acquire_returns_the_same_grant(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    first = granted(store.acquire(acquire("anna")))
    clock.advance(1)
    again = granted(store.acquire(acquire("anna")))
    assert again.repeated
    assert (again.fencing_token, again.expires_at_ms) == (first.fencing_token, first.expires_at_ms)


def test_a_repeated_acquire_after_the_lease_renews_it_under_the_same_token(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    first = granted(store.acquire(acquire("anna", lease_ms=5_000)))
    clock.advance(60)
    again = granted(store.acquire(acquire("anna", lease_ms=5_000)))
    assert again.fencing_token == first.fencing_token
    assert again.expires_at_ms == clock.now_ms + 6_500


def test_a_delayed_duplicate_does_not_take_the_lock_again(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna"))
    store.release(release("anna"))
    assert refused(store.acquire(acquire("anna"))).reason is RefusalReason.ALREADY_RELEASED
    assert granted(store.acquire(acquire("ben")))


@pytest.mark.parametrize(("seconds", "free"), [(6.999, False), (7.001, True)])
def test_a_lease_is_over_for_others_only_after_the_clock_tolerance(
    dynamodb: DynamoDBClient, clock: FakeClock, *, seconds: float, free: bool
) -> None:
    store = store_over(dynamodb, clock)
    first = granted(store.acquire(acquire("anna", lease_ms=5_000)))
    clock.advance(seconds)
    answer = store.acquire(acquire("ben", lease_ms=1_000))
    if free:
        assert granted(answer).fencing_token == first.fencing_token + 1
        assert granted(answer).taken_over == 1
    else:
        assert refused(answer).reason is RefusalReason.HELD


def test_the_contenders_own_short_lease_does_not_judge_the_holder(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna", lease_ms=60_000))
    clock.advance(10)
    assert refused(store.acquire(acquire("ben", lease_ms=1_000)))


def test_a_holder_that_was_taken_over_is_told_so_by_heartbeat_and_release(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna", lease_ms=1_000))
    clock.advance(10)
    ben = granted(store.acquire(acquire("ben")))
    assert not hasattr(store.heartbeat(heartbeat("anna")), "fencing_token")
    assert not isinstance(store.release(release("anna")), Released)
    assert granted(store.acquire(acquire("ben"))).fencing_token == ben.fencing_token


def test_a_semaphore_grants_exactly_its_limit(dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    store = store_over(dynamodb, clock)
    answers = [store.acquire(acquire(f"owner-{i}", limit=3)) for i in range(5)]
    assert [isinstance(a, Grant) for a in answers] == [True, True, True, False, False]
    assert [h.owner_name for h in refused(answers[4]).holders] == ["owner-0", "owner-1", "owner-2"]


def test_lowering_the_limit_grants_nothing_until_fewer_are_held(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    for i in range(5):
        granted(store.acquire(acquire(f"owner-{i}", limit=5)))
    for i in range(3):
        assert refused(store.acquire(acquire("late", limit=3)))
        store.release(release(f"owner-{i}"))
    assert granted(store.acquire(acquire("late", limit=3)))


def test_after_a_lowered_limit_as_many_leases_must_be_over_as_permits_are_missing(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("short-1", limit=4, lease_ms=1_000))
    store.acquire(acquire("short-2", limit=4, lease_ms=2_000))
    store.acquire(acquire("long-1", limit=4))
    store.acquire(acquire("long-2", limit=4))
    clock.advance(3.5)
    assert refused(store.acquire(acquire("late", limit=3)))
    clock.advance(1)
    assert granted(store.acquire(acquire("late", limit=3))).taken_over == 2
    assert refused(store.acquire(acquire("later", limit=3)))


def test_tokens_rise_when_ttl_has_removed_the_item(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    before = granted(store.acquire(acquire("anna")))
    store.release(release("anna"))
    clock.advance(49 * 3600)
    dynamodb.delete_item(TableName="locks", Key={"pk": {"S": f"LOCK#{LOCK}"}, "sk": {"S": "STATE"}})
    after = granted(store.acquire(acquire("ben")))
    assert after.fencing_token > before.fencing_token


def test_a_running_workflow_is_not_robbed_but_extended_once_a_lease(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    workflows = FakeWorkflows(runs=Liveness.RUNNING)
    store = store_over(dynamodb, clock, workflows=workflows)
    store.acquire(acquire("anna", lease_ms=5_000, execution_arn=EXECUTION))
    clock.advance(8)
    answers = [refused(store.acquire(acquire(f"contender-{i}"))) for i in range(4)]
    assert [a.holders[0].revision for a in answers] == [2, 2, 2, 2]
    assert workflows.described == [EXECUTION]


def test_the_lock_of_a_workflow_that_is_over_is_taken(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock, workflows=FakeWorkflows(runs=Liveness.OVER))
    store.acquire(acquire("anna", lease_ms=5_000, execution_arn=EXECUTION))
    clock.advance(8)
    assert granted(store.acquire(acquire("ben"))).taken_over == 1


def test_a_workflow_of_which_no_one_knows_keeps_its_lock(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock, workflows=FakeWorkflows(runs=Liveness.UNKNOWN))
    store.acquire(acquire("anna", lease_ms=5_000, execution_arn=EXECUTION))
    clock.advance(8)
    answer = refused(store.acquire(acquire("ben")))
    assert answer.liveness_unknown == 1
    assert [holder.owner_name for holder in store.read_state(LOCK).holders] == ["anna"]


def test_every_operation_is_one_request_and_a_takeover_two(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    client = FaultyTable(dynamodb)
    store = store_over(client, clock)

    def requests_of(operation: object) -> int:
        assert operation
        count = len(client.calls)
        client.calls.clear()
        return count

    assert requests_of(store.acquire(acquire("anna", lease_ms=1_000))) == 1
    assert requests_of(store.acquire(acquire("anna", lease_ms=1_000))) == 1
    assert requests_of(store.acquire(acquire("ben"))) == 1
    assert requests_of(store.heartbeat(heartbeat("anna", lease_ms=1_000))) == 1
    assert requests_of(store.heartbeat(heartbeat("anna"))) == 2, "its lease is not the usual one"
    clock.advance(10)
    assert requests_of(store.acquire(acquire("ben"))) == 2
    assert requests_of(store.release(release("ben"))) == 1
    assert requests_of(store.release(release("ben"))) == 1
    assert requests_of(store.heartbeat(heartbeat("ben"))) == 1
    assert requests_of(store.acquire(acquire("carl"))) == 1
