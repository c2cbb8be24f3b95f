"""Each function's role, action by action: nothing beyond these, and no function invokes another."""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from typing import Final

from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockMonitoring, LockService
from fairlock.cdk.service.shared_service import SharedLockService
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.guard_forms import machine
from tests.unit.cdk.template import (
    SECONDS,
    Json,
    flattened,
    lint,
    listed,
    properties,
    resources,
    short,
    template_of,
)

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
_ON_MESSAGES: Final = ("SendMessage", "ReceiveMessage", "ChangeMessageVisibility", "DeleteMessage")
QUEUE: Final = {
    (f"sqs:{action}", "<ReaperQueue.Arn>")
    for action in (*_ON_MESSAGES, "GetQueueUrl", "GetQueueAttributes")
}
EVENTS: Final = {
    ("events:PutEvents", f"arn:<AWS::Partition>:events:{_HERE}:event-bus/default"),
    ("dynamodb:ListStreams", "*"),
    *(
        (f"dynamodb:{action}", "<Table.StreamArn>")
        for action in ("DescribeStream", "GetRecords", "GetShardIterator")
    ),
}


def table(*actions: str) -> set[tuple[str, str]]:
    return {(f"dynamodb:{action}", "<Table.Arn>") for action in actions}


HANDS_OVER: Final = (
    table("UpdateItem", "DeleteItem", "Query", "GetItem") | WORKFLOWS | DURABLE | LOGS | TRACES
)
ROLES: Final = {
    "Acquire": table("PutItem") | HANDS_OVER,
    "Release": HANDS_OVER,
    "Heartbeat": table("PutItem") | HANDS_OVER | FAILURES,
    "ReaperReap": table("ConditionCheckItem") | HANDS_OVER | QUEUE,
    "Inspect": table("GetItem", "Query", "Scan") | LOGS | TRACES,
    "ForceRelease": HANDS_OVER,
    "SetLimit": HANDS_OVER,
    "Pace": table("UpdateItem", "GetItem") | LOGS | TRACES,
    "Publish": table("GetItem") | EVENTS | LOGS | TRACES,
}


PLAIN: Final = ("Acquire", "Release", "Heartbeat", "ReaperReap")
"""The stack Fairlock has these functions, and serves no durable ones."""


def granted(template: Json) -> dict[str, set[tuple[str, str]]]:
    """What the roles of functions may do, by function; no statement has a NotAction or a Deny."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for policy in short(properties(template, "AWS::IAM::Policy")):
        [role] = policy["Roles"]
        function = role.strip("<>").removesuffix("Role")
        for statement in policy["PolicyDocument"]["Statement"]:
            assert set(statement) <= {"Effect", "Action", "Resource"}
            assert statement["Effect"] == "Allow"
            found[function] |= {
                (action, resource.replace(f"<{function}Logs.Arn>", "own logs"))
                for action in listed(statement["Action"])
                for resource in listed(statement["Resource"])
            }
    return found


def test_a_role_may_do_what_its_function_needs_and_nothing_else(
    everything: Json, lock_template: Json
) -> None:
    plain = {each: ROLES[each] - DURABLE for each in PLAIN}
    kinds = ("AWS::Lambda::Permission", "AWS::Lambda::Url", "AWS::IAM::ManagedPolicy")
    for template, expected in ((everything, ROLES), (lock_template, plain)):
        assert granted(template) == expected
        assert [name for kind in kinds for name in resources(template, kind)] == []
        roles = properties(template, "AWS::IAM::Role")
        assert len(roles) == len(expected)
        for role in roles:
            [statement] = role["AssumeRolePolicyDocument"]["Statement"]
            assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}
            assert not {"ManagedPolicyArns", "Policies"} & set(role)


def test_control_each_action_more_is_noticed_also_by_cdk_nag(own: Stack) -> None:
    locks = LockService(own, "Locks", reaper=False)
    release = locks.release_function.role
    assert release is not None
    more = {("states:StopExecution", "*"), ("dynamodb:*", "*"), ("dynamodb:Scan", "<Table.Arn>")}
    for action, resource in more:
        arn = locks.table.table_arn if resource == "<Table.Arn>" else resource
        release.add_to_principal_policy(iam.PolicyStatement(actions=[action], resources=[arn]))
    assert granted(template_of(own))["Release"] == (ROLES["Release"] - DURABLE) | more
    assert {rule for rule, _ in findings(own)} == {"AwsSolutions-IAM5[Action::dynamodb:*]"}


def physical_names(template: Json) -> set[str]:
    """What a template calls by a name of its own, in the account and region; no references."""
    names = ("Name", "TableName", "FunctionName", "QueueName", "LogGroupName", "AlarmName")
    return {
        resource["Properties"][name]
        for resource in template["Resources"].values()
        for name in names
        if isinstance(resource.get("Properties", {}).get(name), str)
    }


def deployed_as(stack_name: str, app: App) -> Json:
    """The same app under the name of a stack, as `dev` and `prod` of one account are made."""
    stack = Stack(app, "Same", stack_name=stack_name)
    locks = LockService(stack, "Locks", durable=True, lifecycle_events=True)
    locks.add_outputs()
    locks.share()
    LockMonitoring(stack, "Monitoring", service=locks)
    locks.watch(machine(stack))
    return template_of(stack)


def test_dev_and_prod_of_one_account_have_no_name_in_common(new_app: NewApp) -> None:
    dev, prod = (physical_names(deployed_as(name, new_app())) for name in ("dev", "prod"))
    assert len(dev) == len(prod) > 10
    assert dev & prod == set()


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


def with_plain_definitions(template: Json) -> Json:
    """State machines whose definitions cfn-lint can read.

    References are replaced by their names, and the seconds of a Wait or a timeout by a number: Step
    Functions documents JSONata there, cfn-lint 1.58 does not know it.
    """
    plain = copy.deepcopy(template)
    for each in properties(plain, "AWS::StepFunctions::StateMachine"):
        definition = flattened(each["DefinitionString"]).replace("<AWS::Partition>", "aws")
        each["DefinitionString"] = SECONDS.sub(r"\1:1", definition)
    return plain


def test_the_whole_service_follows_the_aws_solutions_rules(everything_stack: Stack) -> None:
    assert findings(everything_stack) == []


def test_the_demo_follows_the_aws_solutions_rules(demo_app: App) -> None:
    demo, durable = map(demo_app.node.find_child, ("FairlockDemo", "FairlockDemoDurable"))
    assert isinstance(demo, Stack)
    assert findings_but_versions(demo) == set()
    assert isinstance(durable, Stack)
    # CDK lets it invoke each version of the functions: a wildcard behind their ARNs.
    assert [rule for rule, _ in findings(durable) if not VERSIONS.fullmatch(rule)] == []


def test_a_guard_adds_no_finding_to_its_machine(forms_stack: Stack) -> None:
    assert findings_but_versions(forms_stack) == OF_MACHINES


def findings_but_versions(stack: Stack) -> set[str]:
    """The rules, without the wildcards that CDK writes into the roles of state machines."""
    machines = [each for each in stack.node.find_all() if isinstance(each, sfn.StateMachine)]
    policies = {f"{each.node.path}/Role/DefaultPolicy/Resource" for each in machines}
    assert policies
    found = findings(stack)
    return {rule for rule, path in found if path not in policies or not VERSIONS.fullmatch(rule)}


def test_neither_a_customers_key_nor_monitoring_adds_a_finding(
    own: Stack, imported: SharedLockService
) -> None:
    LockService(own, "Own", encryption_key=kms.Key(own, "Key", enable_key_rotation=True))
    topic = sns.Topic(own, "Topic", enforce_ssl=True)
    LockMonitoring(own, "Monitoring", service=imported, alarm_topic=topic)
    assert findings(own) == []


def test_each_acknowledged_rule_has_its_reason(lock_stack: Stack) -> None:
    states = "IAM5[Resource::arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>"
    any_workflow = "Any workflow of this account and region may"
    reasons = {
        "L1": "The handlers are tested with python3.13.",
        "IAM5[Resource::*]": "X-Ray's write actions take no resource.",
        f"{states}:execution:*]": f"{any_workflow} hold a lock; read-only.",
        f"{states}:stateMachine:*]": f"{any_workflow} wait; its task token is needed.",
    }
    acknowledged = {
        (rule.removeprefix("Annotation::AwsSolutions-"), reason)
        for construct in lock_stack.node.find_all()
        for entry in construct.node.metadata
        if entry.type == Validations.ACKNOWLEDGED_RULES_METADATA_KEY
        for rule, reason in entry.data.items()
    }
    assert acknowledged == {*reasons.items()}


def test_cfn_lint_accepts_the_whole_service(everything: Json) -> None:
    assert lint(everything) == []


def test_cfn_lint_accepts_the_demo_stack(demo_app: App) -> None:
    demo = demo_app.node.find_child("FairlockDemo")
    assert isinstance(demo, Stack)
    assert lint(with_plain_definitions(template_of(demo))) == []


def test_cfn_lint_accepts_the_machines_of_all_forms_and_finds_a_wrong_one(forms: Json) -> None:
    role = {"RoleArn": "arn:aws:iam::123456789012:role/any"}
    kind = "AWS::StepFunctions::StateMachine"
    machines: dict[str, Json] = {
        name: {"Type": kind, "Properties": {**machine["Properties"], **role}}
        for name, machine in resources(with_plain_definitions(forms), kind).items()
    }
    assert len(machines) > 10
    wrong = copy.deepcopy(next(iter(machines.values())))
    definition = wrong["Properties"]["DefinitionString"]
    wrong["Properties"]["DefinitionString"] = definition.replace("Arguments", "Argument")
    found = lint({"Resources": {**machines, "Wrong": wrong}})
    assert found
    assert all(each.startswith("E3601 in Wrong: ") for each in found)
