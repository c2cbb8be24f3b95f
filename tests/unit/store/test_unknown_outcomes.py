"""Refused is not unknown: what DynamoDB did not answer is an error, no grant and no refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.aws.lock_table import ConditionFailed, LockTable, Written
from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable
from fairlock.protocol import schema
from fairlock.protocol.outcomes import Refusal, RefusalReason
from fairlock.store.context import LockContext
from tests.support import TABLE, FakeClock, acquire, heartbeat, moved_clock, release, store_over
from tests.support.faults import THROTTLES, client_error, defects, unknown_outcomes
from tests.support.faulty_table import FaultyTable, fault
from tests.support.operations import Operations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Operation = Callable[[Operations], object]
OPERATIONS: dict[str, Operation] = {
    "acquire": lambda store: store.acquire(acquire("anna")),
    "heartbeat": lambda store: store.heartbeat(heartbeat("anna")),
    "release": lambda store: store.release(release("anna")),
}
operations = pytest.mark.parametrize("operate", OPERATIONS.values(), ids=OPERATIONS.keys())


def items(dynamodb: DynamoDBClient) -> list[Any]:
    return list(dynamodb.scan(TableName=TABLE)["Items"])


@operations
@pytest.mark.parametrize("name", unknown_outcomes())
def test_a_failure_that_says_nothing_about_the_write_is_lock_store_unavailable(
    dynamodb: DynamoDBClient, clock: FakeClock, operate: Operation, name: str
) -> None:
    error = unknown_outcomes()[name]
    store = store_over(FaultyTable(dynamodb, fault(error)), clock)
    with pytest.raises(LockStoreUnavailable, match="repeat the call") as caught:
        operate(store)
    assert caught.value.__cause__ is error


@operations
@pytest.mark.parametrize("name", defects())
def test_a_defect_of_the_set_up_names_the_table_and_what_to_do(
    dynamodb: DynamoDBClient, clock: FakeClock, operate: Operation, name: str
) -> None:
    error = defects()[name]
    error.response["ResponseMetadata"]["RetryAttempts"] = 0
    store = store_over(FaultyTable(dynamodb, fault(error)), clock)
    with pytest.raises(LockStoreMisconfigured, match=f"^lock table '{TABLE}' in us-east-1: ") as e:
        operate(store)
    assert (e.value.table_name, e.value.region, e.value.code) == (TABLE, "us-east-1", name)
    assert e.value.__cause__ is error


@operations
def test_a_repeat_that_is_refused_leaves_the_outcome_of_the_first_sending_unknown(
    dynamodb: DynamoDBClient, clock: FakeClock, operate: Operation
) -> None:
    """The reply to the first sending got lost, and the credentials are over at the second."""
    error = client_error("ExpiredTokenException")
    assert error.response["ResponseMetadata"]["RetryAttempts"] == 2
    with pytest.raises(LockStoreUnavailable, match="the first sending may have been written"):
        operate(store_over(FaultyTable(dynamodb, fault(error)), clock))


@pytest.mark.parametrize("code", THROTTLES)
def test_throttled_on_every_call_is_never_a_grant_and_writes_nothing(
    dynamodb: DynamoDBClient, clock: FakeClock, code: str
) -> None:
    store = store_over(FaultyTable(dynamodb, fault(client_error(code))), clock)
    for _ in range(3):
        with pytest.raises(LockStoreUnavailable):
            store.acquire(acquire("anna"))
    assert items(dynamodb) == []


class NaiveTable(LockTable):
    """Takes every failure for a failed condition."""

    def update(self, update: Any) -> Written | ConditionFailed:  # noqa: ANN401 - passed on only
        try:
            return super().update(update)
        except LockStoreUnavailable:
            return ConditionFailed({schema.HELD: {"N": "1"}}, date_ms=0)


def test_without_the_translation_a_throttle_would_be_reported_as_a_refusal(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    """The negative control: no one holds the lock, and the caller is told that it is held."""
    client: Any = FaultyTable(dynamodb, fault(client_error("InternalServerError", 500)))
    table = NaiveTable(client, TABLE, aws_clock=moved_clock(clock))
    store = Operations(LockContext(table=table))
    answer = store.acquire(acquire("anna"))
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.holders) == (RefusalReason.HELD, ())


def test_a_takeover_that_got_no_answer_is_unknown_too(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store_over(dynamodb, clock).acquire(acquire("anna", lease_ms=1_000))
    before = items(dynamodb)
    clock.advance(10)
    faulty = FaultyTable(dynamodb, fault(client_error("InternalServerError", 500), 2))
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("ben"))
    assert items(dynamodb) == before
