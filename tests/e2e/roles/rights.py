"""What may be done to which resource, and by which roles; every other role is to be denied.

The resources are the service's own where it has some: what a role may do elsewhere interests less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ACCOUNT: Final = "000000000000"
ELSEWHERE: Final = "123456789012"
"""Another account."""
FUNCTIONS: Final = (
    *("Acquire", "Heartbeat", "Release", "Reap", "Inspect", "ForceRelease", "SetLimit", "Publish"),
)
_TELLERS: Final = "Acquire Heartbeat Release Reap ForceRelease SetLimit Client"
"""Who may hand a lock over: they ask whether a waiter still runs, and tell it."""
_ITEMS: Final = {
    "GetItem": f"{_TELLERS} Inspect Publish",
    "PutItem": "Acquire Heartbeat Client",
    "UpdateItem": _TELLERS,
    "DeleteItem": _TELLERS,
    "Query": f"{_TELLERS} Inspect",
    "Scan": "Inspect",
    "ConditionCheckItem": "Reap Client",
}
_OF_NO_ONE: Final = {
    "dynamodb": "BatchGetItem BatchWriteItem PartiQLDelete DescribeTable DescribeTimeToLive "
    "UpdateTimeToLive UpdateTable UpdateContinuousBackups CreateBackup TagResource "
    "PutResourcePolicy DeleteTable ListTables",
    "events": "ListRules PutRule PutTargets",
    "iam": "PassRole",
    "lambda": "GetFunction UpdateFunctionConfiguration UpdateFunctionCode PutFunctionConcurrency "
    "AddPermission PublishVersion DeleteFunction ListFunctions ListEventSourceMappings "
    "SendDurableExecutionCallbackFailure StopDurableExecution CheckpointDurableExecution",
    "logs": "GetLogEvents FilterLogEvents DeleteLogStream DeleteLogGroup",
    "sqs": "SetQueueAttributes PurgeQueue DeleteQueue",
    "states": "StartExecution StopExecution RedriveExecution GetExecutionHistory ListExecutions "
    "DescribeStateMachine UpdateStateMachine DeleteStateMachine ListStateMachines "
    "SendTaskHeartbeat",
    "xray": "GetTraceSummaries",
}
_QUEUE: Final = (
    *("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"),
    *("GetQueueAttributes", "GetQueueUrl"),
)
_TRACES: Final = ("PutTraceSegments", "PutTelemetryRecords")
_STREAM: Final = ("DescribeStream", "GetShardIterator", "GetRecords")


def rights(outputs: Mapping[str, str]) -> dict[str, dict[str, set[str]]]:
    """The roles that may do each action, by resource; the outputs of the stack name these."""
    machine, table = outputs["MachineArn"], outputs["LockTableArn"]
    execution = f"{machine.replace(':stateMachine:', ':execution:')}:gone"
    durable = _arn("lambda", "function:any:1/durable-execution/run/id")
    invokers = dict.fromkeys(("Acquire", "Heartbeat", "Release"), "Guard User")
    dead_letters = outputs["ReapDeadLetterQueueUrl"].rpartition("/")[2]
    found = {
        table: _of("dynamodb", _ITEMS),
        _arn("dynamodb", "table/another"): _of("dynamodb", dict.fromkeys(_ITEMS, "")),
        outputs["StreamArn"]: _of("dynamodb", dict.fromkeys(_STREAM, "Publish")),
        _arn("dynamodb", "table/another/stream/any"): _of("dynamodb", dict.fromkeys(_STREAM, "")),
        machine: _of("states", {"SendTaskSuccess": _TELLERS, "SendTaskFailure": "Heartbeat"}),
        execution: _of("states", {"DescribeExecution": _TELLERS}),
        durable: _of(
            "lambda",
            {"GetDurableExecution": _TELLERS, "SendDurableExecutionCallbackSuccess": _TELLERS},
        ),
        outputs["ReapQueueArn"]: _of("sqs", dict.fromkeys(_QUEUE, "Reap")),
        _arn("sqs", dead_letters): _of("sqs", dict.fromkeys(_QUEUE, "")),
        _arn("events", "event-bus/default"): _of("events", {"PutEvents": "Publish"}),
        outputs["AcquireRoleArn"]: _of("iam", {}),
        "*": {
            **_of("dynamodb", {"ListStreams": "Publish"}),
            **_of("xray", dict.fromkeys(_TRACES, " ".join(FUNCTIONS))),
        },
    }
    for own in (machine, execution, durable):
        found[own.replace(ACCOUNT, ELSEWHERE)] = {action: set() for action in found[own]}
    for name in FUNCTIONS:
        function = _arn("lambda", f"function:{outputs[f'{name}FunctionName']}")
        found[function] = _of("lambda", {"InvokeFunction": invokers.get(name, "")})
        stream = f"{outputs[f'{name}LogGroupArn'].removesuffix(':*')}:log-stream:any"
        found[stream] = _of("logs", dict.fromkeys(("CreateLogStream", "PutLogEvents"), name))
    return found


def _arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:us-east-1:{ACCOUNT}:{resource}"


def _of(service: str, roles: Mapping[str, str]) -> dict[str, set[str]]:
    """The actions of a service: these are of the roles, and its others of no role."""
    every = {**dict.fromkeys(_OF_NO_ONE[service].split(), ""), **roles}
    return {f"{service}:{action}": set(names.split()) for action, names in every.items()}
