"""The entry points and the queue: task tokens, pushes, metrics of waiting, and no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlock.aws.executions import Delivery
from fairlock.errors import InvalidRequest, LockLost, LockStoreUnavailable
from fairlock.store.turns import KnownPaces
from lambdas import acquire, heartbeat, pace, release
from tests.support import TABLE, LambdaContextStub, printed
from tests.support.faulty_table import lost_reply
from tests.support.store_bench import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("lambda_environment", "engine")
CONTEXT = LambdaContextStub()
LOCK = {"lock_name": "customer/1"}
ANNA = {**LOCK, "owner_id": "anna-0123456789ab"}
BEN = {**LOCK, "owner_id": "ben_-0123456789ab"}
TOKEN = "task-token-of-ben"
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
BEN_WAITS = {**BEN, "task_token": TOKEN, "execution_arn": EXECUTION}


def test_a_free_lock_is_granted_through_the_task_token_at_once(engine: FakeWorkflows) -> None:
    answer = acquire.handler(dict(BEN_WAITS), CONTEXT)
    ((token, grant),) = engine.woken
    assert (token, grant.fencing_token) == (TOKEN, answer["fencing_token"])


def test_a_busy_lock_queues_and_counts_the_waiter_without_a_push(
    engine: FakeWorkflows, capsys: Output
) -> None:
    granted = acquire.handler(dict(ANNA), CONTEXT)
    printed(capsys)
    answer = acquire.handler(dict(BEN_WAITS), CONTEXT)
    assert answer == {
        "acquired": False,
        **BEN,
        "reason": "QUEUED",
        "ticket": answer["ticket"],
        "position": 1,
        "holders": [
            {
                "owner_name": "",
                "acquired_at": granted["acquired_at"],
                "expires_at": answer["holders"][0]["expires_at"],
            }
        ],
        "retry_after_seconds": answer["retry_after_seconds"],
    }
    assert engine.woken == []
    values, messages = printed(capsys)
    assert values.pop("CurrentWait")[0] < 10_000
    assert (values, messages) == ({"Queued": [1.0], "QueueLength": [1.0]}, ["queued"])


def test_a_release_hands_over_pushes_and_counts_the_hand_off(
    engine: FakeWorkflows, capsys: Output
) -> None:
    granted = acquire.handler(dict(ANNA), CONTEXT)
    acquire.handler(dict(BEN_WAITS), CONTEXT)
    printed(capsys)
    assert release.handler(dict(ANNA), CONTEXT)["released"]
    ((token, grant),) = engine.woken
    assert (token, grant.owner_id) == (TOKEN, BEN["owner_id"])
    assert grant.fencing_token == granted["fencing_token"] + 1
    values, messages = printed(capsys)
    assert messages == ["handed over", "released"]
    assert (values["Granted"], values["HandedOver"], values["Released"]) == ([1.0], [1.0], [1.0])
    others = {*values} - {"Granted", "HandedOver", "Released", "HandOffLatency"}
    assert others == {"WaitTime", "HeldTime"}
    assert heartbeat.handler(dict(BEN), CONTEXT)["fencing_token"] == grant.fencing_token


@pytest.mark.parametrize("superseded", [False, True])
def test_an_answer_that_step_functions_did_not_take_is_repeated_and_never_returned(
    engine: FakeWorkflows, *, superseded: bool
) -> None:
    if superseded:
        acquire.handler({**ANNA, "only_newest": 9}, CONTEXT)
    asked = {**BEN_WAITS, "only_newest": 8}
    engine.wakes = Delivery.UNKNOWN
    with pytest.raises(LockStoreUnavailable, match="repeat the call"):
        acquire.handler(dict(asked), CONTEXT)
    engine.wakes = Delivery.DELIVERED
    acquire.handler(dict(asked), CONTEXT)
    (_, lost), (_, delivered) = engine.woken
    told = "newest" if superseded else "fencing_token"
    assert getattr(lost, told) == getattr(delivered, told)


def test_a_delayed_duplicate_fails_its_task_at_once_instead_of_waiting(
    engine: FakeWorkflows,
) -> None:
    acquire.handler(dict(BEN), CONTEXT)
    release.handler(dict(BEN), CONTEXT)
    with pytest.raises(LockLost, match="released before"):
        acquire.handler(dict(BEN_WAITS), CONTEXT)
    assert engine.woken == []


def test_giving_up_is_counted(capsys: Output) -> None:
    acquire.handler(dict(ANNA), CONTEXT)
    acquire.handler(dict(BEN_WAITS), CONTEXT)
    printed(capsys)
    gave_up = {**BEN, "execution_arn": EXECUTION, "queue": True}
    assert release.handler(gave_up, CONTEXT) == {"released": True, **BEN}
    values, messages = printed(capsys)
    assert (values, messages) == ({"LeftQueue": [1.0]}, ["released"])


def test_a_superseded_caller_is_told_through_its_task_token_and_counted(
    engine: FakeWorkflows, capsys: Output
) -> None:
    acquire.handler({**ANNA, "only_newest": 9}, CONTEXT)
    printed(capsys)
    answer = acquire.handler({**BEN_WAITS, "only_newest": 8}, CONTEXT)
    assert (answer["acquired"], answer["reason"], answer["newest"]) == (False, "SUPERSEDED", 9)
    ((token, refusal),) = engine.woken
    assert (token, refusal.newest) == (TOKEN, 9)
    values, messages = printed(capsys)
    assert (values, messages) == ({"Superseded": [1.0]}, ["refused"])


def test_a_release_tells_who_is_superseded_and_counts_them(
    engine: FakeWorkflows, capsys: Output
) -> None:
    acquire.handler({**ANNA, "only_newest": 1}, CONTEXT)
    acquire.handler({**BEN_WAITS, "only_newest": 2}, CONTEXT)
    carl = {**BEN_WAITS, "owner_id": "carl-0123456789ab", "task_token": "token-of-carl"}
    acquire.handler({**carl, "only_newest": True}, CONTEXT)
    printed(capsys)
    release.handler(dict(ANNA), CONTEXT)
    assert [token for token, _ in engine.woken] == ["token-of-carl", TOKEN]
    values, messages = printed(capsys)
    assert values["Superseded"] == [1.0]
    assert "superseded" in messages


# The function `pace`: what it answers, what it refuses, and that a repeat is answered alike.

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
