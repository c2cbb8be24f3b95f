"""Many waiters on one lock, on a DynamoDB that serves them at the same time."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued
from testbed.localaws import LocalAws
from tests.behaviour.waiters import Waiters, all_at_once
from tests.support import OTHER_DYNAMODB, TABLE, create_lock_table, owner

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def dynamodb(request: pytest.FixtureRequest) -> Iterator[DynamoDBClient]:
    """On the embedded DynamoDB, which serves many clients at once and is atomic."""
    client: DynamoDBClient | None = request.config.stash.get(OTHER_DYNAMODB, None)
    if client is None:
        aws: LocalAws = request.getfixturevalue("aws")
        client = aws.client("dynamodb", max_pool_connections=64)
    create_lock_table(client)
    yield client
    client.delete_table(TableName=TABLE)


@pytest.mark.parametrize("size", [10, 40])
def test_many_waiters_are_granted_in_the_order_of_queueing_at_a_constant_price(
    dynamodb: DynamoDBClient, size: int
) -> None:
    waiters = Waiters(dynamodb, f"waiters-{size}")
    assert isinstance(waiters.enter("first"), Grant)
    names = [f"waiter-{i:03d}" for i in range(size)]
    joins = [functools.partial(waiters.enter, name) for name in names]
    answers = all_at_once(joins, threads=10)
    assert all(isinstance(answer, Queued) for answer in answers)
    in_order = sorted(answers, key=lambda answer: (answer.entered_at_ms, answer.owner_id))
    waiters.requests.clear()
    for departing in ["first", *(answer.owner_id.strip("-") for answer in in_order)]:
        waiters.leave(departing)
    assert [owner(name) for name in waiters.granted] == [answer.owner_id for answer in in_order]
    assert waiters.tokens == sorted(set(waiters.tokens))
    hand_off = {"update_item": 1, "query": 1, "transact_write_items": 1}
    last = {"update_item": 2, "query": 1}  # no one waits: leave_without_successor
    expected = {name: count * size + last.get(name, 0) for name, count in hand_off.items()}
    assert Counter(waiters.requests) == expected


def test_entering_and_leaving_at_the_same_time_loses_no_one(dynamodb: DynamoDBClient) -> None:
    waiters = Waiters(dynamodb, "turmoil", limit=3)
    inside = _Inside(waiters, limit=3)
    visits = [functools.partial(inside.visit, f"visitor-{i:03d}") for i in range(36)]
    all_at_once(visits, threads=12)
    inside.drain()
    assert inside.visited == {f"visitor-{i:03d}" for i in range(36)}
    assert 1 < inside.most <= 3
    assert len(waiters.tokens) == len(set(waiters.tokens))
    state = dynamodb.get_item(
        TableName=TABLE, Key={"pk": {"S": "LOCK#turmoil"}, "sk": {"S": "STATE"}}
    )["Item"]
    assert (state["held"], state.get("contended")) == ({"N": "0"}, None)


class _Inside:
    """Visitors that hold the lock, by the grants that were answered and pushed."""

    def __init__(self, waiters: Waiters, *, limit: int) -> None:
        self.waiters = waiters
        self.limit = limit
        self.visited: set[str] = set()
        self.most = 0

    def visit(self, name: str) -> None:
        """Enters; then lets a visitor leave that was told meanwhile: entries and exits mix."""
        answer = self.waiters.enter(name)
        if isinstance(answer, Grant):
            self._go_in_and_out(name)
        self._serve_one()

    def drain(self) -> None:
        """Lets the visitors in and out that were handed the lock."""
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        with self.waiters.mutex:
            told = [name for name in self.waiters.granted if name not in self.visited]
            if not told:
                return False
            self.visited.add(told[0])
        self._go_in_and_out(told[0])
        return True

    def _go_in_and_out(self, name: str) -> None:
        self.visited.add(name)
        self.most = max(self.most, self._held())
        self.waiters.leave(name)

    def _held(self) -> int:
        key = {"pk": {"S": f"LOCK#{self.waiters.lock_name}"}, "sk": {"S": "STATE"}}
        item = self.waiters.client.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]
        return int(item["held"]["N"])
