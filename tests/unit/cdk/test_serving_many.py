"""A hundred durable functions fit what IAM takes of the policies of a role; keys of theirs."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Template

from fairlock.cdk import LockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.test_durable import durable_function, statements_about_durable
from tests.unit.cdk.test_watching_many import ACCOUNT, PARTITION, REGION, resolved

Json = dict[str, Any]

MOST_INLINE: Final = 10_240
MOST_IN_MANAGED: Final = 6_144
MOST_MANAGED: Final = 10
"""IAM user guide, "IAM and AWS STS quotas": characters without white space, and policies a role."""
_OF_THE_SERVICE: Final = re.compile(r"Locks\w*?Role[0-9A-F]{8}")
KEY: Final = f"arn:{PARTITION}:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path))


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
    for number in range(functions):
        locks.grant_durable(durable_function(stack, f"Billing{number}"))
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
    serving(stack, 100)
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


def test_without_a_key_the_service_may_decrypt_nothing(app: App) -> None:
    stack = Stack(app, "Own")
    serving(stack, 1)
    assert "kms:" not in str(Template.from_stack(stack).to_json())


def test_a_service_of_another_stack_cannot_be_given_a_key(app: App) -> None:
    stack = Stack(app, "Own")
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    with pytest.raises(InvalidRequest, match=r"^key: must be left out .* the key's policy allow"):
        locks.grant_durable(durable_function(stack), key=key)
