"""Hundreds of watched machines fit what EventBridge and SQS take, and no forged rule gets in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from ministack.core.iam_evaluator import EvalContext, evaluate_resource_policy

from fairlock.cdk import LockService
from fairlock.cdk.service.reaper_rules import _IN_A_RULE, _MOST_RULES
from fairlock.errors import InvalidRequest
from tests.unit.cdk.test_durable import durable_function

Json = dict[str, Any]

LONGEST_PATTERN: Final = 2_048
"""Characters: EventBridge user guide, "Amazon EventBridge quotas", event pattern size."""
LONGEST_POLICY: Final = 8_192
"""Bytes: SQS developer guide, "Amazon SQS policy quotas"."""
PARTITION, REGION, ACCOUNT = "aws-us-gov", "ap-southeast-2", "123456789012"
"""As long as they get, though this partition has no such region."""
MACHINE: Final = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:stateMachine:"
LONGEST_NAME: Final = 80
FORMS: Final = {
    "AWS::Partition": PARTITION,
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::StackName": "x" * 128,
}


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path))


def machines(stack: Stack, count: int) -> list[sfn.IStateMachine]:
    """State machines with the longest ARNs."""
    return [
        sfn.StateMachine.from_state_machine_arn(
            stack, f"Machine{number}", f"{MACHINE}{number:0{LONGEST_NAME}}"
        )
        for number in range(count)
    ]


def resolved(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A part of a template as CloudFormation sends it, each name as long as it gets."""
    if isinstance(value, list):
        return [resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["Ref"]:
        return FORMS.get(value["Ref"], "r" * 64)
    if list(value) == ["Fn::Join"]:
        delimiter, parts = value["Fn::Join"]
        return delimiter.join(resolved(parts))
    if list(value) == ["Fn::GetAtt"]:
        return f"arn:{PARTITION}:lambda:{REGION}:{ACCOUNT}:function:".ljust(123, "f")
    imported = list(value) in (["Fn::ImportValue"], ["Fn::Select"])
    return "i" * 128 if imported else {key: resolved(each) for key, each in value.items()}


def texts(stack: Stack, kind: str, name: str) -> list[str]:
    found = Template.from_stack(stack).find_resources(kind).values()
    return [json.dumps(resolved(each["Properties"][name]), separators=(",", ":")) for each in found]


def patterns(stack: Stack) -> list[str]:
    return texts(stack, "AWS::Events::Rule", "EventPattern")


def policies(stack: Stack) -> list[str]:
    return texts(stack, "AWS::SQS::QueuePolicy", "PolicyDocument")


def watched(patterns: list[str]) -> list[str]:
    return [
        arn
        for pattern in patterns
        for arn in json.loads(pattern)["detail"]["stateMachineArn"]
        if isinstance(arn, str)
    ]


def test_two_hundred_machines_fit_their_rules_and_the_queues_policies(app: App) -> None:
    stack = Stack(app, "Own")
    locks = LockService(stack, "Locks")
    many = machines(stack, 200)
    locks.watch(*many[:3])
    locks.watch(*many)
    assert sorted(watched(patterns(stack))) == sorted(each.state_machine_arn for each in many)
    assert max(len(text) for text in patterns(stack)) <= LONGEST_PATTERN
    assert max(len(text.encode()) for text in policies(stack)) <= LONGEST_POLICY


def test_control_one_more_machine_in_a_rule_does_not_fit(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.cdk.service.reaper_rules._IN_A_RULE", _IN_A_RULE + 1)
    stack = Stack(app, "Own")
    LockService(stack, "Locks").watch(*machines(stack, _IN_A_RULE + 1))
    [pattern] = patterns(stack)
    assert len(pattern) > LONGEST_PATTERN


def of_as_many_stacks(app: App, count: int) -> tuple[Stack, LockService]:
    """A service with machines of so many stacks, so with as many rules."""
    own = Stack(app, "Own")
    locks = LockService(own, "Locks")
    for number in range(count):
        [machine] = machines(Stack(app, f"Stack{number}"), 1)
        locks.watch(machine)
    return own, locks


def test_as_many_rules_as_may_be_fit_the_queues_policies(app: App) -> None:
    own, locks = of_as_many_stacks(app, _MOST_RULES)
    assert max(len(text.encode()) for text in policies(own)) <= LONGEST_POLICY
    [machine] = machines(Stack(app, "More"), 1)
    with pytest.raises(
        InvalidRequest, match=r"^machines: must fit 65 EventBridge rules.*leave out watch\(\)"
    ):
        locks.watch(machine)
    with pytest.raises(InvalidRequest, match=r"^function: must fit 65 .*durable=True"):
        locks.grant_durable(durable_function(own))


def test_control_more_rules_do_not_fit(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlock.cdk.service.reaper_rules._MOST_RULES", 100)
    own, _ = of_as_many_stacks(app, _MOST_RULES + 10)
    assert max(len(text.encode()) for text in policies(own)) > LONGEST_POLICY


def may_send(policy: Json, rule: str | None, *, principal: str = "") -> bool:
    """Whether a queue with this policy takes a message of a rule, or else of a principal."""
    request = EvalContext(
        principal_arn=principal or "*",
        principal_type="AssumedRole" if principal else "Service",
        principal_account=ACCOUNT,
        action="sqs:SendMessage",
        resource_arn=str(policy["Statement"][0]["Resource"]),
        region=REGION,
        secure_transport=True,
        service_context={} if rule is None else {"aws:sourcearn": rule},
    )
    service = None if principal else "events.amazonaws.com"
    answer = evaluate_resource_policy(policy, request, service=service)
    return bool(answer.decision == "Allow")


def rules(policy: Json) -> list[str]:
    [condition] = [
        each["Condition"]["ArnNotEquals"]
        for each in policy["Statement"]
        if "ArnNotEquals" in each.get("Condition", {})
    ]
    found: list[str] = condition["aws:SourceArn"]
    return found


def test_a_forged_rule_cannot_tell_the_reaper_anything(app: App) -> None:
    """Else a caller that may make a rule could free the lock of an execution that runs."""
    stack = Stack(app, "Own")
    LockService(stack, "Locks").watch(*machines(stack, 8))
    [queue] = [json.loads(text) for text in policies(stack) if "ArnNotEquals" in text]
    real = rules(queue)
    assert len(real) == 2
    assert all(may_send(queue, rule) for rule in real)
    place = real[0].rpartition("/")[0]
    forged = [f"{real[0]}-more", f"{place}/fairlock-reaper-{'0' * 24}", f"{place}/mine", None]
    assert not any(may_send(queue, rule) for rule in forged)


def test_control_a_prefix_would_let_a_forged_rule_in(app: App) -> None:
    stack = Stack(app, "Own")
    LockService(stack, "Locks").watch(*machines(stack, 8))
    [text] = [text for text in policies(stack) if "ArnNotEquals" in text]
    place = rules(json.loads(text))[0].rpartition("/")[0]
    by_prefix = json.loads(text.replace("ArnNotEquals", "ArnNotLike"))
    by_prefix["Statement"][-1]["Condition"]["ArnNotLike"]["aws:SourceArn"] = (
        f"{place}/fairlock-reaper-*"
    )
    assert may_send(by_prefix, f"{place}/fairlock-reaper-{'0' * 24}")


def test_no_principal_but_the_reapers_role_may_send(app: App) -> None:
    stack = Stack(app, "Own")
    LockService(stack, "Locks").watch(*machines(stack, 1))
    [queue] = [json.loads(text) for text in policies(stack) if "ArnNotEquals" in text]
    anybody = f"arn:{PARTITION}:iam::{ACCOUNT}:role/administrator"
    assert not may_send(queue, rules(queue)[0] + "x", principal=anybody)


def test_functions_share_rules_as_machines_do(app: App) -> None:
    stack = Stack(app, "Own")
    locks = LockService(stack, "Locks", reaper=True)
    for number in range(_IN_A_RULE + 1):
        locks.grant_durable(durable_function(stack, f"Billing{number}"))
    found = [text for text in patterns(stack) if "aws.lambda" in text]
    assert [text.count('"prefix"') for text in found] == [_IN_A_RULE, 1]
    assert max(len(text) for text in found) <= LONGEST_PATTERN
