"""The table in memory does what a DynamoDB does: the same requests, compared answer by answer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from leasehold.dynamodb.lock_table import LockTable
from leasehold.protocol import schema
from tests.model.contention.clients import Client
from tests.model.contention.configurations import workflows
from tests.model.contention.faults import NONE, Faults
from tests.model.contention.transitions import State, World
from tests.model.replay import Call
from tests.model.request_names import NEVER_SEEN, STEP_NAMES, Names, naming
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_SAMPLES_OF_EACH = 5
_CLIENTS = (
    Client(name="anna", heartbeats=1, gives_up=True, polls=1),
    Client(name="ben", pushed=False, polls=1),
    Client(name="carl", limit=2),
    Client(name="dora", limit=2, pushed=False),
)
_LEAVERS = workflows(3, gives_up=True)
_ONE_GIVES_UP = (*workflows(1), Client(name="ben", gives_up=True))
_WALKS = 80
_FAULTS = Faults(crashes=1, epochs=1)


def _requests_seen(world: World, walks: int) -> list[tuple[State, Call]]:
    """Requests that the clients make in so many behaviours, chosen at random but always alike."""
    choose = random.Random(walks).choice  # noqa: S311 - chooses behaviours, hides nothing
    found: dict[tuple[int, int, int], tuple[State, Call]] = {}
    for _ in range(walks):
        state = world.start
        while moves := world.moves(state):
            move = choose(moves)
            if move.call != NONE:
                call = world.progress.calls[move.call]
                found.setdefault((state[0], state[1], move.call), (state, call))
            state = move.to
    return list(found.values())


def _all_requests(world: World) -> Iterator[tuple[State, Call]]:
    """Requests that the clients of a small world make in any behaviour."""
    seen, rest = {world.start}, [world.start]
    while rest:
        state = rest.pop()
        for move in world.moves(state):
            if move.call != NONE:
                yield state, world.progress.calls[move.call]
            if move.to not in seen:
                seen.add(move.to)
                rest.append(move.to)


def _items(client: DynamoDBClient) -> list[Any]:
    return sorted(client.scan(TableName=TABLE)["Items"], key=lambda item: item["sk"]["S"])


def _fill(client: DynamoDBClient, items: list[Any]) -> None:
    for item in _items(client):
        client.delete_item(TableName=TABLE, Key={"pk": item["pk"], "sk": item["sk"]})
    for item in items:
        client.put_item(TableName=TABLE, Item=item)


def _all_items(world: World, state: int, queue: int) -> list[Any]:
    item = world.table.state(state)
    items = [*world.table.queue(queue), *([item] if item else [])]
    return sorted(items, key=lambda item: item[schema.SORT_KEY]["S"])


def _kind(answer: object) -> str:
    return str(answer) if isinstance(answer, bool) else type(answer).__name__


def test_every_kind_of_request_does_the_same_as_on_moto(dynamodb: DynamoDBClient) -> None:
    names = Names()
    compared: Counter[tuple[str, str]] = Counter()
    table = LockTable(dynamodb, TABLE)
    with naming(names):
        worlds = [
            World(_CLIENTS, _FAULTS, names),
            World(_LEAVERS, Faults(), names),
        ]
        small = World(_ONE_GIVES_UP, Faults(lost_replies=1), names)
        seen = [(world, *pair) for world in worlds for pair in _requests_seen(world, _WALKS)]
        seen += [(small, *pair) for pair in _all_requests(small)]
    for world, state, call in seen:
        if call.name not in STEP_NAMES:
            continue
        outcome = world.table.apply(state[0], state[1], call.payload, counts=call.method == "count")
        expected = world.table.answer(outcome.answer)
        kind = (call.name, _kind(expected))
        if compared[kind] == _SAMPLES_OF_EACH:
            continue
        compared[kind] += 1
        _fill(dynamodb, _all_items(world, state[0], state[1]))
        assert getattr(table, call.method)(call.payload) == expected, call
        assert _items(dynamodb) == _all_items(world, outcome.state, outcome.queue), call
    assert {name for name, _ in compared} == STEP_NAMES - NEVER_SEEN
