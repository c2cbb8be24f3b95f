"""What Step Functions and Lambda are told and asked about executions, and what answers mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

import boto3
import pytest
from botocore.stub import Stubber

from fairlock.aws.executions import (
    Delivery,
    DurableFunctions,
    Execution,
    Liveness,
    NoWorkflows,
    StepFunctions,
    WorkflowEngines,
)
from fairlock.aws.retry import RetryBudget
from fairlock.clock import iso_utc
from fairlock.errors import InvalidRequest, LockLost
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Released
from fairlock.testing.manual_clock import START_MS, ManualClock
from fairlock.wire.rules import callback_token
from lambdas import acquire, heartbeat, release
from lambdas.runtime import require_same_account
from tests.support import LambdaContextStub
from tests.support.bad_inputs import BEAT, NAMED, VALID_EXECUTION
from tests.support.faulty_table import client_error, lost_reply
from tests.support.store_bench import FakeWorkflows

OWN: dict[str, Any] = {"lock_name": "customer/é", "owner_id": "anna-0123456789ab"}
GRANT = Grant(
    **OWN,
    fencing_token=START_MS * 1000 + 1,
    lease_ms=60_000,
    acquired_at_ms=START_MS,
    expires_at_ms=START_MS + 60_000,
)
ANSWER = {
    "acquired": True,
    **OWN,
    "fencing_token": 1_900_000_000_000_001,
    "lease_seconds": 60,
    "acquired_at": iso_utc(START_MS),
}
RELEASED, NOT_HELD = Released(**OWN), NotHeld(**OWN)
ACCOUNT = "123456789012"
STARTED, ENDED = datetime(2030, 1, 1, tzinfo=UTC), datetime.fromtimestamp(START_MS / 1000, UTC)


Kind = SimpleNamespace
"""Of engines: its calls and their fields; `gone` are the errors by which no one waits with a token
any more, and `late` is the one of these that an earlier sending, whose reply was lost, may cause.
"""
TOKEN, CALLBACK = "AAAAKgAAAAIAAAAAAAAAAQ", "Q2FsbGJhY2s="
ENDS = ("SUCCEEDED", "FAILED", "TIMED_OUT")
RUNS, OVER, UNKNOWN = map(Execution, (Liveness.RUNNING, Liveness.OVER, Liveness.UNKNOWN))
STANDARD: Final = Kind(
    service="stepfunctions",
    engine=StepFunctions,
    execution=VALID_EXECUTION,
    token=TOKEN,
    tells="send_task_success",
    told={"taskToken": TOKEN, "output": json.dumps(ANSWER, ensure_ascii=False)},
    describes="describe_execution",
    asked={"executionArn": VALID_EXECUTION, "includedData": "METADATA_ONLY"},
    described={
        "executionArn": VALID_EXECUTION,
        "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:billing",
        "startDate": STARTED,
    },
    gone=("TaskDoesNotExist", "TaskTimedOut", "InvalidToken"),
    late="TaskTimedOut",
    throttled="ThrottlingException",
    forgotten="ExecutionDoesNotExist",
    executions=[
        *(({"status": status}, RUNS) for status in ("RUNNING", "PENDING_REDRIVE")),
        *(({"status": status}, OVER) for status in (*ENDS, "ABORTED")),
        ({"status": "HIBERNATING"}, UNKNOWN),
        ({"status": "FAILED", "stopDate": ENDED}, Execution(Liveness.OVER, ended_at_ms=START_MS)),
        ({"status": "RUNNING", "redriveCount": 2}, Execution(Liveness.RUNNING, 2)),
        ({"status": "ABORTED", "redriveCount": 1}, Execution(Liveness.OVER, 1)),
        # A redriven execution may have the date at which it was stopped before.
        ({"status": "RUNNING", "stopDate": ENDED}, RUNS),
    ],
)
DURABLE_EXECUTION: Final = (
    "arn:aws:lambda:us-east-1:123456789012:function:billing:7/durable-execution/"
    "090c4189-b18b-4296-9d0c-cfd01dc3a122/9f7d84c9-ea3d-3ffc-b3e5-5ec51c34ffc9"
)
DURABLE: Final = Kind(
    service="lambda",
    engine=DurableFunctions,
    execution=DURABLE_EXECUTION,
    token=CALLBACK,
    tells="send_durable_execution_callback_success",
    told={"CallbackId": CALLBACK, "Result": json.dumps(ANSWER, ensure_ascii=False).encode()},
    describes="get_durable_execution",
    # Without its data, which Lambda decrypts by the caller's permissions.
    asked={"DurableExecutionArn": DURABLE_EXECUTION, "IncludeExecutionData": False},
    described={
        "DurableExecutionArn": DURABLE_EXECUTION,
        "DurableExecutionName": "order-123",
        "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:billing:7",
        "StartTimestamp": STARTED,
    },
    gone=(
        "CallbackTimeoutException",
        "ResourceNotFoundException",
        "InvalidParameterValueException",
    ),
    late="CallbackTimeoutException",
    throttled="TooManyRequestsException",
    forgotten="ResourceNotFoundException",
    executions=[
        *(({"Status": status}, RUNS) for status in ("RUNNING", "PAUSING", "PAUSED")),
        *(({"Status": status}, OVER) for status in (*ENDS, "STOPPED", "DELETING")),
        ({"Status": "NEW_STATUS"}, UNKNOWN),
        (
            {"Status": "FAILED", "EndTimestamp": ENDED},
            Execution(Liveness.OVER, ended_at_ms=START_MS),
        ),
    ],
)
every_kind = pytest.mark.parametrize(
    "kind", [DURABLE, STANDARD], ids=["a durable function", "a workflow"]
)


@dataclass
class Stubbed:
    """An engine over a stubbed client."""

    kind: Kind
    client: Any
    stub: Stubber
    clock: ManualClock

    def engine(self, account: str | None = ACCOUNT) -> Any:  # noqa: ANN401 - of either kind
        budget = RetryBudget(clock=self.clock, random=lambda: 0.5)
        return self.kind.engine(lambda: self.client, budget, account=lambda: account)

    def wake(self) -> Delivery:
        delivery: Delivery = self.engine().wake_waiter(self.kind.token, GRANT)
        return delivery

    def refuses(self, call: str, code: str, *, retries: int = 0) -> None:
        meta: Any = {"RetryAttempts": retries}
        self.stub.add_client_error(call, code, http_status_code=429, response_meta=meta)

    def describe(self, fields: dict[str, Any]) -> Execution:
        """What is known of an execution of which the engine tells these fields."""
        answer = {**self.kind.described, **fields}
        self.stub.add_response(self.kind.describes, answer, self.kind.asked)
        described: Execution = self.engine().describe(self.kind.execution)
        return described


@pytest.fixture
def kind() -> Kind:
    """If a test does not name one."""
    return STANDARD


@pytest.fixture
def stubbed(kind: Kind) -> Iterator[Stubbed]:
    keys: dict[str, Any] = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client(kind.service, region_name="us-east-1", **keys)
    with Stubber(client) as stub:
        yield Stubbed(kind, client, stub, ManualClock())
        stub.assert_no_pending_responses()
    client.close()


@every_kind
def test_a_waiter_is_told_what_acquire_would_have_answered(kind: Kind, stubbed: Stubbed) -> None:
    stubbed.stub.add_response(kind.tells, {}, kind.told)
    assert stubbed.wake() is Delivery.DELIVERED


@every_kind
def test_only_a_token_of_no_waiter_is_gone(kind: Kind, stubbed: Stubbed) -> None:
    for code in kind.gone:
        stubbed.refuses(kind.tells, code)
        assert stubbed.wake() is Delivery.GONE, code
    # The first sending, whose reply was lost, may have told the task.
    stubbed.refuses(kind.tells, kind.late, retries=1)
    assert stubbed.wake() is Delivery.UNKNOWN
    for code in ("AccessDeniedException", "KMSDisabledException", "New"):
        stubbed.refuses(kind.tells, code)
        assert stubbed.wake() is Delivery.UNKNOWN, code


@every_kind
def test_a_push_that_the_engine_is_too_busy_for_is_repeated_but_not_for_ever(
    kind: Kind, stubbed: Stubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        stubbed.refuses(kind.tells, kind.throttled, retries=2)
    stubbed.stub.add_response(kind.tells, {})
    assert stubbed.wake() is Delivery.DELIVERED

    def throttles(**_: object) -> None:
        raise client_error(kind.throttled, 429)

    monkeypatch.setattr(stubbed.client, kind.tells, throttles)
    began = stubbed.clock.monotonic()
    assert stubbed.wake() is Delivery.UNKNOWN
    assert 5 <= stubbed.clock.monotonic() - began < 6


@every_kind
def test_silence_is_unknown(kind: Kind, stubbed: Stubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(**_: object) -> None:
        raise lost_reply()

    for call in (kind.tells, kind.describes):
        monkeypatch.setattr(stubbed.client, call, times_out)
    assert stubbed.wake() is Delivery.UNKNOWN
    assert stubbed.engine().describe(kind.execution).liveness is Liveness.UNKNOWN


@every_kind
def test_what_is_known_of_an_execution(kind: Kind, stubbed: Stubbed) -> None:
    for fields, expected in kind.executions:
        assert stubbed.describe(fields) == expected, fields


NO_GUESS = ("AccessDeniedException", "KMSAccessDeniedException", "ServiceException", "New")


@every_kind
def test_an_execution_that_is_forgotten_where_it_ran_is_over_and_any_other_error_is_no_guess(
    kind: Kind, stubbed: Stubbed
) -> None:
    here = kind.execution
    elsewhere = (("us-east-1", "eu-central-1"), (ACCOUNT, "210987654321"))
    for code, arn, account, known in (
        (kind.forgotten, here, ACCOUNT, OVER),
        # It runs where it is, and its lock must not be taken from it.
        *((kind.forgotten, here.replace(*place), ACCOUNT, UNKNOWN) for place in elsewhere),
        (kind.forgotten, here, None, UNKNOWN),
        *((code, here, ACCOUNT, UNKNOWN) for code in (kind.throttled, *NO_GUESS)),
    ):
        stubbed.refuses(kind.describes, code)
        assert stubbed.engine(account).describe(arn) == known, (code, arn, account)


# A heartbeat state is told its end.


def test_a_heartbeat_is_told_the_answer_to_the_release(stubbed: Stubbed) -> None:
    no_release = {"released": False, **OWN, "reason": "NOT_HELD"}
    for end, answer in ((RELEASED, {"released": True, **OWN}), (NOT_HELD, no_release)):
        told = {"taskToken": TOKEN, "output": json.dumps(answer, ensure_ascii=False)}
        stubbed.stub.add_response("send_task_success", {}, told)
        assert stubbed.engine().end_heartbeat(TOKEN, end) is Delivery.DELIVERED


def test_a_heartbeat_of_a_lost_lock_fails_by_the_name_of_the_error(stubbed: Stubbed) -> None:
    failure = {"taskToken": TOKEN, "error": "LockLost", "cause": "lock 'x' is gone"}
    stubbed.stub.add_response("send_task_failure", {}, failure)
    lost = LockLost("lock 'x' is gone")
    assert stubbed.engine().end_heartbeat(TOKEN, lost) is Delivery.DELIVERED


def test_a_heartbeat_that_is_not_told_is_gone_or_unknown(stubbed: Stubbed) -> None:
    calls = ((RELEASED, "send_task_success"), (LockLost("gone"), "send_task_failure"))
    for code, pushed in (("TaskTimedOut", Delivery.GONE), ("New", Delivery.UNKNOWN)):
        for end, call in calls:
            stubbed.refuses(call, code)
            assert stubbed.engine().end_heartbeat(TOKEN, end) is pushed


# Engines that cannot be asked, and the choice between them.


@pytest.mark.parametrize(
    "kind", [Kind(**{**vars(DURABLE), "asked": {"DurableExecutionArn": DURABLE_EXECUTION}})]
)
def test_an_older_sdk_asks_with_the_data(stubbed: Stubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = stubbed.client.meta.service_model.operation_model("GetDurableExecution")
    monkeypatch.delitem(operation.input_shape.members, "IncludeExecutionData")
    assert stubbed.describe({"Status": "RUNNING"}) == RUNS


@pytest.mark.parametrize(
    "engine",
    [
        NoWorkflows(),
        # AWS SDKs before December 2025 have no calls for durable functions.
        DurableFunctions(lambda: None),
        DurableFunctions(SimpleNamespace),  # type: ignore[arg-type]  # has no methods
    ],
    ids=["may not call Step Functions", "no client", "an old SDK"],
)
def test_who_cannot_ask_tells_no_one_and_knows_nothing(engine: Any) -> None:  # noqa: ANN401 - of several kinds
    assert engine.wake_waiter("token", GRANT) is Delivery.UNKNOWN
    assert engine.describe(VALID_EXECUTION) == UNKNOWN
    assert NoWorkflows().end_heartbeat("token", RELEASED) is Delivery.UNKNOWN


def test_the_token_and_the_arn_choose_the_engine() -> None:
    standard, durable = FakeWorkflows(), FakeWorkflows()
    engines = WorkflowEngines(standard, durable)  # type: ignore[arg-type]  # they stand in
    for token in (TOKEN, callback_token(CALLBACK)):
        engines.wake_waiter(token, GRANT)
    for arn in (VALID_EXECUTION, DURABLE_EXECUTION):
        engines.describe(arn)
    engines.end_heartbeat("heartbeat-token", RELEASED)
    assert [token for token, _ in standard.woken] == [TOKEN]
    assert [token for token, _ in standard.ended] == ["heartbeat-token"]
    assert standard.described == [VALID_EXECUTION]
    assert [token for token, _ in durable.woken] == [CALLBACK]
    assert (durable.ended, durable.described) == ([], [DURABLE_EXECUTION])


# A workflow of which no one can hear is refused: its lock would never be free.

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:acquire"
ELSEWHERE = {
    "another account": VALID_EXECUTION.replace(ACCOUNT, "210987654321"),
    "another region": VALID_EXECUTION.replace("us-east-1", "eu-west-1"),
    "another partition": VALID_EXECUTION.replace("arn:aws:", "arn:aws-cn:"),
}


def test_no_workflow_and_one_of_this_account_and_region_are_served() -> None:
    for near in (None, VALID_EXECUTION):
        for function_arn in (FUNCTION, f"{FUNCTION}:live"):
            require_same_account(near, function_arn=function_arn)


@pytest.mark.parametrize("far", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_every_function_refuses_a_workflow_elsewhere_before_it_asks_the_table(far: str) -> None:
    """There is no table here, nor are there credentials."""
    rule = re.escape("must be an execution of this service's account and region (123456789012, us-")
    for function, event in ((acquire, NAMED), (heartbeat, BEAT), (release, NAMED)):
        with pytest.raises(InvalidRequest, match=f"^execution_arn: {rule}"):
            function.handler({**event, "execution_arn": far}, LambdaContextStub())
