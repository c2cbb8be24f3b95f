"""The function `pace`: what it answers, what it refuses, and that a repeat is answered alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlock.errors import InvalidRequest, LockStoreUnavailable
from fairlock.store.turns import KnownPaces
from lambdas import pace, runtime
from tests.support import TABLE, LambdaContextStub, printed
from tests.support.faulty_table import FaultyTable, lose

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("lambda_environment")
CONTEXT = LambdaContextStub()
ASKED: dict[str, Any] = {"pace_name": "vendor", "rate": [10, 60]}


@pytest.fixture(autouse=True)
def new_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function knows nothing of paces."""
    monkeypatch.setattr(pace, "_known", KnownPaces())


def reserve(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - of the request
    answer: dict[str, Any] = pace.handler(
        {**ASKED, "reservation_id": f"{name:->16}", **fields}, CONTEXT
    )
    return answer


def test_a_slot_is_so_many_whole_seconds_away_which_is_logged_and_measured(capsys: Output) -> None:
    asked = {"pace_name": "vendor", "reservation_id": "------------anna"}
    assert reserve("anna") == {"reserved": True, **asked, "wait_seconds": 0}
    later = reserve("ben", max_wait_seconds=30)
    assert later["reserved"] is True
    assert later["wait_seconds"] in {7, 8}
    values, messages = printed(capsys)
    assert values["PaceWait"] == [1000 * later["wait_seconds"]]
    assert messages[-2:] == ["slot reserved"] * 2


def test_a_slot_that_is_too_late_is_an_answer_and_no_error(
    capsys: Output, dynamodb: DynamoDBClient
) -> None:
    reserve("anna")
    before = dynamodb.scan(TableName=TABLE)["Items"]
    printed(capsys)
    refused = reserve("ben", max_wait_seconds=5)
    assert (refused["reserved"], refused["reason"]) == (False, "TOO_LATE")
    assert refused["retry_after_seconds"] in {7, 8}
    assert dynamodb.scan(TableName=TABLE)["Items"] == before
    assert printed(capsys) == ({"SlotTooLate": [1.0]}, ["slot too late"])


def test_a_repeat_is_answered_like_the_call_whose_reply_was_lost(
    dynamodb: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly = {"rate": [1, 3600]}
    faulty = FaultyTable(dynamodb, lose(1))
    monkeypatch.setattr(runtime, "_client", lambda _: faulty)
    with pytest.raises(LockStoreUnavailable):
        reserve("anna", **hourly)
    assert reserve("anna", **hourly)["reserved"] is True
    assert reserve("anna", **hourly)["wait_seconds"] <= 1
    assert reserve("ben", **hourly)["reserved"] is False


WRONG: dict[str, list[object]] = {
    "rate": [
        *([count, 60] for count in (0, -1, 1.5, True)),
        *([10, seconds] for seconds in (0, -60, 2_678_401)),
        *([501, 1], [10], "10/60", 10, {"count": 10}, None),
    ],
    "pace_name": ["", "n" * 513, " vendor", 7],
    "burst": [0, 1_001, "2"],
    "max_wait_seconds": [-1, 604_801, float("nan")],
    "reservation_id": ["short"],
    "lock_name": ["vendor"],
    "period": [60],
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_use_is_told_by_its_field_and_nothing_is_written(
    dynamodb: DynamoDBClient, field: str
) -> None:
    for value in WRONG[field]:
        with pytest.raises(InvalidRequest) as refused:
            pace.handler({**ASKED, field: value}, CONTEXT)
        assert (refused.value.field, bool(refused.value.rule)) == (field, True), value
    if field in ASKED:
        missing = {name: value for name, value in ASKED.items() if name != field}
        with pytest.raises(InvalidRequest, match=f"{field}: is required"):
            pace.handler(missing, CONTEXT)
    assert dynamodb.scan(TableName=TABLE)["Items"] == []
