"""The table in memory does what a DynamoDB does: requests of the searches, sent to moto, too."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from fairlock.aws.lock_table import LockTable, Written
from fairlock.protocol.pace import AwsTime, PaceRequest, read_pace, reserve_idle, reserve_next
from fairlock.protocol.schema import pace_key
from fairlock.protocol.table_requests import Update
from fairlock.protocol.waiters import lock_and_oldest_waiters
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.interpreter import Item
from tests.model.contention import transitions as contention
from tests.model.contention.configurations import (
    OLGA,
    PAUL,
    Configuration,
    anna,
    ben,
    carl,
    dora,
    workflows,
)
from tests.model.executions import transitions as executions
from tests.model.executions.scenes import SCENES
from tests.model.numbered_tables import LOCK, NumberedTables
from tests.model.replay import (
    CLAIM_REQUEST_NAMES,
    READ,
    REQUEST_NAMES,
    Call,
    Names,
    naming,
)
from tests.model.scene import Fault
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.cached


Request = tuple[NumberedTables, int, Call]
"""The tables of a world, the number of one, and what is asked of it."""

_CLIENTS = (
    anna(heartbeats=1, gives_up=True, polls=1),
    ben(pushed=False, polls=1),
    carl(limit=2),
    dora(limit=2, pushed=False),
)
_WALKED = (
    Configuration("four", _CLIENTS, (Fault.CRASH, Fault.EPOCH)),
    Configuration("three", workflows(3, gives_up=True)),
    Configuration("a pause", (*workflows(2), PAUL)),
)
_SMALL = (
    Configuration("one gives up", (*workflows(1), ben(gives_up=True)), (Fault.LOST_REPLY,)),
    Configuration("two", workflows(2), (Fault.LATE_JOIN,)),
    Configuration(
        "one lowers the limit",
        (anna(limit=2), ben(limit=2, pushed=False), carl(waits=False, pushed=False)),
        (Fault.EPOCH,),
    ),
    Configuration("one releases the other by force", (anna(waits=False, pushed=False), OLGA)),
)
_WALKS = 80


def _walks(world: Any, number: int) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - of either kind
    """States and moves of so many behaviours, chosen at random but always alike."""
    choose = random.Random(number).choice  # noqa: S311 - chooses behaviours, hides nothing
    for _ in range(number):
        state = world.start
        while moves := world.moves(state):
            move = choose(moves)
            yield state, move
            state = move.to


def _all_moves(world: contention.World) -> Iterator[tuple[Any, Any]]:
    """All states and moves of a small world."""
    seen, rest = {world.start}, [world.start]
    while rest:
        state = rest.pop()
        for move in world.moves(state):
            yield state, move
            if move.to not in seen:
                seen.add(move.to)
                rest.append(move.to)


def _requests_of_contention(names: Names) -> Iterator[Request]:
    for scenes, steps in (_WALKED, lambda world: _walks(world, _WALKS)), (_SMALL, _all_moves):
        for scene in scenes:
            world = contention.World(scene, names)
            for state, move in steps(world):
                if move.call is not None:
                    yield world.tables, state[0], move.call


def _requests_of_executions(names: Names) -> Iterator[Request]:
    for scene in SCENES:
        world = executions.World(scene, names)
        for state, _ in _walks(world, 120):
            for call in (call for local in state.locals for call in local.under_way()):
                yield world.calls.tables, state.table, world.calls.request_of(call)


def _replace_items(client: DynamoDBClient, items: list[Any]) -> None:
    for item in _stored(client):
        client.delete_item(TableName=TABLE, Key={"pk": item["pk"], "sk": item["sk"]})
    for item in items:
        client.put_item(TableName=TABLE, Item=item)


def _stored(client: DynamoDBClient) -> list[Any]:
    return _in_order(client.scan(TableName=TABLE)["Items"])


def _in_order(items: Any) -> list[Any]:  # noqa: ANN401 - items of boto3 or of the double
    return sorted(items, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))


def _compare(client: DynamoDBClient, requests: list[Request], wanted: frozenset[str]) -> None:
    """Sends some of each kind to moto."""
    compared: Counter[tuple[str, str, bool]] = Counter()
    moto = LockTable(client, TABLE)
    for tables, before, call in requests:
        if call.name not in wanted:
            continue
        outcome = tables.apply(before, call)
        expected = tables.answer(outcome.answer)
        kind = call.name, type(expected).__name__, bool(expected)
        if compared[kind] == 5:
            continue
        compared[kind] += 1
        _replace_items(client, list(tables.items(before).values()))
        answer = getattr(moto, call.method)(call.payload)
        assert answer == expected or _same_token(answer, expected, call), call
        assert _stored(client) == _in_order(tables.items(outcome.table).values()), call
    assert {name for name, *_ in compared} == wanted
    assert len(compared) > len(wanted), "some requests have more than one kind of answer"


def _same_token(answer: object, expected: object, call: Call) -> bool:
    """Whether moto shows the token that the last grant had, or none, as it was before an update.

    It shows removed attributes besides, and none that has stayed the same.
    """
    if getattr(call.payload, "returns", None) != "UPDATED_OLD":
        return False
    assert isinstance(answer, Written)
    assert isinstance(expected, Written)
    return answer.item.get("fencing_token") == expected.item.get("fencing_token")


@pytest.mark.parametrize(
    ("requests_of", "wanted"),
    [
        (_requests_of_contention, REQUEST_NAMES),
        (_requests_of_executions, CLAIM_REQUEST_NAMES | {READ}),
    ],
    ids=["contention", "executions"],
)
def test_every_kind_of_request_does_the_same_as_on_moto(
    dynamodb: DynamoDBClient,
    requests_of: Callable[[Names], Iterator[Request]],
    wanted: frozenset[str],
) -> None:
    names: Names = {}
    with naming(names):
        requests = list(requests_of(names))
    _compare(dynamodb, requests, wanted)


def test_a_poll_reads_the_same_as_on_moto(dynamodb: DynamoDBClient) -> None:
    names: Names = {}
    with naming(names):
        world = contention.World(Configuration("four", workflows(4)), names)
        found = {move.to[0] for _, move in _walks(world, _WALKS)}
    by_size = {len(world.tables.items(number)): number for number in found}
    poll = lock_and_oldest_waiters(LOCK)
    for number in by_size.values():
        items = world.tables.items(number)
        _replace_items(dynamodb, list(items.values()))
        page = LockTable(cast("Any", MemoryTable(items)), TABLE).query(poll)
        assert LockTable(dynamodb, TABLE).query(poll) == page
        assert len(page.items) == min(len(items), 3)
    assert max(by_size) > 3


# Each form of a reservation does the same to the table in memory as to moto's DynamoDB.

_US: Final = 1_000_000
_NOW: Final = AwsTime(1_900_000_000 * _US, 1_900_000_002 * _US)
_ME: Final = "my-reservation-id"
_REQUEST: Final = PaceRequest(
    name="vendor", reservation_id=_ME, interval_us=6 * _US, max_wait_us=30 * _US
)


def _next_slot(seconds: float, reservation_id: str = "another-reservation") -> Item:
    """A pace whose next slot begins so long after now."""
    next_us = _NOW.early_us + round(seconds * _US)
    return {
        **pace_key("vendor"),
        "next_slot_us": {"N": str(next_us)},
        "slot_us": {"N": str(next_us - 6 * _US)},
        "reservation_id": {"S": reservation_id},
        "expiry_time": {"N": "1"},
    }


_PACES: Final = (
    {},
    *(_next_slot(seconds) for seconds in (-1_000, 0, 0.000_001, 30, 30.000_001)),
    *(_next_slot(seconds, _ME) for seconds in (-1, 10)),
)


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("reserve", [reserve_idle, reserve_next])
def test_a_reservation_does_the_same_as_on_moto(
    dynamodb: DynamoDBClient, reserve: Callable[..., Update], *, again: bool
) -> None:
    for item in _PACES:
        update = reserve(_REQUEST, _NOW, over=read_pace("vendor", item) if again else None)
        memory: Any = MemoryTable()
        _replace_items(memory, [item] if item else [])
        _replace_items(dynamodb, [item] if item else [])
        answers = [LockTable(table, TABLE).update(update) for table in (memory, dynamodb)]
        assert answers[0] == answers[1], item
        assert _stored(memory) == _stored(dynamodb), item
