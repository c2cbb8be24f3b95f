"""Each function's role, action by action: nothing beyond these, and no function invokes another."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from constructs import IConstruct

from fairlock.cdk import LockMonitoring, LockService
from tests.unit.cdk.template import SECONDS, flattened, lint, resources

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


PLAIN: Final = ("Acquire", "Release", "Heartbeat", "ReaperReap")


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


@pytest.mark.parametrize("deployed", ["everything", "lock_template"])
def test_a_role_may_do_what_its_function_needs_and_nothing_else(
    deployed: str, request: pytest.FixtureRequest
) -> None:
    """The stack Fairlock has the first four functions, and serves no durable ones."""
    template, always = request.getfixturevalue(deployed), LOGS | TRACES
    names, more = (ROLES, DURABLE) if deployed == "everything" else (PLAIN, set())
    expected = {name: (ROLES[name] - DURABLE) | (ROLES[name] & more) | always for name in names}
    assert granted(template) == expected
    kinds = ("AWS::Lambda::Permission", "AWS::Lambda::Url", "AWS::IAM::ManagedPolicy")
    assert [name for kind in kinds for name in resources(template, kind)] == []


@pytest.mark.parametrize("deployed", ["everything", "lock_template"])
def test_a_role_is_assumed_by_lambda_alone_and_has_no_policy_of_aws(
    deployed: str, request: pytest.FixtureRequest
) -> None:
    roles = resources(request.getfixturevalue(deployed), "AWS::IAM::Role")
    assert len(roles) == len(ROLES if deployed == "everything" else PLAIN)
    for role in roles.values():
        [statement] = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}
        assert not {"ManagedPolicyArns", "Policies"} & set(role["Properties"])


def test_control_each_action_more_is_noticed(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Wider")
    locks = LockService(stack, "Locks", reaper=False)
    release = locks.release_function.role
    assert release is not None
    more = {("states:StopExecution", "*"), ("dynamodb:*", "*"), ("dynamodb:Scan", "the table")}
    for action, resource in more:
        arn = locks.table.table_arn if resource == "the table" else resource
        release.add_to_principal_policy(iam.PolicyStatement(actions=[action], resources=[arn]))
    found = granted(dict(Template.from_stack(stack).to_json()))
    assert found["Release"] - ROLES["Release"] - LOGS - TRACES == more


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


# cdk-nag and cfn-lint find nothing but what is acknowledged, each with its reason.


OF_MACHINES = {"AwsSolutions-SF1", "AwsSolutions-SF2"}
"""The log and the traces of a state machine: its owner decides, not a guard in it."""
VERSIONS = re.compile(r"AwsSolutions-IAM5\[Resource::.*:\*\]")
"""CDK lets a state invoke each version of its function: a wildcard behind the function's ARN."""


def findings(stack: Stack) -> list[tuple[str, str]]:
    """Rules of AwsSolutions that the stack breaks without acknowledgment, and where."""
    from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415 - only the process that runs these needs it

    report = AwsSolutionsChecks(verbose=True).validate_scope(stack)
    found = [
        (violation.rule_name, resource.construct_path or "")
        for violation in report.violations
        for resource in violation.violating_resources
    ]
    assert report.success == (not found)
    return found


def acknowledged(root: IConstruct) -> dict[str, dict[str, str]]:
    """The acknowledged rules and their reasons, by construct."""
    return {
        construct.node.path: {
            rule.removeprefix("Annotation::AwsSolutions-"): reason
            for entry in construct.node.metadata
            if entry.type == Validations.ACKNOWLEDGED_RULES_METADATA_KEY
            for rule, reason in entry.data.items()
        }
        for construct in root.node.find_all()
    }


def with_plain_definitions(template: Json) -> Json:
    """State machines whose definitions cfn-lint can read.

    References are replaced by their names, and the seconds of a Wait or a timeout by a number: Step
    Functions documents JSONata there, cfn-lint 1.58 does not know it.
    """
    plain = copy.deepcopy(template)
    for resource in plain["Resources"].values():
        if resource["Type"] == "AWS::StepFunctions::StateMachine":
            properties = resource["Properties"]
            definition = flattened(properties["DefinitionString"]).replace(
                "<AWS::Partition>", "aws"
            )
            properties["DefinitionString"] = SECONDS.sub(r"\1:1", definition)
    return plain


def test_the_service_follows_the_aws_solutions_rules_with_all_that_can_be_asked_for(
    everything_stack: Stack,
) -> None:
    assert findings(everything_stack) == []


def test_the_demo_follows_the_aws_solutions_rules(demo_app: App) -> None:
    demo = demo_app.node.find_child("FairlockDemo")
    assert isinstance(demo, Stack)
    assert findings_but_versions(demo) == []


def test_the_durable_function_of_the_demo_follows_the_aws_solutions_rules(demo_app: App) -> None:
    durable = demo_app.node.find_child("FairlockDemoDurable")
    assert isinstance(durable, Stack)
    # CDK lets it invoke each version of the functions: a wildcard behind their ARNs.
    assert [rule for rule, _ in findings(durable) if not VERSIONS.fullmatch(rule)] == []


def test_a_guard_adds_no_finding_to_its_machine(forms_stack: Stack) -> None:
    assert {rule for rule, _ in findings_but_versions(forms_stack)} == OF_MACHINES


def findings_but_versions(stack: Stack) -> list[tuple[str, str]]:
    """Without the wildcards that CDK writes into the roles of state machines."""
    machines = [each for each in stack.node.find_all() if isinstance(each, sfn.StateMachine)]
    policies = {f"{machine.node.path}/Role/DefaultPolicy/Resource" for machine in machines}
    assert policies
    return [
        (rule, path)
        for rule, path in findings(stack)
        if path not in policies or not VERSIONS.fullmatch(rule)
    ]


def test_a_customers_key_adds_no_finding(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Encrypted")
    LockService(stack, "Locks", encryption_key=kms.Key(stack, "Key", enable_key_rotation=True))
    assert findings(stack) == []


def test_monitoring_of_a_shared_service_adds_no_finding(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Watching")
    topic = sns.Topic(stack, "Topic", enforce_ssl=True)
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    LockMonitoring(stack, "Monitoring", service=locks, alarm_topic=topic)
    assert findings(stack) == []
    assert lint(dict(Template.from_stack(stack).to_json())) == []


def test_a_wildcard_without_acknowledgment_is_found(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Wider")
    acquire = LockService(stack, "Locks").node.find_child("AcquireRole")
    assert isinstance(acquire, iam.Role)
    acquire.add_to_policy(iam.PolicyStatement(actions=["dynamodb:*"], resources=["*"]))
    assert {rule for rule, _ in findings(stack)} == {"AwsSolutions-IAM5[Action::dynamodb:*]"}


def test_each_acknowledged_rule_has_its_reason(lock_stack: Stack) -> None:
    xray = {"IAM5[Resource::*]": "X-Ray's write actions take no resource."}
    runtime = {"L1": "The handlers are tested with python3.13."}
    states = "IAM5[Resource::arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>"
    executions = {
        f"{states}:execution:*]": (
            "Any workflow of this account and region may hold a lock; read-only."
        )
    }
    machines = {
        f"{states}:stateMachine:*]": (
            "Any workflow of this account and region may wait; its task token is needed."
        )
    }
    reasons = {path: rules for path, rules in acknowledged(lock_stack).items() if rules}
    assert reasons == {
        "Fairlock/Locks/Acquire": runtime,
        "Fairlock/Locks/AcquireRole": {**xray, **executions, **machines},
        "Fairlock/Locks/Heartbeat": runtime,
        "Fairlock/Locks/HeartbeatRole": {**xray, **executions, **machines},
        "Fairlock/Locks/Reaper/Reap": runtime,
        "Fairlock/Locks/Reaper/ReapRole": {**xray, **executions, **machines},
        "Fairlock/Locks/Release": runtime,
        "Fairlock/Locks/ReleaseRole": {**xray, **executions, **machines},
    }


def test_cfn_lint_accepts_the_lock_stack(lock_template: Json) -> None:
    assert lint(lock_template) == []


def test_cfn_lint_accepts_the_demo_stack(demo_app: App) -> None:
    demo = demo_app.node.find_child("FairlockDemo")
    assert isinstance(demo, Stack)
    assert lint(with_plain_definitions(dict(Template.from_stack(demo).to_json()))) == []


def test_cfn_lint_accepts_the_state_machines_of_all_forms(forms: Json) -> None:
    plain = with_plain_definitions(forms)
    role = {"RoleArn": "arn:aws:iam::123456789012:role/any"}
    machines = {
        name: {"Type": machine["Type"], "Properties": {**machine["Properties"], **role}}
        for name, machine in resources(plain, "AWS::StepFunctions::StateMachine").items()
    }
    assert len(machines) > 10
    assert lint({"Resources": machines}) == []


def test_cfn_lint_reads_the_definitions(forms: Json) -> None:
    name, machine = next(iter(resources(forms, "AWS::StepFunctions::StateMachine").items()))
    broken = with_plain_definitions({"Resources": {name: {**machine, "DependsOn": []}}})
    properties = broken["Resources"][name]["Properties"]
    properties["RoleArn"] = "arn:aws:iam::123456789012:role/any"
    assert lint(broken) == []
    definition = properties["DefinitionString"]
    properties["DefinitionString"] = definition.replace("Arguments", "Argument")
    assert any("E3601" in finding for finding in lint(broken))
