"""The entry points and the queue: task tokens, pushes, metrics of waiting, and no secrets."""

from __future__ import annotations

import pytest

from fairlock.aws.executions import Delivery
from fairlock.errors import LockLost, LockStoreUnavailable
from lambdas import acquire, heartbeat, release
from tests.support.lambda_context import LambdaContextStub
from tests.support.workflows import FakeWorkflows
from tests.unit.lambdas.output import printed

CONTEXT = LambdaContextStub()
LOCK = {"lock_name": "customer/1"}
ANNA = {**LOCK, "owner_id": "anna-0123456789ab"}
BEN = {**LOCK, "owner_id": "ben_-0123456789ab"}
TOKEN = "task-token-of-ben"
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
BEN_WAITS = {**BEN, "task_token": TOKEN, "execution_arn": EXECUTION}

pytestmark = pytest.mark.usefixtures("lambda_environment")


def test_a_free_lock_is_granted_through_the_task_token_at_once(engine: FakeWorkflows) -> None:
    answer = acquire.handler(dict(BEN_WAITS), CONTEXT)
    ((token, grant),) = engine.woken
    assert (token, grant.fencing_token) == (TOKEN, answer["fencing_token"])


def test_a_busy_lock_queues_and_counts_the_waiter_without_a_push(
    engine: FakeWorkflows, capsys: pytest.CaptureFixture[str]
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
    engine: FakeWorkflows, capsys: pytest.CaptureFixture[str]
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
    assert set(values) >= {"WaitTime", "HeldTime"}
    assert set(values) <= {
        "Granted",
        "HandedOver",
        "HandOffLatency",
        "HeldTime",
        "Released",
        "WaitTime",
    }
    assert heartbeat.handler(dict(BEN), CONTEXT)["fencing_token"] == grant.fencing_token


def test_a_grant_that_step_functions_did_not_take_is_repeated_and_never_answered(
    engine: FakeWorkflows,
) -> None:
    engine.wakes = Delivery.UNKNOWN
    with pytest.raises(LockStoreUnavailable, match="repeat the call"):
        acquire.handler(dict(BEN_WAITS), CONTEXT)
    engine.wakes = Delivery.DELIVERED
    acquire.handler(dict(BEN_WAITS), CONTEXT)
    (_, lost), (_, delivered) = engine.woken
    assert lost.fencing_token == delivered.fencing_token


def test_a_delayed_duplicate_fails_its_task_at_once_instead_of_waiting(
    engine: FakeWorkflows,
) -> None:
    acquire.handler(dict(BEN), CONTEXT)
    release.handler(dict(BEN), CONTEXT)
    with pytest.raises(LockLost, match="released before"):
        acquire.handler(dict(BEN_WAITS), CONTEXT)
    assert engine.woken == []


@pytest.mark.usefixtures("engine")
def test_giving_up_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    acquire.handler(dict(ANNA), CONTEXT)
    acquire.handler(dict(BEN_WAITS), CONTEXT)
    printed(capsys)
    gave_up = {**BEN, "execution_arn": EXECUTION, "queue": True}
    assert release.handler(gave_up, CONTEXT) == {"released": True, **BEN}
    values, messages = printed(capsys)
    assert (values, messages) == ({"LeftQueue": [1.0]}, ["released"])


@pytest.mark.usefixtures("engine")
def test_neither_owner_ids_nor_task_tokens_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    acquire.handler(dict(ANNA), CONTEXT)
    acquire.handler(dict(BEN_WAITS), CONTEXT)
    release.handler(dict(ANNA), CONTEXT)
    acquire.handler(dict(BEN_WAITS), CONTEXT)
    out, err = capsys.readouterr()
    assert "handed over" in out
    for secret in (ANNA["owner_id"], BEN["owner_id"], TOKEN):
        assert secret not in out + err


def test_a_superseded_caller_is_told_through_its_task_token_and_counted(
    engine: FakeWorkflows, capsys: pytest.CaptureFixture[str]
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
    engine: FakeWorkflows, capsys: pytest.CaptureFixture[str]
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


def test_if_step_functions_does_not_take_that_answer_the_call_is_repeated(
    engine: FakeWorkflows,
) -> None:
    acquire.handler({**ANNA, "only_newest": 9}, CONTEXT)
    engine.wakes = Delivery.UNKNOWN
    with pytest.raises(LockStoreUnavailable):
        acquire.handler({**BEN_WAITS, "only_newest": 8}, CONTEXT)
