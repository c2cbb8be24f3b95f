"""Messages through a task token: a waiter gets its grant, a heartbeat state its end."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber
from mypy_boto3_stepfunctions import SFNClient

from fairlock.aws.executions import Delivery, Execution, Liveness, NoWorkflows, StepFunctions
from fairlock.aws.retry import RetryBudget
from fairlock.errors import InvalidRequest, LockLost
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Released
from lambdas import acquire, heartbeat, release
from lambdas.runtime import require_same_account
from tests.support import START_MS, FakeClock, LambdaContextStub
from tests.support.bad_inputs import BEAT, NAMED, VALID_EXECUTION
from tests.support.faulty_table import lost_reply

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


@pytest.mark.parametrize(
    ("code", "retries", "delivery"),
    [
        ("TaskDoesNotExist", 0, Delivery.GONE),
        ("TaskTimedOut", 0, Delivery.GONE),
        ("InvalidToken", 0, Delivery.GONE),
        # The first sending, whose reply was lost, may have told the task.
        ("TaskTimedOut", 1, Delivery.UNKNOWN),
        ("ThrottlingException", 0, Delivery.UNKNOWN),
        ("AccessDeniedException", 0, Delivery.UNKNOWN),
        ("New", 0, Delivery.UNKNOWN),
    ],
)
def test_a_token_that_no_one_waits_with_is_gone_and_any_other_error_is_unknown(
    workflows: SFNClient, clock: FakeClock, code: str, retries: int, delivery: Delivery
) -> None:
    with Stubber(workflows) as stub:
        for _ in range(200):
            fails(stub, code, retries=retries)
        assert push(workflows, clock) is delivery


def test_without_an_answer_nothing_is_known(
    workflows: SFNClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times_out(**_: object) -> None:
        raise lost_reply()

    for call in ("send_task_success", "describe_execution"):
        monkeypatch.setattr(workflows, call, times_out)
    assert StepFunctions(lambda: workflows).wake_waiter(TOKEN, GRANT) is Delivery.UNKNOWN
    assert liveness_of(workflows) is Liveness.UNKNOWN


def test_who_may_not_call_step_functions_tells_no_one_and_knows_nothing() -> None:
    assert NoWorkflows().wake_waiter(TOKEN, GRANT) is Delivery.UNKNOWN
    assert NoWorkflows().end_heartbeat(TOKEN, RELEASED) is Delivery.UNKNOWN
    assert NoWorkflows().describe(VALID_EXECUTION) == Execution(Liveness.UNKNOWN)


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
    ("code", "pushed"), [("TaskTimedOut", Delivery.GONE), ("ThrottlingException", Delivery.UNKNOWN)]
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


# What Step Functions says about a holder's workflow, and what follows from its silence.


def answer_of(status: str) -> dict[str, object]:
    return {
        "executionArn": VALID_EXECUTION,
        "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:billing",
        "status": status,
        "startDate": "2030-01-01T00:00:00Z",
    }


ACCOUNT = "123456789012"
IN_ANOTHER_REGION = VALID_EXECUTION.replace("us-east-1", "eu-central-1")
OF_ANOTHER_ACCOUNT = VALID_EXECUTION.replace(ACCOUNT, "210987654321")


def liveness_of(
    workflows: SFNClient, arn: str = VALID_EXECUTION, account: str | None = ACCOUNT
) -> Liveness:
    return StepFunctions(lambda: workflows, account=lambda: account).describe(arn).liveness


@pytest.mark.parametrize(
    ("status", "liveness"),
    [
        ("RUNNING", Liveness.RUNNING),
        ("PENDING_REDRIVE", Liveness.RUNNING),
        ("SUCCEEDED", Liveness.OVER),
        ("FAILED", Liveness.OVER),
        ("TIMED_OUT", Liveness.OVER),
        ("ABORTED", Liveness.OVER),
        ("HIBERNATING", Liveness.UNKNOWN),
    ],
)
def test_each_status_of_an_execution(workflows: SFNClient, status: str, liveness: Liveness) -> None:
    with Stubber(workflows) as stub:
        stub.add_response("describe_execution", answer_of(status))
        assert liveness_of(workflows) is liveness
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("code", "arn", "account", "liveness"),
    [
        ("ExecutionDoesNotExist", VALID_EXECUTION, ACCOUNT, Liveness.OVER),
        # It runs where it is, and its lock must not be taken from it.
        ("ExecutionDoesNotExist", IN_ANOTHER_REGION, ACCOUNT, Liveness.UNKNOWN),
        ("ExecutionDoesNotExist", OF_ANOTHER_ACCOUNT, ACCOUNT, Liveness.UNKNOWN),
        ("ExecutionDoesNotExist", VALID_EXECUTION, None, Liveness.UNKNOWN),
        ("ThrottlingException", VALID_EXECUTION, ACCOUNT, Liveness.UNKNOWN),
        ("AccessDeniedException", VALID_EXECUTION, ACCOUNT, Liveness.UNKNOWN),
        ("InvalidArn", VALID_EXECUTION, ACCOUNT, Liveness.UNKNOWN),
        ("ServiceUnavailable", VALID_EXECUTION, ACCOUNT, Liveness.UNKNOWN),
        ("New", VALID_EXECUTION, ACCOUNT, Liveness.UNKNOWN),
    ],
)
def test_an_execution_that_is_forgotten_where_it_ran_is_over_and_any_other_error_is_no_guess(
    workflows: SFNClient, code: str, arn: str, account: str | None, liveness: Liveness
) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error("describe_execution", code)
        found = StepFunctions(lambda: workflows, account=lambda: account).describe(arn)
    assert found == Execution(liveness, 0)


@pytest.mark.parametrize(
    ("status", "redrives", "expected"),
    [
        ("RUNNING", {}, Execution(Liveness.RUNNING, 0)),
        ("RUNNING", {"redriveCount": 2}, Execution(Liveness.RUNNING, 2)),
        ("ABORTED", {"redriveCount": 1}, Execution(Liveness.OVER, 1)),
    ],
)
def test_how_often_an_execution_was_redriven_is_told_without_its_input(
    workflows: SFNClient, status: str, redrives: dict[str, int], expected: Execution
) -> None:
    asked = {"executionArn": VALID_EXECUTION, "includedData": "METADATA_ONLY"}
    with Stubber(workflows) as stub:
        stub.add_response("describe_execution", {**answer_of(status), **redrives}, asked)
        assert StepFunctions(lambda: workflows).describe(VALID_EXECUTION) == expected
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("status", "ended_at_ms"), [("ABORTED", 1_893_456_000_500), ("RUNNING", None)]
)
def test_it_is_told_when_an_execution_ended_if_it_has(
    workflows: SFNClient, status: str, ended_at_ms: int | None
) -> None:
    """Also a redriven execution may have the date at which it was stopped before."""
    with Stubber(workflows) as stub:
        stopped = {"stopDate": datetime(2030, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)}
        stub.add_response("describe_execution", {**answer_of(status), **stopped})
        execution = StepFunctions(lambda: workflows).describe(VALID_EXECUTION)
    assert execution.ended_at_ms == ended_at_ms


# A workflow of which no one can hear is refused: its lock would never be free.


FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:acquire"
ELSEWHERE = {
    "another account": VALID_EXECUTION.replace("123456789012", "210987654321"),
    "another region": VALID_EXECUTION.replace("us-east-1", "eu-west-1"),
    "another partition": VALID_EXECUTION.replace("arn:aws:", "arn:aws-cn:"),
}


@pytest.mark.parametrize("near", [None, VALID_EXECUTION])
def test_no_workflow_and_one_of_this_account_and_region_are_served(near: str | None) -> None:
    require_same_account(near, function_arn=FUNCTION)
    require_same_account(near, function_arn=f"{FUNCTION}:live")


@pytest.mark.parametrize("far", ELSEWHERE.values(), ids=ELSEWHERE.keys())
@pytest.mark.parametrize(
    ("handler", "event"),
    [(acquire.handler, NAMED), (heartbeat.handler, BEAT), (release.handler, NAMED)],
)
def test_every_function_refuses_a_workflow_elsewhere_before_it_asks_the_table(
    far: str, handler: object, event: dict[str, object]
) -> None:
    """There is no table here, nor are there credentials."""
    assert callable(handler)
    rule = re.escape("must be an execution of this service's account and region (123456789012, us-")
    with pytest.raises(InvalidRequest, match=f"^execution_arn: {rule}"):
        handler({**event, "execution_arn": far}, LambdaContextStub())


def push(workflows: SFNClient, clock: FakeClock) -> Delivery:
    retry_budget = RetryBudget(clock=clock, random=lambda: 0.5)
    return StepFunctions(lambda: workflows, retry_budget).wake_waiter(TOKEN, GRANT)


def fails(stub: Stubber, code: str, *, retries: int = 0) -> None:
    meta: Any = {"RetryAttempts": retries}
    stub.add_client_error("send_task_success", code, response_meta=meta)


def test_a_push_that_step_functions_is_too_busy_for_is_repeated(
    workflows: SFNClient, clock: FakeClock
) -> None:
    with Stubber(workflows) as stub:
        fails(stub, "ThrottlingException", retries=2)
        fails(stub, "ThrottlingException", retries=2)
        stub.add_response("send_task_success", {})
        assert push(workflows, clock) is Delivery.DELIVERED
        stub.assert_no_pending_responses()


def test_but_not_for_ever(workflows: SFNClient, clock: FakeClock) -> None:
    began = clock.monotonic()
    with Stubber(workflows) as stub:
        for _ in range(200):
            fails(stub, "ThrottlingException")
        assert push(workflows, clock) is Delivery.UNKNOWN
    assert 5 <= clock.monotonic() - began < 6
