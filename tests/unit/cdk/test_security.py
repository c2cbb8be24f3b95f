"""cdk-nag and cfn-lint find nothing but what is acknowledged, each with its reason."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from constructs import IConstruct

from fairlock.cdk import LockMonitoring, LockService
from tests.unit.cdk.asl import flattened
from tests.unit.cdk.template import SECONDS, lint, resources

Json = dict[str, Any]


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


def test_the_service_follows_the_aws_solutions_rules(lock_stack: Stack) -> None:
    assert findings(lock_stack) == []


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
