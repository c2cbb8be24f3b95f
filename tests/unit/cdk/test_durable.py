"""Durable functions: what they are given, and what the service may do for them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template

from fairlock.cdk import LockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import (
    ACCOUNT,
    PARTITION,
    REGION,
    durable_function,
    resolved,
    resources,
)
from tests.unit.cdk.test_least_privilege import findings

Json = dict[str, Any]
ACTIONS = ["lambda:GetDurableExecution", "lambda:SendDurableExecutionCallbackSuccess"]
OF_USERS = {"Resource", "ServiceRole/Resource", "ServiceRole/DefaultPolicy/Resource"}
ENDS = ["FAILED", "TIMED_OUT", "STOPPED"]


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path))


@pytest.fixture
def own(app: App) -> Stack:
    return Stack(app, "Own")


def statements_about_durable(template: Json) -> dict[str, Json]:
    """The statements with the actions on durable executions, by the policy."""
    return {
        name: statement
        for name, policy in resources(template, "AWS::IAM::Policy").items()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Action"] == ACTIONS
    }


def durable_rules(template: Json) -> list[Json]:
    rules = resources(template, "AWS::Events::Rule").values()
    patterns = [rule["Properties"]["EventPattern"] for rule in rules]
    return [each["detail"] for each in patterns if each["source"] == ["aws.lambda"]]


def functions_that_meet_durable(template: Json) -> set[str]:
    return {
        name[:-8]
        for name, function in resources(template, "AWS::Lambda::Function").items()
        if "FAIRLOCK_DURABLE" in str(function["Properties"].get("Environment"))
    }


def test_a_service_that_serves_no_durable_function_may_do_nothing_with_them(own: Stack) -> None:
    LockService(own, "Locks")
    template = dict(Template.from_stack(own).to_json())
    assert statements_about_durable(template) == {}
    assert durable_rules(template) == []
    assert functions_that_meet_durable(template) == set()


def test_a_function_may_acquire_and_release_and_finds_the_service(own: Stack) -> None:
    locks, function = LockService(own, "Locks"), durable_function(own)
    locks.grant_durable(function)
    template = dict(Template.from_stack(own).to_json())
    [resource] = [
        each
        for name, each in resources(template, "AWS::Lambda::Function").items()
        if name.startswith("Billing")
    ]
    variables = resource["Properties"]["Environment"]["Variables"]
    assert [value["Fn::GetAtt"][0][:-8] for value in variables.values()] == [
        "LocksAcquire",
        "LocksRelease",
    ]
    [policy] = [
        each["Properties"]["PolicyDocument"]["Statement"]
        for name, each in resources(template, "AWS::IAM::Policy").items()
        if name.startswith("BillingServiceRoleDefaultPolicy")
    ]
    assert {statement["Action"] for statement in policy} == {"lambda:InvokeFunction"}


def test_the_service_may_wake_and_ask_about_that_function_and_no_other(own: Stack) -> None:
    locks, function = LockService(own, "Locks"), durable_function(own)
    durable_function(own, "Other")
    locks.grant_durable(function)
    locks.grant_durable(function)
    arn = own.resolve(function.function_arn)
    template = dict(Template.from_stack(own).to_json())
    [(name, statement)] = statements_about_durable(template).items()
    # Without a version it would match no execution.
    assert statement["Resource"] == {"Fn::Join": ["", [arn, ":*"]]}
    roles = template["Resources"][name]["Properties"]["Roles"]
    assert [role["Ref"][:-8] for role in roles] == [
        "LocksAcquireRole",
        "LocksHeartbeatRole",
        "LocksReleaseRole",
        "LocksReaperReapRole",
    ]
    assert durable_rules(template) == [
        {"status": ENDS, "functionArn": [arn, {"prefix": {"Fn::Join": ["", [arn, ":"]]}}]}
    ]
    assert functions_that_meet_durable(template) == {
        "LocksAcquire",
        "LocksHeartbeat",
        "LocksRelease",
        "LocksReaperReap",
    }


def test_a_function_of_another_stack_needs_no_reference_back(app: App, own: Stack) -> None:
    other = Stack(app, "Other")
    locks = LockService(own, "Locks")
    locks.grant_durable(durable_function(other))
    app.synth()
    assert own.dependencies == []
    assert other.dependencies == [own]
    template = dict(Template.from_stack(other).to_json())
    assert len(statements_about_durable(template)) == 1
    assert len(durable_rules(template)) == 1


def test_a_service_without_a_reaper_has_no_rule(own: Stack) -> None:
    LockService(own, "Locks", reaper=False).grant_durable(durable_function(own))
    template = dict(Template.from_stack(own).to_json())
    assert durable_rules(template) == []
    assert len(statements_about_durable(template)) == 1


def test_a_service_of_all_durable_functions_serves_those_of_other_apps(own: Stack) -> None:
    locks = LockService(own, "Locks", durable=True)
    locks.grant_durable(durable_function(own))
    template = dict(Template.from_stack(own).to_json())
    found = statements_about_durable(template)
    assert sorted(name.partition("DefaultPolicy")[0] for name in found) == [
        "LocksAcquireRole",
        "LocksHeartbeatRole",
        "LocksReaperReapRole",
        "LocksReleaseRole",
    ]
    assert all(":function:*" in str(statement["Resource"]) for statement in found.values())
    assert durable_rules(template) == [{"status": ENDS}]


def test_to_watch_machines_does_not_narrow_durable_functions(own: Stack) -> None:
    locks = LockService(own, "Locks", durable=True)
    arn = own.format_arn(service="states", resource="stateMachine", resource_name="billing")
    locks.watch(sfn.StateMachine.from_state_machine_arn(own, "Machine", arn))
    template = dict(Template.from_stack(own).to_json())
    assert durable_rules(template) == [{"status": ENDS}]
    assert len(resources(template, "AWS::Events::Rule")) == 2


def test_versions_and_aliases_are_refused(own: Stack) -> None:
    locks, function = LockService(own, "Locks"), durable_function(own)
    with pytest.raises(InvalidRequest, match=r"^function: must be a lambda_.Function"):
        locks.grant_durable(function.current_version)  # type: ignore[arg-type]  # that it is refused


def test_a_function_of_another_region_is_refused(app: App) -> None:
    here = Stack(app, "Here", env=Environment(region="eu-west-1", account="123456789012"))
    there = Stack(app, "There", env=Environment(region="us-east-1", account="123456789012"))
    locks = LockService(here, "Locks")
    with pytest.raises(InvalidRequest, match="account and region"):
        locks.grant_durable(durable_function(there))


def test_the_permissions_of_the_service_are_acknowledged(own: Stack) -> None:
    """Those of a service that serves all: see tests/unit/cdk/test_least_privilege.py."""
    locks, function = LockService(own, "Locks"), durable_function(own)
    locks.grant_durable(function)
    # Beside them stand the findings of the user's own function.
    of_function = {f"{function.node.path}/{each}" for each in OF_USERS}
    assert {path for _, path in findings(own)} <= of_function


# A hundred durable functions fit what IAM takes of the policies of a role; keys of theirs.

MOST_INLINE: Final = 10_240
MOST_IN_MANAGED: Final = 6_144
MOST_MANAGED: Final = 10
"""IAM user guide, "IAM and AWS STS quotas": characters without white space, and policies a role."""
_OF_THE_SERVICE: Final = re.compile(r"Locks\w*?Role[0-9A-F]{8}")
KEY: Final = f"arn:{PARTITION}:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"


def sizes(*stacks: Stack) -> tuple[int, int, int]:
    """Of all roles: the most inline characters, the longest managed policy, the most of these."""
    inline: Counter[str] = Counter()
    managed: Counter[str] = Counter()
    longest = 0
    for stack in stacks:
        found = dict(Template.from_stack(stack).to_json())["Resources"].values()
        for each in found:
            properties = each.get("Properties", {})
            # By reference in the service's stack, by the name of an export in others.
            roles = _OF_THE_SERVICE.findall(json.dumps(properties.get("Roles", [])))
            text = json.dumps(resolved(properties.get("PolicyDocument")), separators=(",", ":"))
            if each["Type"] == "AWS::IAM::Policy":
                inline.update(dict.fromkeys(roles, len(text)))
            elif each["Type"] == "AWS::IAM::ManagedPolicy":
                managed.update(roles)
                longest = max(longest, len(text))
    return max(inline.values()), longest, max(managed.values(), default=0)


def serving(stack: Stack, functions: int) -> LockService:
    locks = LockService(stack, "Locks", administration=True)
    # A role for all: it is the service's roles that are counted.
    role = iam.Role.from_role_arn(stack, "Role", f"arn:aws:iam::{ACCOUNT}:role/r", mutable=False)
    for number in range(functions):
        locks.grant_durable(durable_function(stack, f"Billing{number}", role=role))
    return locks


def test_a_hundred_functions_fit_the_policies_of_each_role(app: App) -> None:
    stack = Stack(app, "Own")
    serving(stack, 100)
    inline, longest, managed = sizes(stack)
    assert inline <= MOST_INLINE
    assert longest <= MOST_IN_MANAGED
    assert 0 < managed <= MOST_MANAGED
    named = [json.dumps(each["Resource"]) for each in statements_of(stack)]
    assert sum(text.count('":*"') for text in named) == 100


def test_control_inline_policies_alone_do_not_fit(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.cdk.service.served_functions._MOST_INLINE", 100_000)
    stack = Stack(app, "Own")
    serving(stack, 50)
    assert sizes(stack)[0] > MOST_INLINE


def test_a_few_functions_take_one_inline_policy(app: App) -> None:
    stack = Stack(app, "Own")
    locks = serving(stack, 5)
    locks.grant_durable(durable_function(Stack(app, "Other"), "Billing"))
    assert sizes(stack)[1:] == (0, 0)
    template = dict(Template.from_stack(stack).to_json())
    assert len(statements_about_durable(template)) == 1


def test_what_fits_no_policy_is_refused_with_the_setting_that_serves_all(app: App) -> None:
    stack = Stack(app, "Own")
    locks = serving(stack, 1)
    stacks = [Stack(app, f"Stack{number}") for number in range(40)]
    served: list[Stack] = []
    with pytest.raises(InvalidRequest, match=r"^function: must fit what IAM takes .*durable=True"):
        served.extend(each for each in stacks if locks.grant_durable(durable_function(each)))
    inline, longest, managed = sizes(stack, *served)
    assert len(served) > 15
    assert (inline <= MOST_INLINE, longest <= MOST_IN_MANAGED) == (True, True)
    assert managed <= MOST_MANAGED


def statements_of(stack: Stack) -> list[Json]:
    resources = dict(Template.from_stack(stack).to_json()).get("Resources", {})
    return [
        statement
        for each in resources.values()
        for statement in each.get("Properties", {}).get("PolicyDocument", {}).get("Statement", [])
        if "Durable" in str(statement["Action"]) or "kms:Decrypt" in str(statement["Action"])
    ]


@pytest.mark.parametrize("serves_all", [False, True])
def test_the_service_may_decrypt_with_the_key_of_a_function(app: App, *, serves_all: bool) -> None:
    """Lambda developer guide, "Encryption for durable execution state": callbacks ask for it."""
    stack = Stack(app, "Own")
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    locks = LockService(stack, "Locks", durable=serves_all)
    for name in ("One", "Two"):
        locks.grant_durable(durable_function(stack, name), key=key)
    found = [each for each in statements_of(stack) if each["Action"] == "kms:Decrypt"]
    assert found == [{"Action": "kms:Decrypt", "Effect": "Allow", "Resource": KEY}]


def test_a_service_of_another_stack_cannot_be_given_a_key(app: App) -> None:
    stack = Stack(app, "Own")
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    with pytest.raises(InvalidRequest, match=r"^key: must be left out .* the key's policy allow"):
        locks.grant_durable(durable_function(stack), key=key)
