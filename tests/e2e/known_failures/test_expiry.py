"""The attribute by which DynamoDB removes what no one uses any more."""

from __future__ import annotations

import time

import pytest

from fairlock.protocol.schema import TTL_ATTRIBUTE, WAITER_PREFIX, partition_of
from tests.e2e.deployment import wait_until
from tests.e2e.known_failures.lock import Lock

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
