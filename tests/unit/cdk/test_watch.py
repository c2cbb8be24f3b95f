"""`watch` narrows the reaper to some state machines, wherever in the app they stand."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_stepfunctions as sfn
from ministack.core.iam_evaluator import EvalContext, evaluate_resource_policy

from fairlock.cdk import LockService
from fairlock.cdk.service.reaper_rules import _IN_A_RULE, _MOST_RULES
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import machine
from tests.unit.cdk.template import (
    ACCOUNT,
    PARTITION,
    REGION,
    Json,
    durable_function,
    properties,
    resolved,
    short,
    template_of,
)

ELSEWHERE = "arn:aws:states:eu-west-1:123456789012:stateMachine:billing"


def watched(stack: Stack) -> Any:  # noqa: ANN401 - a part of a template
    """The machines that the rules of a stack match; None means all."""
    rules = properties(template_of(stack), "AWS::Events::Rule")
    details = [rule["EventPattern"]["detail"] for rule in rules]
    for detail in details:
        assert detail["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    return short([detail.get("stateMachineArn") for detail in details])


def named(*arns: str) -> list[str | Json]:
    return [each for arn in arns for each in (arn, {"prefix": f"{arn}/"})]


def test_each_watched_machine_is_in_the_rules_of_its_services_once(own: Stack) -> None:
    locks, more = LockService(own, "Locks"), LockService(own, "More")
    one, two, three, _ = (machine(own, name=name) for name in ("One", "Two", "Three", "Four"))
    imported = sfn.StateMachine.from_state_machine_arn(own, "Imported", ELSEWHERE)
    locks.watch(one, two, one)
    locks.watch(three)
    locks.watch(two)
    more.watch(one, imported)
    assert watched(own) == [named("<One>", "<Two>", "<Three>"), named("<One>", ELSEWHERE)]


def senders(stack: Stack) -> tuple[list[Any], list[Any]]:
    """The rules that may send to the dead-letter queue, and those that may send to the queue."""
    policies = properties(template_of(stack), "AWS::SQS::QueuePolicy")
    stated = [each for policy in policies for each in policy["PolicyDocument"]["Statement"]]
    conditions = [each.get("Condition", {}) for each in stated]
    [dead_letters] = [each["ArnEquals"] for each in conditions if "ArnEquals" in each]
    [events] = [each["ArnNotEquals"] for each in conditions if "ArnNotEquals" in each]
    return dead_letters["aws:SourceArn"], events["aws:SourceArn"]


def test_a_machine_of_another_stack_needs_no_reference_back(app: App, own: Stack) -> None:
    other = Stack(app, "Other")
    locks = LockService(own, "Locks")
    far, near = machine(other, name="Far"), machine(own, name="Near")
    locks.watch(far, near)
    app.synth()
    assert (own.dependencies, other.dependencies) == ([], [own])
    assert (watched(own), watched(other)) == ([named("<Near>")], [named("<Far>")])
    [rule] = properties(template_of(other), "AWS::Events::Rule")
    [target] = rule["Targets"]
    assert "LocksReaperQueue" in str(target["Arn"]["Fn::ImportValue"])
    assert "LocksReaperDeadLetterQueue" in str(target["DeadLetterConfig"]["Arn"])
    assert "RoleArn" not in target
    [near_rule] = properties(template_of(own), "AWS::Events::Rule")
    names = {near_rule["Name"], rule["Name"]}
    for rules in senders(own):
        assert {arn["Fn::Join"][1][-1].removeprefix(":rule/") for arn in rules} == names
    assert (len(names), max(map(len, names)) <= 64) == (2, True)


def test_a_machine_of_another_account_or_region_is_refused(app: App) -> None:
    stacks: list[Stack] = []
    for account, region, rule in (
        (ACCOUNT, "us-east-1", "region us-east-1: events of"),
        ("210987654321", "eu-west-1", "account 210987654321"),
    ):
        stack = Stack(app, region, env=Environment(account=account, region=region))
        imported = sfn.StateMachine.from_state_machine_arn(stack, "Imported", ELSEWHERE)
        locks = LockService(stack, "Locks")
        shared = LockService.from_stack(stack, "Shared", stack_name="Fairlock")
        for service in (locks, shared):
            with pytest.raises(InvalidRequest, match=f"^machine: must be in the service's {rule}"):
                service.watch(imported)
        stacks.append(stack)
    assert [watched(stack) for stack in stacks] == [[None], [None]]


def test_what_reports_no_ends_is_refused_by_name_and_the_reaper_is_not_narrowed(own: Stack) -> None:
    locks = LockService(own, "Locks")
    standard = machine(own, name="Standard")
    express = machine(own, name="Express", state_machine_type=sfn.StateMachineType.EXPRESS)
    version = sfn.StateMachine.from_state_machine_arn(own, "Version", f"{ELSEWHERE}:5")
    refused: list[tuple[tuple[Any, ...], str]] = [
        ((), "machines: must name at least one state machine"),
        ((standard, None), "machine: must be a state machine, made or imported"),
        ((standard, [standard]), r"machine: must be a state .* \(got a list of 1 elements\)$"),
        ((standard, ELSEWHERE), "machine: must be a state machine, made or imported"),
        ((standard, version), "machine: must be the machine itself, whose events name it, not a v"),
        ((standard, express), r"machine: must be a Standard workflow: .* \(got 'Own/Express'\)$"),
    ]
    for things, message in refused:
        with pytest.raises(InvalidRequest, match=f"^{message}"):
            locks.watch(*things)
    assert watched(own) == [None]
    with pytest.raises(InvalidRequest, match=r"^reaper: must be True for watch\(\): "):
        LockService(own, "NoReaper", reaper=False).watch(standard)


# Hundreds of watched machines fit what EventBridge and SQS take, and no forged rule gets in.

LONGEST_PATTERN: Final = 2_048
"""Characters: EventBridge user guide, "Amazon EventBridge quotas", event pattern size."""
LONGEST_POLICY: Final = 8_192
"""Bytes: SQS developer guide, "Amazon SQS policy quotas"."""
MACHINE: Final = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:stateMachine:"
LONGEST_NAME: Final = 80


def machines(stack: Stack, count: int) -> list[sfn.IStateMachine]:
    return [
        sfn.StateMachine.from_state_machine_arn(
            stack, f"Machine{number}", f"{MACHINE}{number:0{LONGEST_NAME}}"
        )
        for number in range(count)
    ]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def patterns(stack: Stack) -> list[str]:
    found = properties(template_of(stack), "AWS::Events::Rule")
    return [compact(resolved(each["EventPattern"])) for each in found]


def policy_of_the_queue(stack: Stack) -> str:
    found = properties(template_of(stack), "AWS::SQS::QueuePolicy")
    policies = [compact(resolved(each["PolicyDocument"])) for each in found]
    assert max(map(len, policies)) <= LONGEST_POLICY
    [policy] = [text for text in policies if "ArnNotEquals" in text]
    return policy


def rules(stack: Stack) -> list[str]:
    """The rules that may send to the queue."""
    return [str(resolved(each)) for each in senders(stack)[1]]


def test_machines_fill_their_rules_which_take_no_more(own: Stack) -> None:
    locks = LockService(own, "Locks")
    many = machines(own, 4 * _IN_A_RULE)
    locks.watch(*many[:3])
    locks.watch(*many)
    found = [json.loads(text)["detail"]["stateMachineArn"] for text in patterns(own)]
    watched_arns = [arn for entries in found for arn in entries if isinstance(arn, str)]
    assert sorted(watched_arns) == sorted(each.state_machine_arn for each in many)
    longest, one_more = max(map(len, patterns(own))), len(compact(found[0][:2])) - 1
    assert (len(found), longest <= LONGEST_PATTERN) == (4, True)
    assert longest + one_more > LONGEST_PATTERN


def test_as_many_rules_as_may_be_fit_the_policies_and_few_more_would(app: App, own: Stack) -> None:
    """A service with machines of so many stacks has as many rules."""
    locks = LockService(own, "Locks")
    for number in range(_MOST_RULES):
        locks.watch(*machines(Stack(app, f"Stack{number}"), 1))
    policy = policy_of_the_queue(own)
    assert len(policy) + 10 * len(compact(rules(own)[:1])) > LONGEST_POLICY
    text = r"^machines: must fit 65 EventBridge rules.*leave out watch\(\)"
    with pytest.raises(InvalidRequest, match=text):
        locks.watch(*machines(Stack(app, "More"), 1))
    with pytest.raises(InvalidRequest, match=r"^function: must fit 65 .*durable=True"):
        locks.grant_durable(durable_function(own))


def may_send(policy: str, rule: str | None, *, principal: str = "") -> bool:
    """Whether a queue with this policy takes a message of a rule, or else of a principal."""
    document = json.loads(policy)
    request = EvalContext(
        principal_arn=principal or "*",
        principal_type="AssumedRole" if principal else "Service",
        principal_account=ACCOUNT,
        action="sqs:SendMessage",
        resource_arn=str(document["Statement"][0]["Resource"]),
        region=REGION,
        secure_transport=True,
        service_context={} if rule is None else {"aws:sourcearn": rule},
    )
    service = None if principal else "events.amazonaws.com"
    return bool(evaluate_resource_policy(document, request, service=service).decision == "Allow")


def test_no_forged_rule_and_no_other_principal_can_tell_the_reaper_anything(own: Stack) -> None:
    """Else a caller that may make a rule could free the lock of an execution that runs."""
    LockService(own, "Locks").watch(*machines(own, 8))
    queue = policy_of_the_queue(own)
    real = rules(own)
    assert len(real) == 2
    assert all(may_send(queue, rule) for rule in real)
    place = real[0].rpartition("/")[0]
    alike = f"{place}/fairlock-reaper-{'0' * 24}"
    for forged in (f"{real[0]}-more", alike, f"{place}/mine", None):
        assert not may_send(queue, forged)
    anybody = f"arn:{PARTITION}:iam::{ACCOUNT}:role/administrator"
    assert not may_send(queue, f"{real[0]}x", principal=anybody)
    # The control: a prefix would let a forged rule in.
    by_prefix = json.loads(queue.replace("ArnNotEquals", "ArnNotLike"))
    condition = by_prefix["Statement"][-1]["Condition"]["ArnNotLike"]
    condition["aws:SourceArn"] = f"{place}/fairlock-reaper-*"
    assert may_send(json.dumps(by_prefix), alike)


def test_functions_share_rules_as_machines_do(own: Stack) -> None:
    locks = LockService(own, "Locks")
    for number in range(_IN_A_RULE + 1):
        locks.grant_durable(durable_function(own, f"Billing{number}"))
    found = [text for text in patterns(own) if "aws.lambda" in text]
    assert [text.count('"prefix"') for text in found] == [_IN_A_RULE, 1]
    assert max(len(text) for text in found) <= LONGEST_PATTERN
