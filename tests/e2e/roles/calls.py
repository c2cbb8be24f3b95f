"""Requests to AWS, each with the roles that may make it; every other role is to be denied.

A request names the service's own resources where it can: what a role may do elsewhere interests
less. Requests that delete something are listed too: they are denied, or the test has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]
Requests = Mapping[str, Json]
"""The arguments of each request, by its method of the service's boto3 client."""

ACCOUNT: Final = "000000000000"
OTHER_TABLE: Final = "another-table"
_EXECUTION: Final = f"arn:aws:states:us-east-1:{ACCOUNT}:execution:machine:gone"
_FUNCTIONS: Final = (
    *("Acquire", "Heartbeat", "Release", "Reap", "Inspect", "ForceRelease", "SetLimit", "Publish"),
)
_KEY: Final = {"pk": {"S": "LOCK#none"}, "sk": {"S": "LOCK"}}
_ELSEWHERE_STREAM: Final = f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/{OTHER_TABLE}/stream/any"


@dataclass(frozen=True)
class Call:
    """One request, and the roles that may make it.

    Attributes:
        operation: a method of the service's boto3 client.
        on: the resource, in words.
    """

    service: str
    operation: str
    on: str
    arguments: Json = field(repr=False, hash=False)
    allowed: frozenset[str]

    def __str__(self) -> str:
        return f"{self.service}.{self.operation} on {self.on}"


@dataclass(frozen=True)
class Simulated:
    """An action that the embedded AWS enforces on another resource than AWS, or not at all.

    `SimulatePrincipalPolicy` says whether the role's policies allow it.
    """

    action: str
    resource: str
    allowed: frozenset[str]

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}"


AnyCall = Call | Simulated


def calls(outputs: Mapping[str, str]) -> list[AnyCall]:
    """All requests, on the resources that the outputs of the stack name."""
    found: list[AnyCall] = [
        *_calls("dynamodb", "items of the lock table", _items(outputs["LockTableName"]), _LOCKS),
        *_calls("dynamodb", "items of another table", _items(OTHER_TABLE)),
        *_calls("dynamodb", "the lock table", _table(outputs)),
        *_functions(outputs),
        *_calls("stepfunctions", "workflows", _workflows(outputs["MachineArn"]), _LIVENESS),
        *_calls("sqs", "the reaper's queue", _queue(outputs["ReapQueueUrl"]), _REAPING),
        *_calls("sqs", "the dead letters", _queue(outputs["ReapDeadLetterQueueUrl"])),
        *_calls("events", "the default bus", _BUS, {"put_events": "Publish"}),
        *_simulated(outputs),
    ]
    assert len({str(call) for call in found}) == len(found)
    return found


def _calls(
    service: str, on: str, requests: Requests, allowed: Mapping[str, str] | None = None
) -> Iterator[Call]:
    """`allowed` names the roles of each operation that some may do."""
    permissions = allowed or {}
    assert permissions.keys() <= requests.keys()
    for operation, arguments in requests.items():
        roles = frozenset(permissions.get(operation, "").split())
        yield Call(service, operation, on, arguments, roles)


_LOCKS: Final = {
    "get_item": "Acquire Heartbeat Release Reap Inspect ForceRelease SetLimit Publish Client",
    "put_item": "Acquire Heartbeat Client",
    "update_item": "Acquire Heartbeat Release Reap ForceRelease SetLimit Client",
    "delete_item": "Acquire Heartbeat Release Reap ForceRelease SetLimit Client",
    "query": "Acquire Heartbeat Release Reap Inspect ForceRelease SetLimit Client",
    "scan": "Inspect",
    "transact_write_items": "Reap Client",  # a check is an action of its own
}
_BUS: Final = {
    "put_events": {"Entries": [{"Source": "fairlock", "DetailType": "none", "Detail": "{}"}]},
    "list_rules": {},
}
_TELLERS: Final = "Acquire Heartbeat Release Reap ForceRelease SetLimit Client"
"""Who may hand a lock over: they ask whether a waiter still runs, and tell it."""
_LIVENESS: Final = {"describe_execution": _TELLERS}
_REAPING: Final = dict.fromkeys(
    (
        "send_message",
        "receive_message",
        "delete_message",
        "change_message_visibility",
        "get_queue_attributes",
        "get_queue_url",
    ),
    "Reap",
)


def _items(table: str) -> Requests:
    item = {"TableName": table, "Key": _KEY}
    check = {**item, "ConditionExpression": "attribute_not_exists(pk)"}
    return {
        "get_item": item,
        "put_item": {"TableName": table, "Item": _KEY},
        "update_item": item,
        "delete_item": item,
        "query": {
            "TableName": table,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": "LOCK#none"}},
        },
        "transact_write_items": {"TransactItems": [{"ConditionCheck": check}]},
        "scan": {"TableName": table},
        "batch_get_item": {"RequestItems": {table: {"Keys": [_KEY]}}},
        "batch_write_item": {"RequestItems": {table: [{"DeleteRequest": {"Key": _KEY}}]}},
        "execute_statement": {"Statement": f"DELETE FROM \"{table}\" WHERE pk = 'x'"},  # noqa: S608
    }


def _table(outputs: Mapping[str, str]) -> Requests:
    table, arn = {"TableName": outputs["LockTableName"]}, outputs["LockTableArn"]
    ttl = {"AttributeName": "expiry_time", "Enabled": False}
    return {
        "describe_table": table,
        "describe_time_to_live": table,
        "update_time_to_live": {**table, "TimeToLiveSpecification": ttl},
        "update_table": {**table, "BillingMode": "PAY_PER_REQUEST"},
        "update_continuous_backups": {
            **table,
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": False},
        },
        "create_backup": {**table, "BackupName": "copy"},
        "tag_resource": {"ResourceArn": arn, "Tags": [{"Key": "a", "Value": "b"}]},
        "put_resource_policy": {"ResourceArn": arn, "Policy": '{"Statement": []}'},
        "delete_table": table,
        "list_tables": {},
    }


def _functions(outputs: Mapping[str, str]) -> Iterator[Call]:
    for operation in _FUNCTIONS:
        invokers = "Guard User" if operation in {"Acquire", "Heartbeat", "Release"} else ""
        function = {"FunctionName": outputs[f"{operation}FunctionName"]}
        invocation = {"invoke": {**function, "Payload": b"{}"}}
        yield from _calls("lambda", operation, invocation, {"invoke": invokers})
    of_acquire = {"FunctionName": outputs["AcquireFunctionName"]}
    permission = {"Action": "lambda:InvokeFunction", "Principal": "*", "StatementId": "any"}
    requests: Requests = {
        "get_function": of_acquire,
        "update_function_configuration": {**of_acquire, "Timeout": 1},
        "update_function_code": {**of_acquire, "ZipFile": b"PK"},
        "put_function_concurrency": {**of_acquire, "ReservedConcurrentExecutions": 0},
        "add_permission": {**of_acquire, **permission},
        "publish_version": of_acquire,
        "delete_function": of_acquire,
        "list_functions": {},
        "list_event_source_mappings": {},
    }
    yield from _calls("lambda", "its settings", requests)


def _workflows(machine_arn: str) -> Requests:
    machine, execution = {"stateMachineArn": machine_arn}, {"executionArn": _EXECUTION}
    return {
        "describe_execution": execution,
        "start_execution": machine,
        "stop_execution": execution,
        "redrive_execution": execution,
        "get_execution_history": execution,
        "list_executions": machine,
        "describe_state_machine": machine,
        "update_state_machine": {**machine, "definition": "{}"},
        "delete_state_machine": machine,
        "list_state_machines": {},
    }


def _queue(url: str) -> Requests:
    queue = {"QueueUrl": url}
    message = {**queue, "ReceiptHandle": "none"}
    return {
        "send_message": {**queue, "MessageBody": "{}", "DelaySeconds": 900},
        "receive_message": {**queue, "MaxNumberOfMessages": 1},
        "delete_message": message,
        "change_message_visibility": {**message, "VisibilityTimeout": 0},
        "get_queue_attributes": {**queue, "AttributeNames": ["QueueArn"]},
        "get_queue_url": {"QueueName": url.rpartition("/")[2]},
        "set_queue_attributes": {**queue, "Attributes": {"VisibilityTimeout": "0"}},
        "purge_queue": queue,
        "delete_queue": queue,
    }


def _simulated(outputs: Mapping[str, str]) -> Iterator[Simulated]:
    """For a task token AWS asks for the machine that waits, for a log stream for that stream."""
    machine = outputs["MachineArn"]
    elsewhere = machine.replace(ACCOUNT, "123456789012")
    durable = f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:any:1/durable-execution/run/id"
    durable_elsewhere = durable.replace(ACCOUNT, "123456789012")
    callback = "lambda:SendDurableExecutionCallback"
    for action, resource, roles in (
        ("states:SendTaskSuccess", machine, _TELLERS),
        ("states:SendTaskSuccess", elsewhere, ""),
        ("states:SendTaskFailure", machine, "Heartbeat"),
        ("states:SendTaskFailure", elsewhere, ""),
        ("states:SendTaskHeartbeat", machine, ""),
        ("states:StartExecution", elsewhere, ""),
        ("states:DescribeExecution", elsewhere.replace(":stateMachine:", ":execution:"), ""),
        (f"{callback}Success", durable, _TELLERS),
        (f"{callback}Success", durable_elsewhere, ""),
        (f"{callback}Failure", durable, ""),
        ("lambda:GetDurableExecution", durable, _TELLERS),
        ("lambda:GetDurableExecution", durable_elsewhere, ""),
        ("lambda:StopDurableExecution", durable, ""),
        ("lambda:CheckpointDurableExecution", durable, ""),
        ("dynamodb:DescribeStream", outputs["StreamArn"], "Publish"),
        ("dynamodb:GetShardIterator", outputs["StreamArn"], "Publish"),
        ("dynamodb:GetRecords", outputs["StreamArn"], "Publish"),
        ("dynamodb:ListStreams", "*", "Publish"),
        ("dynamodb:GetRecords", _ELSEWHERE_STREAM, ""),
        ("xray:PutTraceSegments", "*", " ".join(_FUNCTIONS)),
        ("xray:PutTelemetryRecords", "*", " ".join(_FUNCTIONS)),
        ("xray:GetTraceSummaries", "*", ""),
        ("iam:PassRole", outputs["AcquireRoleArn"], ""),
    ):
        yield Simulated(action, resource, frozenset(roles.split()))
    for function in _FUNCTIONS:
        stream = f"{outputs[f'{function}LogGroupArn'].removesuffix(':*')}:log-stream:any"
        writer = frozenset({function})
        yield Simulated("logs:CreateLogStream", stream, writer)
        yield Simulated("logs:PutLogEvents", stream, writer)
        for action in ("GetLogEvents", "FilterLogEvents", "DeleteLogStream", "DeleteLogGroup"):
            yield Simulated(f"logs:{action}", stream, frozenset())
