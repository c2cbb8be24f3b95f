"""The fencing token that a caller is told is the one that the lock's item has.

A grant computes it in the item, and its sender computes it again from what the token was before.
`make second-engine` asks DynamoDB Local, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlock.errors import LockItemMalformed
from fairlock.protocol.model import ForceReleaseRequest
from fairlock.protocol.outcomes import Grant
from fairlock.protocol.schema import lock_key
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, TABLE, FakeClock, acquire, release, store_over
from tests.support.operations import Operations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Scene = Callable[[Operations, "DynamoDBClient", FakeClock], None]


def never_used(_store: Operations, _dynamodb: DynamoDBClient, _clock: FakeClock) -> None:
    """No one has held the lock."""


def used(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    for name in ("anna", "ben", "carl"):
        store.acquire(acquire(name))
        store.release(release(name))
        clock.advance(1)


def with_other_holders(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    for name in ("anna", "ben"):
        store.acquire(acquire(name, limit=5))
        clock.advance(1)


def with_another_limit(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    """The first attempt fails, the second one goes by what was seen."""
    store.acquire(acquire("anna", limit=7))
    clock.advance(1)


def released_by_force(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    """The same owner_id is granted the lock again."""
    first = store.acquire(acquire("dora", limit=5))
    assert isinstance(first, Grant)
    store.force_release(
        ForceReleaseRequest(
            lock_name=LOCK, fencing_token=first.fencing_token, requested_by="ben", reason="test"
        )
    )
    clock.advance(1)


def with_holders_to_take_over(
    store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    for number in range(5):
        store.acquire(acquire(f"late-{number}", limit=5, lease_ms=1_000))
    clock.advance(10)


def removed_by_ttl(store: Operations, dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    used(store, dynamodb, clock)
    clock.advance(49 * 3600)
    dynamodb.delete_item(TableName=TABLE, Key=lock_key(LOCK))


def waited_for_before_it_was_used(
    store: Operations, dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    """The item has no token: a waiter has come and gone since TTL removed it."""
    removed_by_ttl(store, dynamodb, clock)
    item = {**lock_key(LOCK), "wait_seq": {"N": "3"}, "expiry_time": {"N": "1"}}
    dynamodb.put_item(TableName=TABLE, Item=item)


SCENES = [
    never_used,
    used,
    with_other_holders,
    with_another_limit,
    released_by_force,
    with_holders_to_take_over,
    removed_by_ttl,
    waited_for_before_it_was_used,
]


@dataclass
class SilentTable(MemoryTable):
    """Answers nothing of what an update has changed."""

    def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        answer = super().update_item(**request)
        return {} if request["ReturnValues"] == "UPDATED_OLD" else answer


def told_and_stored(dynamodb: DynamoDBClient, scene: Scene) -> tuple[int, int]:
    """The token of a grant, and what a second call with the same owner_id reads in the item."""
    clock = FakeClock()
    store = store_over(dynamodb, clock)
    scene(store, dynamodb, clock)
    first = store.acquire(acquire("dora", limit=5))
    repeated = store.acquire(acquire("dora", limit=5))
    assert isinstance(first, Grant)
    assert isinstance(repeated, Grant)
    assert repeated.repeated
    times = first.acquired_at_ms, first.expires_at_ms, first.lease_ms
    assert times == (repeated.acquired_at_ms, repeated.expires_at_ms, repeated.lease_ms)
    assert store.read_state(LOCK).fencing_token == repeated.fencing_token
    return first.fencing_token, repeated.fencing_token


@pytest.mark.parametrize("scene", SCENES)
def test_the_token_that_a_caller_is_told_is_the_stored_one(
    dynamodb: DynamoDBClient, scene: Scene
) -> None:
    told, stored = told_and_stored(dynamodb, scene)
    assert told == stored


def test_an_engine_that_does_not_answer_would_be_noticed() -> None:
    told, stored = told_and_stored(cast("DynamoDBClient", SilentTable()), used)
    assert told != stored


def test_a_token_that_is_no_number_is_a_malformed_item() -> None:
    class Odd(MemoryTable):
        def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - same
            super().update_item(**request)
            return {"Attributes": {"fencing_token": {"S": "7"}}}

    with pytest.raises(LockItemMalformed):
        store_over(Odd(), FakeClock()).acquire(acquire("anna"))


def tokens_around_a_deletion(clock: FakeClock, *, seconds: float) -> tuple[int, int]:
    """The item began by a clock that is 5 minutes ahead; the second token is of the next item."""
    table = MemoryTable()
    clock.skew_ms = 300_000
    old = store_over(table, clock).acquire(acquire("anna"))
    table.items.clear()
    clock.skew_ms = 0
    clock.advance(seconds)
    new = store_over(table, clock).acquire(acquire("ben"))
    assert isinstance(old, Grant)
    assert isinstance(new, Grant)
    return old.fencing_token, new.fencing_token


def test_five_minutes_after_an_item_was_deleted_by_hand_its_next_token_is_larger(
    clock: FakeClock,
) -> None:
    old, new = tokens_around_a_deletion(clock, seconds=301)
    assert new > old


def test_at_once_it_is_smaller_if_the_clock_that_began_the_old_item_was_ahead(
    clock: FakeClock,
) -> None:
    old, new = tokens_around_a_deletion(clock, seconds=0)
    assert new < old
