"""The function `pace`: what it answers, what it refuses, and that a repeat is answered alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlock.errors import InvalidRequest, LockStoreUnavailable
from fairlock.store.turns import KnownPaces
from lambdas import pace
from tests.support import TABLE
from tests.support.faults import lost_reply
from tests.support.lambda_context import LambdaContextStub
from tests.unit.lambdas.output import lines, logged, values

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CONTEXT = LambdaContextStub()
ASKED: dict[str, Any] = {"pace_name": "vendor", "rate": [10, 60]}
Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("lambda_environment")


@pytest.fixture(autouse=True)
def new_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function knows nothing of paces."""
    monkeypatch.setattr(pace, "_known", KnownPaces())


def reserve(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - of the request
    answer: dict[str, Any] = pace.handler(
        {**ASKED, "reservation_id": f"{name:->16}", **fields}, CONTEXT
    )
    return answer


def test_a_slot_is_so_many_whole_seconds_away(capsys: Output) -> None:
    asked = {"pace_name": "vendor", "reservation_id": "------------anna"}
    assert reserve("anna") == {"reserved": True, **asked, "wait_seconds": 0}
    later = reserve("ben", max_wait_seconds=30)
    assert later["reserved"] is True
    assert later["wait_seconds"] in {7, 8}
    messages = [line["message"] for line in lines(capsys) if "message" in line]
    assert messages[-2:] == ["slot reserved"] * 2


def test_a_slot_that_is_too_late_is_an_answer_and_no_error(
    capsys: Output, dynamodb: DynamoDBClient
) -> None:
    reserve("anna")
    before = dynamodb.scan(TableName=TABLE)["Items"]
    refused = reserve("ben", max_wait_seconds=5)
    assert (refused["reserved"], refused["reason"]) == (False, "TOO_LATE")
    assert refused["retry_after_seconds"] in {7, 8}
    assert dynamodb.scan(TableName=TABLE)["Items"] == before
    assert logged(lines(capsys))[-1]["message"] == "slot too late"


def test_the_metrics_tell_how_long_callers_wait_for_their_slots_and_who_gets_none(
    capsys: Output,
) -> None:
    waits = [reserve(name, max_wait_seconds=30)["wait_seconds"] for name in ("anna", "ben")]
    assert waits[0] == 0 < waits[1]
    assert values(lines(capsys))["PaceWait"] == [1000 * waits[1]]
    assert reserve("carl", max_wait_seconds=1)["reserved"] is False
    assert values(lines(capsys)) == {"SlotTooLate": [1.0]}


def test_a_repeat_is_answered_like_the_call_whose_reply_was_lost(
    dynamodb: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly = {"rate": [1, 3600]}
    update = dynamodb.update_item

    def lost(**request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        update(**request)
        raise lost_reply()

    monkeypatch.setattr(dynamodb, "update_item", lost)
    with pytest.raises(LockStoreUnavailable):
        reserve("anna", **hourly)
    monkeypatch.setattr(dynamodb, "update_item", update)
    assert reserve("anna", **hourly)["reserved"] is True
    assert reserve("anna", **hourly)["wait_seconds"] <= 1
    assert reserve("ben", **hourly)["reserved"] is False


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rate": [0, 60]}, "rate"),
        ({"rate": [-1, 60]}, "rate"),
        ({"rate": [1.5, 60]}, "rate"),
        ({"rate": [True, 60]}, "rate"),
        ({"rate": [10, 0]}, "rate"),
        ({"rate": [10, -60]}, "rate"),
        ({"rate": [10, 2_678_401]}, "rate"),
        ({"rate": [501, 1]}, "rate"),
        ({"rate": [10]}, "rate"),
        ({"rate": "10/60"}, "rate"),
        ({"rate": 10}, "rate"),
        ({"rate": {"count": 10}}, "rate"),
        ({"rate": None}, "rate"),
        ({"pace_name": ""}, "pace_name"),
        ({"pace_name": "n" * 513}, "pace_name"),
        ({"pace_name": " vendor"}, "pace_name"),
        ({"pace_name": 7}, "pace_name"),
        ({"burst": 0}, "burst"),
        ({"burst": 1_001}, "burst"),
        ({"burst": "2"}, "burst"),
        ({"max_wait_seconds": -1}, "max_wait_seconds"),
        ({"max_wait_seconds": 604_801}, "max_wait_seconds"),
        ({"max_wait_seconds": float("nan")}, "max_wait_seconds"),
        ({"reservation_id": "short"}, "reservation_id"),
        ({"lock_name": "vendor"}, "lock_name"),
        ({"period": 60}, "period"),
    ],
)
def test_wrong_use_is_told_by_its_field_and_nothing_is_written(
    dynamodb: DynamoDBClient, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        pace.handler({**ASKED, **fields}, CONTEXT)
    assert refused.value.field == field
    assert refused.value.rule
    assert dynamodb.scan(TableName=TABLE)["Items"] == []


@pytest.mark.parametrize("missing", ASKED)
def test_a_field_that_is_missing_is_named(missing: str) -> None:
    fields = {name: value for name, value in ASKED.items() if name != missing}
    with pytest.raises(InvalidRequest, match=f"{missing}: is required"):
        pace.handler(fields, CONTEXT)
