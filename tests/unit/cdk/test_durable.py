"""Durable functions: what they are given, and what the service may do for them."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockService
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import (
    ACCOUNT,
    PARTITION,
    REGION,
    actions,
    durable_function,
    properties,
    resolved,
    resources,
    short,
    statements,
    template_of,
)
from tests.unit.cdk.test_least_privilege import findings

Json = dict[str, Any]
ACTIONS = ["lambda:GetDurableExecution", "lambda:SendDurableExecutionCallbackSuccess"]
OF_USERS = {"Resource", "ServiceRole/Resource", "ServiceRole/DefaultPolicy/Resource"}
ENDS = ["FAILED", "TIMED_OUT", "STOPPED"]
MEETING = ("Acquire", "Heartbeat", "Release", "ReaperReap")


def about_durable(template: Json) -> list[tuple[list[str], object]]:
    """The roles that may act on durable executions, and on those of which functions."""
    return [
        (short(policy["Roles"]), statement["Resource"])
        for policy in properties(template, "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == ACTIONS
    ]


def durable_rules(template: Json) -> list[Json]:
    patterns = [each["EventPattern"] for each in properties(template, "AWS::Events::Rule")]
    return [each["detail"] for each in patterns if each["source"] == ["aws.lambda"]]


def functions_that_meet_durable(template: Json) -> set[str]:
    functions = resources(template, "AWS::Lambda::Function").items()
    return {short(name) for name, each in functions if "FAIRLOCK_DURABLE" in str(each)}


def test_a_service_without_durable_functions_may_do_nothing_with_them(lock_template: Json) -> None:
    assert (about_durable(lock_template), durable_rules(lock_template)) == ([], [])
    assert functions_that_meet_durable(lock_template) == set()


def test_the_service_may_ask_about_a_served_function_which_may_acquire(own: Stack) -> None:
    locks, function = LockService(own, "Locks"), durable_function(own)
    durable_function(own, "Other")
    locks.grant_durable(function)
    locks.grant_durable(function)
    arn = own.resolve(function.function_arn)
    template = template_of(own)
    [billing] = properties(template, "AWS::Lambda::Function", "Billing")
    variables = short(billing["Environment"]["Variables"])
    assert [*variables.values()] == ["<Acquire.Arn>", "<Release.Arn>"]
    assert {*actions(template, "BillingServiceRoleDefaultPolicy")} == {"lambda:InvokeFunction"}
    # Without a version it would match no execution.
    every_version = {"Fn::Join": ["", [arn, ":*"]]}
    assert about_durable(template) == [([f"<{each}Role>" for each in MEETING], every_version)]
    assert durable_rules(template) == [
        {"status": ENDS, "functionArn": [arn, {"prefix": {"Fn::Join": ["", [arn, ":"]]}}]}
    ]
    assert functions_that_meet_durable(template) == {*MEETING}
    # What cdk-nag finds is of the user's own functions.
    of_functions = {f"Own/{name}/{each}" for name in ("Billing", "Other") for each in OF_USERS}
    assert {path for _, path in findings(own)} <= of_functions


def test_a_function_of_another_stack_needs_no_reference_back(app: App, own: Stack) -> None:
    other = Stack(app, "Other")
    LockService(own, "Locks").grant_durable(durable_function(other))
    # Without a reaper there is no rule.
    LockService(other, "Unreaped", reaper=False).grant_durable(durable_function(other, "Own"))
    app.synth()
    assert (own.dependencies, other.dependencies) == ([], [own])
    template = template_of(other)
    assert (len(about_durable(template)), len(durable_rules(template))) == (2, 1)


def test_a_service_of_all_durable_functions_serves_those_of_other_apps(own: Stack) -> None:
    locks = LockService(own, "Locks", durable=True)
    locks.grant_durable(durable_function(own))
    arn = own.format_arn(service="states", resource="stateMachine", resource_name="billing")
    locks.watch(sfn.StateMachine.from_state_machine_arn(own, "Machine", arn))
    template = template_of(own)
    found = about_durable(template)
    assert {role for roles, _ in found for role in roles} == {f"<{each}Role>" for each in MEETING}
    assert all(":function:*" in str(functions) for _, functions in found)
    assert durable_rules(template) == [{"status": ENDS}]
    assert len(resources(template, "AWS::Events::Rule")) == 2


def test_versions_and_functions_of_another_region_are_refused(app: App) -> None:
    regions = ("eu-west-1", "us-east-1")
    here, there = (
        Stack(app, each, env=Environment(region=each, account=ACCOUNT)) for each in regions
    )
    locks = LockService.from_stack(here, "Locks", stack_name="Fairlock")
    with pytest.raises(InvalidRequest, match="account and region"):
        locks.grant_durable(durable_function(there))
    version: Any = durable_function(here).current_version
    with pytest.raises(InvalidRequest, match=r"^function: must be a lambda_.Function"):
        locks.grant_durable(version)


# Many durable functions fit what IAM takes of the policies of a role; keys of theirs.

MANY: Final = 80
MOST_INLINE: Final = 10_240
MOST_IN_MANAGED: Final = 6_144
MOST_MANAGED: Final = 10
"""IAM user guide, "IAM and AWS STS quotas": characters without white space, and policies a role."""
_OF_THE_SERVICE: Final = re.compile(r"Locks\w*?Role[0-9A-F]{8}")
KEY: Final = f"arn:{PARTITION}:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"


def sizes(*stacks: Stack) -> tuple[int, list[int], int]:
    """Of all roles: the most inline characters, those of managed policies, the most of these."""
    inline: Counter[str] = Counter()
    managed: Counter[str] = Counter()
    lengths: list[int] = []
    for stack in stacks:
        for each in template_of(stack)["Resources"].values():
            found = each.get("Properties", {})
            # By reference in the service's stack, by the name of an export in others.
            roles = _OF_THE_SERVICE.findall(json.dumps(found.get("Roles", [])))
            text = json.dumps(resolved(found.get("PolicyDocument")), separators=(",", ":"))
            if each["Type"] == "AWS::IAM::Policy":
                inline.update(dict.fromkeys(roles, len(text)))
            elif each["Type"] == "AWS::IAM::ManagedPolicy":
                managed.update(roles)
                lengths.append(len(text))
    return max(inline.values()), lengths, max(managed.values(), default=0)


def serving(stack: Stack, functions: int) -> LockService:
    locks = LockService(stack, "Locks", administration=True)
    # A role for all: it is the service's roles that are counted.
    role = iam.Role.from_role_arn(stack, "Role", f"arn:aws:iam::{ACCOUNT}:role/r", mutable=False)
    for number in range(functions):
        locks.grant_durable(durable_function(stack, f"Billing{number}", role=role))
    return locks


def test_many_functions_fit_the_policies_of_each_role_but_not_inline_alone(own: Stack) -> None:
    serving(own, MANY)
    inline, lengths, managed = sizes(own)
    assert inline <= MOST_INLINE < inline + sum(lengths)
    assert max(lengths) <= MOST_IN_MANAGED
    assert 0 < managed <= MOST_MANAGED
    policies = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
    found = [each for kind in policies for each in properties(template_of(own), kind)]
    assert json.dumps(found).count('":*"') == MANY


def test_a_few_functions_take_one_inline_policy(own: Stack) -> None:
    serving(own, 5)
    assert sizes(own)[1:] == ([], 0)
    assert len(about_durable(template_of(own))) == 1


def test_what_fits_no_policy_is_refused_with_what_serves_all(app: App, own: Stack) -> None:
    locks = serving(own, 1)
    stacks = [Stack(app, f"Stack{number}") for number in range(40)]
    served: list[Stack] = []
    with pytest.raises(InvalidRequest, match=r"^function: must fit what IAM takes .*durable=True"):
        served.extend(each for each in stacks if locks.grant_durable(durable_function(each)))
    inline, lengths, managed = sizes(own, *served)
    assert len(served) > 15
    assert (inline <= MOST_INLINE, max(lengths) <= MOST_IN_MANAGED) == (True, True)
    assert managed <= MOST_MANAGED


def test_the_service_may_use_the_key_of_a_function(own: Stack, imported: SharedLockService) -> None:
    """Lambda developer guide, "Encryption for durable execution state": callbacks ask for it."""
    key = kms.Key.from_key_arn(own, "Key", KEY)
    functions = [durable_function(own, name) for name in ("One", "Two")]
    for serves_all in (False, True):
        locks = LockService(own, f"Locks{serves_all}", durable=serves_all)
        for function in functions:
            locks.grant_durable(function, key=key)
    found = [each for each in statements(template_of(own)) if each["Action"] == "kms:Decrypt"]
    assert found == [{"Action": "kms:Decrypt", "Effect": "Allow", "Resource": KEY}] * 2
    with pytest.raises(InvalidRequest, match=r"^key: must be left out .* the key's policy allow"):
        imported.grant_durable(functions[0], key=key)
