"""The whole table in memory does what a DynamoDB does with claims, compared answer by answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from leasehold.dynamodb.lock_table import LockTable
from tests.model.executions.scenes import SCENES
from tests.model.executions.transitions import Lives
from tests.model.replay import Call
from tests.model.request_names import READ, STEP_NAMES_OF_CLAIMS, Names, naming
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_WALKS = 40
_SAMPLES_OF_EACH = 3
_COMPARED = STEP_NAMES_OF_CLAIMS | {READ}


def _requests_seen(lives: Lives) -> list[tuple[int, Call]]:
    """Requests about claims in some behaviours, chosen at random but always alike."""
    choose = random.Random(_WALKS).choice  # noqa: S311 - chooses behaviours, hides nothing
    found: list[tuple[int, Call]] = []
    for _ in range(_WALKS):
        state = lives.start
        while moves := list(lives.moves(state)):
            asked = [call for local in state.locals for call in local.under_way()]
            found += [(state.table, lives.calls.request_of(call)) for call in asked]
            state = choose(moves).to
    return found


def _fill(client: DynamoDBClient, items: list[Any]) -> None:
    for item in _stored(client):
        client.delete_item(TableName=TABLE, Key={"pk": item["pk"], "sk": item["sk"]})
    for item in items:
        client.put_item(TableName=TABLE, Item=item)


def _stored(client: DynamoDBClient) -> list[Any]:
    items = client.scan(TableName=TABLE)["Items"]
    return sorted(items, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))


def test_every_request_about_claims_does_the_same_as_on_moto(dynamodb: DynamoDBClient) -> None:
    names = Names()
    compared: Counter[tuple[str, str]] = Counter()
    table = LockTable(dynamodb, TABLE)
    with naming(names):
        seen = [
            (lives, *request)
            for lives in (Lives(scene, names) for scene in SCENES)
            for request in _requests_seen(lives)
        ]
    for lives, before, call in seen:
        if call.name not in _COMPARED:
            continue
        outcome = lives.calls.items.apply(before, call.payload)
        expected = lives.calls.items.answer(outcome.answer)
        kind = (call.name, str(bool(expected)) + type(expected).__name__)
        if compared[kind] == _SAMPLES_OF_EACH:
            continue
        compared[kind] += 1
        _fill(dynamodb, list(lives.calls.items.all(before).values()))
        assert getattr(table, call.method)(call.payload) == expected, call
        assert _stored(dynamodb) == list(lives.calls.items.all(outcome.table).values()), call
    assert {name for name, _ in compared} == _COMPARED
    assert len(compared) > len(_COMPARED)
