"""Many callers at the same moment, over HTTP, on a bed that has shown to be atomic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from fairlock.protocol.schema import lock_key
from tests.e2e.direct.functions import CALLERS, Functions, Json, unique

Result = TypeVar("Result")
LONGEST_ROUND_SECONDS = 60
ROUNDS = 50
SEMAPHORE_ROUNDS = 10


@dataclass(frozen=True)
class Crowd:
    """Threads that do something at the same moment."""

    pool: ThreadPoolExecutor
    barrier: threading.Barrier

    def meet(self) -> None:
        """Wait until all are here."""
        self.barrier.wait(timeout=LONGEST_ROUND_SECONDS)

    def at_once(self, act: Callable[[int], Result]) -> list[Result]:
        def start_together(number: int) -> Result:
            self.meet()
            return act(number)

        return list(self.pool.map(start_together, range(CALLERS)))


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    with ThreadPoolExecutor(CALLERS) as pool:
        yield Crowd(pool, threading.Barrier(CALLERS))


def add_one(functions: Functions, counter: str) -> int:
    response = functions.dynamodb.update_item(
        TableName=functions.table,
        Key=lock_key(counter),
        UpdateExpression="ADD #count :one",
        ExpressionAttributeNames={"#count": "count"},
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues="UPDATED_NEW",
    )
    return int(response["Attributes"]["count"]["N"])


def read_then_add_one(functions: Functions, crowd: Crowd, counter: str) -> int:
    key = lock_key(counter)
    found = functions.dynamodb.get_item(TableName=functions.table, Key=key, ConsistentRead=True)
    crowd.meet()  # all have read before the first one writes
    count = int(found.get("Item", {}).get("count", {"N": "0"})["N"]) + 1
    item: dict[str, Any] = {**key, "count": {"N": str(count)}}
    functions.dynamodb.put_item(TableName=functions.table, Item=item)
    return count


def counted(crowd: Crowd, add: Callable[[], int], rounds: int) -> list[int]:
    return [count for _ in range(rounds) for count in crowd.at_once(lambda _: add())]


@pytest.fixture(scope="module")
def atomic_bed(functions: Functions, crowd: Crowd) -> None:
    """Without this, what follows would say nothing about the protocol."""
    counter = unique("counter")
    counts = counted(crowd, lambda: add_one(functions, counter), rounds=20)
    assert sorted(counts) == list(range(1, 20 * CALLERS + 1))


def test_the_check_of_the_bed_notices_a_counter_that_is_not_atomic(
    functions: Functions, crowd: Crowd
) -> None:
    counter = unique("racy-counter")
    counts = counted(crowd, lambda: read_then_add_one(functions, crowd, counter), rounds=1)
    assert counts == [1] * CALLERS


@pytest.fixture(scope="module")
def warm(functions: Functions, crowd: Crowd) -> None:
    """Execution environments for all callers, made a few at a time.

    All cold starts at once would take two cores longer than the functions' timeout.
    """
    for callers in range(4, CALLERS + 1, 4):
        event = {"lock_name": unique("warm-up"), "limit": 100}
        crowd.at_once(
            lambda number: number < callers and functions.invoke("acquire", event)  # noqa: B023 - done within the round
        )


def acquire_until_answered(functions: Functions, event: Mapping[str, object]) -> Json:
    """A call that timed out because the bed is too busy is repeated, as the contract allows."""
    while True:
        invoked = functions.invoke("acquire", event)
        if invoked.error != "Sandbox.Timedout":
            assert invoked.error is None, invoked.payload
            return invoked.payload


def one_round(functions: Functions, crowd: Crowd, lock_name: str, limit: int) -> list[Json]:
    """All acquire at once; the winners release. Returns the winners' grants."""
    owners = [unique("owner") for _ in range(CALLERS)]
    answers = crowd.at_once(
        lambda number: acquire_until_answered(
            functions, {"lock_name": lock_name, "owner_id": owners[number], "limit": limit}
        )
    )
    grants = [answer for answer in answers if answer["acquired"]]
    refusals = [answer["reason"] for answer in answers if not answer["acquired"]]
    assert set(refusals) <= {"HELD"}
    for grant in grants:
        named = {"lock_name": lock_name, "owner_id": grant["owner_id"]}
        assert functions.ask("release", named)["released"]
    return grants


@pytest.mark.usefixtures("atomic_bed", "warm")
def test_of_all_who_acquire_at_once_one_wins_each_of_50_rounds(
    functions: Functions, crowd: Crowd
) -> None:
    lock_name = unique("one-winner")
    rounds = [one_round(functions, crowd, lock_name, limit=1) for _ in range(ROUNDS)]
    assert [len(grants) for grants in rounds] == [1] * ROUNDS
    tokens = [grant["fencing_token"] for (grant,) in rounds]
    assert tokens == [tokens[0] + number for number in range(ROUNDS)]


@pytest.mark.usefixtures("atomic_bed", "warm")
def test_of_all_who_acquire_at_once_five_win_if_the_limit_is_five(
    functions: Functions, crowd: Crowd
) -> None:
    lock_name = unique("five-winners")
    rounds = [one_round(functions, crowd, lock_name, limit=5) for _ in range(SEMAPHORE_ROUNDS)]
    assert [len(grants) for grants in rounds] == [5] * SEMAPHORE_ROUNDS
    tokens = [sorted(grant["fencing_token"] for grant in grants) for grants in rounds]
    everything = [token for of_round in tokens for token in of_round]
    assert everything == list(range(everything[0], everything[0] + 5 * SEMAPHORE_ROUNDS))


@pytest.mark.usefixtures("atomic_bed")
def test_without_the_condition_of_the_write_several_win(functions: Functions, crowd: Crowd) -> None:
    """The negative control: read whether the lock is free, then take it."""
    lock_name = unique("read-then-take")

    def read_then_take(_: int) -> bool:
        key = lock_key(lock_name)
        found = functions.dynamodb.get_item(TableName=functions.table, Key=key, ConsistentRead=True)
        crowd.meet()  # all have read before the first one writes
        if "Item" in found:
            return False
        functions.dynamodb.put_item(TableName=functions.table, Item=dict(key))
        return True

    assert sum(crowd.at_once(read_then_take)) == CALLERS
