"""The write was done and its reply got lost: the repeat gives the answer that got lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import Grant, NotHeld, Refusal, RefusalReason, Released
from tests.support import LOCK, FakeClock, acquire, heartbeat, owner, release, store_over
from tests.support.faulty_table import FaultyTable, lose, repeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def test_an_acquire_whose_reply_was_lost_is_granted_again_under_the_same_token(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("anna"))
    entered_ms = clock.now_ms
    clock.advance(3)
    answer = store_over(dynamodb, clock).acquire(acquire("anna"))
    assert answer == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=entered_ms * 1000 + 1,
        lease_ms=60_000,
        acquired_at_ms=entered_ms,
        expires_at_ms=entered_ms + 61_500,
        repeated=True,
    )


def test_a_grant_whose_reply_was_lost_keeps_others_out(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("anna"))
    answer = store_over(dynamodb, clock).acquire(acquire("ben"))
    assert isinstance(answer, Refusal)
    assert [holder.owner_name for holder in answer.holders] == ["anna"]


def test_a_takeover_whose_reply_was_lost_is_granted_again_under_the_same_token(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    first = store.acquire(acquire("anna", lease_ms=1_000))
    assert isinstance(first, Grant)
    clock.advance(10)
    faulty = FaultyTable(dynamodb, lose(2))
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("ben"))
    answer = store.acquire(acquire("ben"))
    assert isinstance(answer, Grant)
    assert (answer.fencing_token, answer.repeated) == (first.fencing_token + 1, True)


def test_a_heartbeat_whose_reply_was_lost_is_no_lost_lock(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    granted = store.acquire(acquire("anna"))
    assert isinstance(granted, Grant)
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).heartbeat(heartbeat("anna"))
    clock.advance(1)
    assert store.heartbeat(heartbeat("anna")) == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=granted.fencing_token,
        lease_ms=60_000,
        acquired_at_ms=granted.acquired_at_ms,
        expires_at_ms=clock.now_ms + 61_500,
    )


def test_a_release_whose_reply_was_lost_is_released_again_until_another_owner_releases(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna"))
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).release(release("anna"))
    repeated = Released(lock_name=LOCK, owner_id=owner("anna"), held_ms=None)
    assert store.release(release("anna")) == repeated
    store.acquire(acquire("ben"))
    assert store.release(release("anna")) == repeated
    store.release(release("ben"))
    assert store.release(release("anna")) == NotHeld(lock_name=LOCK, owner_id=owner("anna"))


def test_a_lost_refusal_is_refused_again(dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna"))
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("ben"))
    answer = store.acquire(acquire("ben"))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.HELD


def test_a_write_that_botocore_repeats_by_itself_is_answered_as_if_sent_once(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    once = store_over(dynamodb, clock)
    twice = store_over(FaultyTable(dynamodb, repeat()), clock)
    here, there = {"lock_name": "sent-once"}, {"lock_name": "sent-twice"}

    first = once.acquire(acquire("anna", **here))
    again = twice.acquire(acquire("anna", **there))
    assert isinstance(first, Grant)
    assert again == replace(first, lock_name="sent-twice", repeated=True)

    renewed = once.heartbeat(heartbeat("anna", **here))
    assert isinstance(renewed, Grant)
    assert twice.heartbeat(heartbeat("anna", **there)) == replace(renewed, lock_name="sent-twice")

    clock.advance(100)
    taken = once.acquire(acquire("ben", **here))
    assert isinstance(taken, Grant)
    taken_twice = twice.acquire(acquire("ben", **there))
    assert isinstance(taken_twice, Grant)
    assert taken_twice.fencing_token == taken.fencing_token

    assert isinstance(once.release(release("ben", **here)), Released)
    assert isinstance(twice.release(release("ben", **there)), Released)
    assert isinstance(twice.acquire(acquire("carl", **there)), Grant)
