"""Actions of IAM, each with the roles that are allowed it; every other role is to be denied.

On the service's own resources where there are any: what a role may do elsewhere interests less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from testbed.localaws.environment import ACCOUNT, REGION
from tests.e2e.deployment import Deployment
from tests.e2e.roles.stack import FUNCTIONS, role_arn

_READERS: Final = "Acquire Heartbeat Release Reap Inspect ForceRelease SetLimit Client"
_TELLERS: Final = "Acquire Heartbeat Release Reap ForceRelease SetLimit Client"
"""Who may hand a lock over: they ask whether a waiter still runs, and tell it."""
_ITEMS: Final = {
    "GetItem": f"{_READERS} Publish",
    "PutItem": "Acquire Heartbeat Client",
    "UpdateItem": _TELLERS,
    "DeleteItem": _TELLERS,
    "Query": _READERS,
    "Scan": "Inspect",
    "ConditionCheckItem": "Reap Client",
}
_STREAM: Final = "DescribeStream GetShardIterator GetRecords"
_QUEUE: Final = """
    SendMessage ReceiveMessage DeleteMessage ChangeMessageVisibility GetQueueAttributes
    GetQueueUrl
"""


def to(roles: str, actions: str) -> dict[str, str]:
    """The same roles for each action."""
    return dict.fromkeys(actions.split(), roles)


class Rights(NamedTuple):
    """Actions of one service on one resource.

    Attributes:
        allowed: the roles of each action that some are allowed.
        denied: actions that no role is allowed.
    """

    service: str
    resource: str
    allowed: Mapping[str, str]
    denied: str = ""

    def actions(self) -> list[str]:
        return [f"{self.service}:{action}" for action in (*self.allowed, *self.denied.split())]

    def of(self, role: str) -> set[str]:
        """The actions that this role is allowed."""
        roles = self.allowed.items()
        return {f"{self.service}:{action}" for action, each in roles if role in each.split()}


def all_rights(deployment: Deployment) -> list[Rights]:
    """On the resources that the outputs of the stack name."""
    return [*_of_the_table_and_workflows(deployment), *_of_the_rest(deployment)]


def _of_the_table_and_workflows(deployment: Deployment) -> Iterator[Rights]:
    outputs = deployment.outputs["Fairlock"]
    here = f"{REGION}:{ACCOUNT}"
    table, machine = outputs["LockTableArn"], outputs["MachineArn"]
    execution = f"{machine.replace(':stateMachine:', ':execution:')}:any"
    durable = f"arn:aws:lambda:{here}:function:any:1/durable-execution/run/id"
    another_table = f"arn:aws:dynamodb:{here}:table/another-table"
    yield Rights(
        "dynamodb",
        table,
        _ITEMS,
        "BatchGetItem BatchWriteItem PartiQLDelete DescribeTable UpdateTimeToLive UpdateTable"
        " UpdateContinuousBackups CreateBackup TagResource PutResourcePolicy DeleteTable",
    )
    yield Rights("dynamodb", another_table, {}, f"{' '.join(_ITEMS)} BatchWriteItem")
    yield Rights("dynamodb", outputs["StreamArn"], to("Publish", _STREAM))
    yield Rights("dynamodb", f"{another_table}/stream/any", {}, "GetRecords")
    yield Rights("dynamodb", "*", {"ListStreams": "Publish"}, "ListTables")
    yield Rights(
        "states",
        execution,
        {"DescribeExecution": _TELLERS},
        "StopExecution RedriveExecution GetExecutionHistory",
    )
    yield Rights(
        "states",
        machine,  # For a task token AWS asks for the machine that waits.
        {"SendTaskSuccess": _TELLERS, "SendTaskFailure": "Heartbeat"},
        "SendTaskHeartbeat StartExecution ListExecutions DescribeStateMachine UpdateStateMachine"
        " DeleteStateMachine",
    )
    yield Rights(
        "lambda",
        durable,
        to(_TELLERS, "SendDurableExecutionCallbackSuccess GetDurableExecution"),
        "SendDurableExecutionCallbackFailure StopDurableExecution CheckpointDurableExecution",
    )
    for service, resource, actions in (
        ("states", execution, "DescribeExecution"),
        ("states", machine, "SendTaskSuccess SendTaskFailure StartExecution"),
        ("lambda", durable, "SendDurableExecutionCallbackSuccess GetDurableExecution"),
    ):
        yield Rights(service, resource.replace(ACCOUNT, "123456789012"), {}, actions)


def _of_the_rest(deployment: Deployment) -> Iterator[Rights]:
    outputs = deployment.outputs["Fairlock"]
    here, queue = f"{REGION}:{ACCOUNT}", outputs["ReapQueueArn"]
    yield Rights("sqs", queue, to("Reap", _QUEUE), "SetQueueAttributes PurgeQueue DeleteQueue")
    letters = outputs["ReapDeadLetterQueueUrl"].rpartition("/")[2]
    yield Rights("sqs", f"arn:aws:sqs:{here}:{letters}", {}, f"{_QUEUE} PurgeQueue")
    bus = f"arn:aws:events:{here}:event-bus/default"
    yield Rights("events", bus, {"PutEvents": "Publish"}, "PutRule ListRules")
    traces = to(" ".join(FUNCTIONS), "PutTraceSegments PutTelemetryRecords")
    yield Rights("xray", "*", traces, "GetTraceSummaries")
    yield Rights("iam", role_arn(deployment, "Acquire"), {}, "PassRole")
    functions = deployment.aws.client("lambda")
    for function in FUNCTIONS:
        found = functions.get_function_configuration(
            FunctionName=deployment.function_name(function)
        )
        invokers = "Guard User" if function in {"Acquire", "Heartbeat", "Release"} else ""
        yield Rights(
            "lambda",
            found["FunctionArn"],
            {"InvokeFunction": invokers},
            "GetFunction UpdateFunctionConfiguration UpdateFunctionCode PutFunctionConcurrency"
            " AddPermission PublishVersion DeleteFunction",
        )
        group = found["LoggingConfig"]["LogGroup"]
        yield Rights(
            "logs",
            f"arn:aws:logs:{here}:log-group:{group}:log-stream:any",
            to(function, "CreateLogStream PutLogEvents"),
            "GetLogEvents FilterLogEvents DeleteLogStream DeleteLogGroup",
        )
