"""Messages through a task token: a waiter gets its grant, a heartbeat state its end."""

from __future__ import annotations

import json

import pytest
from botocore.stub import Stubber
from mypy_boto3_stepfunctions import SFNClient

from fairlock.aws.executions import Delivery, NoWorkflows, StepFunctions
from fairlock.errors import LockLost
from fairlock.protocol.outcomes import Grant, NotHeld, Released
from tests.support import START_MS
from tests.support.faults import lost_reply

TOKEN = "AAAAKgAAAAIAAAAAAAAAAQ"
GRANT = Grant(
    lock_name="customer/é",
    owner_id="anna-0123456789ab",
    fencing_token=START_MS * 1000 + 1,
    lease_ms=60_000,
    acquired_at_ms=START_MS,
    expires_at_ms=START_MS + 60_000,
)
RELEASED = Released(lock_name="customer/é", owner_id="anna-0123456789ab")
NOT_HELD = NotHeld(lock_name="customer/é", owner_id="anna-0123456789ab")


def test_the_waiting_task_gets_the_answer_that_acquire_would_have_given(
    workflows: SFNClient,
) -> None:
    answer = {
        "acquired": True,
        "lock_name": "customer/é",
        "owner_id": "anna-0123456789ab",
        "fencing_token": 1_900_000_000_000_001,
        "lease_seconds": 60,
        "acquired_at": "2030-03-17T17:46:40.000Z",
    }
    output = json.dumps(answer, ensure_ascii=False)
    with Stubber(workflows) as stub:
        stub.add_response("send_task_success", {}, {"taskToken": TOKEN, "output": output})
        assert StepFunctions(lambda: workflows).wake_waiter(TOKEN, GRANT) is Delivery.DELIVERED
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["TaskDoesNotExist", "TaskTimedOut", "InvalidToken"])
def test_a_token_that_nobody_waits_with_is_gone(workflows: SFNClient, code: str) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error("send_task_success", code)
        assert StepFunctions(lambda: workflows).wake_waiter(TOKEN, GRANT) is Delivery.GONE


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "New"])
def test_any_other_error_is_unknown(workflows: SFNClient, code: str) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error("send_task_success", code)
        assert StepFunctions(lambda: workflows).wake_waiter(TOKEN, GRANT) is Delivery.UNKNOWN


def test_a_timeout_is_unknown(workflows: SFNClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(**_: object) -> None:
        raise lost_reply()

    monkeypatch.setattr(workflows, "send_task_success", times_out)
    assert StepFunctions(lambda: workflows).wake_waiter(TOKEN, GRANT) is Delivery.UNKNOWN


def test_who_may_not_call_step_functions_tells_nobody() -> None:
    assert NoWorkflows().wake_waiter(TOKEN, GRANT) is Delivery.UNKNOWN


@pytest.mark.parametrize(
    ("end", "answer"),
    [(RELEASED, {"released": True}), (NOT_HELD, {"released": False, "reason": "NOT_HELD"})],
    ids=["released", "not held"],
)
def test_a_heartbeat_whose_work_has_ended_succeeds_with_the_answer_to_its_release(
    workflows: SFNClient, end: Released | NotHeld, answer: dict[str, object]
) -> None:
    names = {"lock_name": "customer/é", "owner_id": "anna-0123456789ab"}
    told: list[dict[str, object]] = []
    workflows.meta.events.register(
        "provide-client-params.sfn.SendTaskSuccess",
        lambda params, **_: told.append(json.loads(params["output"])),
    )
    with Stubber(workflows) as stub:
        stub.add_response("send_task_success", {})
        assert StepFunctions(lambda: workflows).end_heartbeat(TOKEN, end) is Delivery.DELIVERED
        assert told == [{**answer, **names}]
        stub.assert_no_pending_responses()


def test_a_heartbeat_whose_lock_is_lost_fails_by_the_name_that_workflows_match_on(
    workflows: SFNClient,
) -> None:
    failure = {"taskToken": TOKEN, "error": "LockLost", "cause": "lock 'x' is gone"}
    with Stubber(workflows) as stub:
        stub.add_response("send_task_failure", {}, failure)
        lost = LockLost("lock 'x' is gone")
        assert StepFunctions(lambda: workflows).end_heartbeat(TOKEN, lost) is Delivery.DELIVERED
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("code", "pushed"),
    [("TaskTimedOut", Delivery.GONE), ("ThrottlingException", Delivery.UNKNOWN)],
)
@pytest.mark.parametrize(
    ("end", "call"),
    [(RELEASED, "send_task_success"), (LockLost("gone"), "send_task_failure")],
    ids=["done", "lost"],
)
def test_a_heartbeat_that_is_not_told_is_gone_or_unknown(
    workflows: SFNClient, code: str, pushed: Delivery, end: Released | LockLost, call: str
) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error(call, code)
        assert StepFunctions(lambda: workflows).end_heartbeat(TOKEN, end) is pushed


def test_who_may_not_call_step_functions_ends_no_heartbeat() -> None:
    assert NoWorkflows().end_heartbeat(TOKEN, RELEASED) is Delivery.UNKNOWN
