"""Many clients, one lock, a server whose writes are atomic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest

from fairlock import Lock, LockClient
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from testbed.localaws import LocalAws
from tests.unit.client.support.wire import Together, Wire, dynamodb_of

CLIENTS = 6
ROUNDS = 5


class Counter:
    """A number in the table that is read and written back in two requests."""

    def __init__(self, aws: LocalAws, table_name: str) -> None:
        self._client = aws.client("dynamodb")
        self._table_name = table_name
        self._key = {
            PARTITION_KEY: {"S": f"counter-{uuid.uuid4()}"},
            SORT_KEY: {"S": "COUNTER"},
        }

    def value(self) -> int:
        found = self._client.get_item(
            TableName=self._table_name, Key=self._key, ConsistentRead=True
        )
        return int(found["Item"]["value"]["N"]) if "Item" in found else 0

    def increment(self) -> None:
        value = {"N": str(self.value() + 1)}
        self._client.put_item(TableName=self._table_name, Item={**self._key, "value": value})


@pytest.mark.parametrize("locked", [True, False])
def test_increments_in_two_steps_survive_exactly_if_each_is_locked(
    aws: LocalAws, lock_table: str, *, locked: bool
) -> None:
    counter = Counter(aws, lock_table)
    tokens: list[int] = []

    def work() -> None:
        with LockClient(lock_table, client=dynamodb_of(aws), lease=10) as locks:
            for _ in range(ROUNDS):
                block = locks.hold(f"counting-{locked}", max_wait=60) if locked else nullcontext()
                with block as lock:
                    counter.increment()
                    if lock is not None:
                        tokens.append(lock.fencing_token)

    Together().run(*[work] * CLIENTS)
    everything = CLIENTS * ROUNDS
    assert (counter.value() == everything) is locked
    assert tokens == sorted(set(tokens))
    assert len(tokens) == (everything if locked else 0)


def test_clients_get_the_lock_in_the_order_in_which_they_asked(
    aws: LocalAws, lock_table: str
) -> None:
    order: list[int] = []
    name = "in-order"
    with LockClient(lock_table, client=dynamodb_of(aws), lease=30) as locks:
        first = locks.acquire(name)

        def wait_for_it(number: int) -> None:
            with LockClient(lock_table, client=dynamodb_of(aws), lease=30) as mine:
                until(lambda: waiting(aws, lock_table, name) == number)
                with mine.hold(name, max_wait=60):
                    order.append(number)

        def leave() -> None:
            until(lambda: waiting(aws, lock_table, name) == CLIENTS)
            first.release()

        Together().run(leave, *[partial(wait_for_it, number) for number in range(CLIENTS)])
    assert order == list(range(CLIENTS))


def test_requests_on_the_wire_are_one_each_and_a_waiter_only_reads(
    aws: LocalAws, lock_table: str
) -> None:
    mine, theirs = Wire(), Wire()
    holder = LockClient(lock_table, client=dynamodb_of(aws, mine), lease=30)
    waiter = LockClient(lock_table, client=dynamodb_of(aws, theirs), lease=30)
    got: list[Lock] = []
    with holder, waiter:
        lock = holder.acquire("on-the-wire")
        assert mine.sent == ["UpdateItem"]
        lock.heartbeat()
        assert mine.sent == ["UpdateItem"] * 2

        def leave() -> None:
            until(lambda: len(theirs.sent) >= 12)
            lock.release()

        Together().run(leave, lambda: got.append(waiter.acquire("on-the-wire", max_wait=60)))
        join = ["Query", "TransactWriteItems", "UpdateItem"]
        assert theirs.sent[:4] == ["UpdateItem", *join]
        assert set(theirs.sent[4:]) == {"Query"}
        theirs.sent.clear()
        assert got[0].release() is True
        assert theirs.sent == ["Query", "UpdateItem"]  # No one waits: the queue is closed.


def waiting(aws: LocalAws, table_name: str, lock_name: str) -> int:
    """How many wait for a lock."""
    found = aws.client("dynamodb").query(
        TableName=table_name,
        KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
        ExpressionAttributeValues={
            ":pk": {"S": f"LOCK#{lock_name}"},
            ":prefix": {"S": "WAITER#"},
        },
        ConsistentRead=True,
    )
    return int(found["Count"])


def until(is_so: Callable[[], bool], *, seconds: float = 30) -> None:
    """Looks until it is so."""
    ends_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends_at, "it never came"
        time.sleep(0.02)
