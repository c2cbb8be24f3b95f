"""Each function's role, action by action: nothing beyond these, and no function invokes another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template

from fairlock.cdk import LockMonitoring, LockService
from tests.unit.cdk.asl import flattened
from tests.unit.cdk.template import resources

Json = dict[str, Any]

_HERE: Final = "<AWS::Region>:<AWS::AccountId>"
LOGS: Final = {("logs:CreateLogStream", "own logs"), ("logs:PutLogEvents", "own logs")}
TRACES: Final = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
WORKFLOWS: Final = {
    ("states:DescribeExecution", f"arn:<AWS::Partition>:states:{_HERE}:execution:*"),
    ("states:SendTaskSuccess", f"arn:<AWS::Partition>:states:{_HERE}:stateMachine:*"),
}
FAILURES: Final = {
    ("states:SendTaskFailure", f"arn:<AWS::Partition>:states:{_HERE}:stateMachine:*")
}
DURABLE: Final = {
    (f"lambda:{action}", f"arn:<AWS::Partition>:lambda:{_HERE}:function:*")
    for action in ("GetDurableExecution", "SendDurableExecutionCallbackSuccess")
}
QUEUE: Final = {
    (f"sqs:{action}", "the reaper's queue")
    for action in (
        "SendMessage",
        "ReceiveMessage",
        "ChangeMessageVisibility",
        "GetQueueUrl",
        "DeleteMessage",
        "GetQueueAttributes",
    )
}
EVENTS: Final = {
    ("events:PutEvents", f"arn:<AWS::Partition>:events:{_HERE}:event-bus/default"),
    ("dynamodb:ListStreams", "*"),
    ("dynamodb:DescribeStream", "the stream"),
    ("dynamodb:GetRecords", "the stream"),
    ("dynamodb:GetShardIterator", "the stream"),
}


def table(*actions: str) -> set[tuple[str, str]]:
    return {(f"dynamodb:{action}", "the table") for action in actions}


ROLES: Final = {
    "Acquire": table("UpdateItem", "PutItem", "DeleteItem", "Query", "GetItem")
    | WORKFLOWS
    | DURABLE,
    "Release": table("UpdateItem", "DeleteItem", "Query", "GetItem") | WORKFLOWS | DURABLE,
    "Heartbeat": table("UpdateItem", "PutItem", "DeleteItem", "Query", "GetItem")
    | WORKFLOWS
    | FAILURES
    | DURABLE,
    "ReaperReap": table("UpdateItem", "DeleteItem", "Query", "GetItem", "ConditionCheckItem")
    | WORKFLOWS
    | DURABLE
    | QUEUE,
    "Inspect": table("GetItem", "Query", "Scan"),
    "ForceRelease": table("UpdateItem", "DeleteItem", "Query", "GetItem") | WORKFLOWS | DURABLE,
    "SetLimit": table("UpdateItem", "DeleteItem", "Query", "GetItem") | WORKFLOWS | DURABLE,
    "Pace": table("UpdateItem", "GetItem"),
    "Publish": table("GetItem") | EVENTS,
}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    stack = Stack(App(outdir=str(tmp_path)), "Everything")
    LockService(stack, "Locks", durable=True, administration=True, pace=True, lifecycle_events=True)
    return stack


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def told(resource: object, function: str) -> str:
    """A resource in short; what is known by no short name is shown as it is."""
    name = flattened(resource)
    for start, short in {
        "<LocksTable84FB9352.Arn>": "the table",
        "<LocksTable84FB9352.StreamArn>": "the stream",
        f"<Locks{function}Logs": "own logs",
        "<LocksReaperQueueF04E53F2.Arn>": "the reaper's queue",
    }.items():
        if name.startswith(start):
            return short
    return name


def granted(template: Json) -> dict[str, set[tuple[str, str]]]:
    """What the roles of functions may do, by function; no statement has a NotAction or a Deny."""
    found: dict[str, set[tuple[str, str]]] = {}
    for policy in resources(template, "AWS::IAM::Policy").values():
        [role] = [flattened(each) for each in policy["Properties"]["Roles"]]
        function = role.removeprefix("<Locks").split("Role", maxsplit=1)[0]
        found.setdefault(function, set()).update(pairs(policy, function))
    return found


def pairs(policy: Json, function: str) -> Iterator[tuple[str, str]]:
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        assert set(statement) <= {"Effect", "Action", "Resource"}
        assert statement["Effect"] == "Allow"
        for action in listed(statement["Action"]):
            for resource in listed(statement["Resource"]):
                yield action, told(resource, function)


def test_a_role_may_do_what_its_function_needs_and_nothing_else(stack: Stack) -> None:
    template = dict(Template.from_stack(stack).to_json())
    always = LOGS | TRACES
    assert granted(template) == {name: each | always for name, each in ROLES.items()}


def test_a_role_is_assumed_by_lambda_alone_and_has_no_policy_of_aws(stack: Stack) -> None:
    roles = resources(dict(Template.from_stack(stack).to_json()), "AWS::IAM::Role")
    assert len(roles) == len(ROLES)
    for role in roles.values():
        [statement] = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}
        assert not {"ManagedPolicyArns", "Policies"} & set(role["Properties"])


def test_no_function_may_be_invoked_from_outside_by_its_own_policy(stack: Stack) -> None:
    template = dict(Template.from_stack(stack).to_json())
    kinds = ("AWS::Lambda::Permission", "AWS::Lambda::Url")
    assert [name for kind in kinds for name in resources(template, kind)] == []


@pytest.mark.parametrize(
    ("action", "resource"),
    [("states:StopExecution", "*"), ("dynamodb:*", "*"), ("dynamodb:Scan", "the table")],
)
def test_control_one_action_more_is_noticed(stack: Stack, action: str, resource: str) -> None:
    locks = stack.node.find_child("Locks")
    assert isinstance(locks, LockService)
    release = locks.release_function.role
    assert release is not None
    arn = locks.table.table_arn if resource == "the table" else resource
    release.add_to_principal_policy(iam.PolicyStatement(actions=[action], resources=[arn]))
    found = granted(dict(Template.from_stack(stack).to_json()))
    assert found["Release"] - ROLES["Release"] - LOGS - TRACES == {(action, resource)}


def physical_names(template: Json) -> set[str]:
    """What a template calls by a name of its own, in the account and region; no references."""
    names = ("Name", "TableName", "FunctionName", "QueueName", "LogGroupName", "AlarmName")
    return {
        resource["Properties"][name]
        for resource in template["Resources"].values()
        for name in names
        if isinstance(resource.get("Properties", {}).get(name), str)
    }


def deployed_as(stack_name: str, path: Path) -> Json:
    """The same app under the name of a stack, as `dev` and `prod` of one account are made."""
    stack = Stack(App(outdir=str(path)), "Same", stack_name=stack_name)
    locks = LockService(stack, "Locks", durable=True, lifecycle_events=True)
    locks.add_outputs()
    locks.share()
    LockMonitoring(stack, "Monitoring", service=locks)
    machine = sfn.Pass(stack, "Nothing")
    body = sfn.DefinitionBody.from_chainable(machine)
    locks.watch(sfn.StateMachine(stack, "Machine", definition_body=body))
    return dict(Template.from_stack(stack).to_json())


def test_dev_and_prod_of_one_account_have_no_name_in_common(tmp_path: Path) -> None:
    dev, prod = (physical_names(deployed_as(name, tmp_path / name)) for name in ("dev", "prod"))
    assert len(dev) > 10
    assert dev & prod == set()


def test_control_two_of_the_same_name_have_all_in_common(tmp_path: Path) -> None:
    first, second = (physical_names(deployed_as("dev", tmp_path / name)) for name in ("a", "b"))
    assert first == second
