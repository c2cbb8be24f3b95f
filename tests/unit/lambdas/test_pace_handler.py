"""The function `pace`: what it answers, and that a repeat is answered alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.store.turns import KnownPaces
from lambdas import pace, runtime
from tests.support import TABLE, printed
from tests.support.faulty_table import FaultyTable, lose
from tests.unit.lambdas.conftest import CONTEXT, Output

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


pytestmark = pytest.mark.usefixtures("lambda_environment")
ASKED: dict[str, Any] = {"pace_name": "vendor", "rate": [1, 600]}


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
    later = reserve("ben", max_wait_seconds=900)
    assert later["reserved"] is True
    assert 570 < later["wait_seconds"] <= 602
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
    assert 570 < refused["retry_after_seconds"] <= 602
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
