"""`watch` narrows the reaper to some state machines, wherever in the app they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from ministack.core.iam_evaluator import EvalContext, evaluate_resource_policy

from fairlock.cdk import LockGuard, LockService
from fairlock.cdk.service.reaper_rules import _IN_A_RULE, _MOST_RULES
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import ACCOUNT, PARTITION, REGION, durable_function, resolved

Json = dict[str, Any]

LONGEST_RULE_NAME = 64
ELSEWHERE = "arn:aws:states:eu-west-1:123456789012:stateMachine:billing"


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path))


@pytest.fixture
def own(app: App) -> Stack:
    return Stack(app, "Own")


@pytest.fixture
def other(app: App) -> Stack:
    return Stack(app, "Other")


def machine(stack: Stack, name: str, locks: LockService) -> sfn.StateMachine:
    guard = LockGuard(
        stack, f"{name}Guard", service=locks, task=sfn.Pass(stack, f"{name}Work"), lock_name="x"
    )
    body = sfn.DefinitionBody.from_chainable(guard)
    return sfn.StateMachine(stack, name, definition_body=body)


def watched(stack: Stack) -> list[Any]:
    """The machines that the rules of a stack match; None means all."""
    rules = Template.from_stack(stack).find_resources("AWS::Events::Rule")
    details = [rule["Properties"]["EventPattern"]["detail"] for rule in rules.values()]
    for detail in details:
        assert detail["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    return [detail.get("stateMachineArn") for detail in details]


def reference(*machines: sfn.StateMachine) -> list[Json]:
    arns = [Stack.of(each).resolve(each.state_machine_arn) for each in machines]
    return [it for arn in arns for it in (arn, {"prefix": {"Fn::Join": ["", [arn, "/"]]}})]


def test_only_the_machines_that_are_watched_are_in_the_rule(own: Stack) -> None:
    locks = LockService(own, "Locks")
    one, two, three, _ = (machine(own, name, locks) for name in ("One", "Two", "Three", "Four"))
    locks.watch(one, two)
    locks.watch(three)
    assert watched(own) == [reference(one, two, three)]


def test_a_machine_is_in_one_rule_once_however_often_it_is_watched(own: Stack) -> None:
    locks = LockService(own, "Locks")
    watched_twice = machine(own, "Machine", locks)
    locks.watch(watched_twice, watched_twice)
    locks.watch(watched_twice)
    assert watched(own) == [reference(watched_twice)]


def test_machines_of_other_stacks_need_no_reference_back(
    app: App, own: Stack, other: Stack
) -> None:
    locks = LockService(own, "Locks")
    far, near = machine(other, "Far", locks), machine(own, "Near", locks)
    locks.watch(far, near)
    app.synth()
    assert other.dependencies == [own]
    assert own.dependencies == []
    assert (watched(own), watched(other)) == ([reference(near)], [reference(far)])
    [rule] = Template.from_stack(other).find_resources("AWS::Events::Rule").values()
    [target] = rule["Properties"]["Targets"]
    assert "LocksReaperQueue" in str(target["Arn"]["Fn::ImportValue"])
    assert "LocksReaperDeadLetterQueue" in str(target["DeadLetterConfig"]["Arn"])
    assert "RoleArn" not in target


def senders(stack: Stack) -> list[Any]:
    """The rules that may send to the dead-letter queue, and those that may send to the queue."""
    policies = Template.from_stack(stack).find_resources("AWS::SQS::QueuePolicy").values()
    conditions = [
        statement.get("Condition", {})
        for policy in policies
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    found = [
        condition[operator]["aws:SourceArn"]
        for condition in conditions
        for operator in ("ArnEquals", "ArnNotEquals")
        if operator in condition
    ]
    assert len(found) == 2
    assert found[0] == found[1]
    arns: list[Any] = found[0]
    return arns


def rule_names(stack: Stack) -> list[str]:
    rules = Template.from_stack(stack).find_resources("AWS::Events::Rule").values()
    return [rule["Properties"]["Name"] for rule in rules]


def test_the_queue_takes_messages_of_the_rules_of_watched_machines_only(
    own: Stack, other: Stack
) -> None:
    locks = LockService(own, "Locks")
    locks.watch(machine(own, "Near", locks))
    locks.watch(machine(other, "Far", locks))
    [near], [far] = rule_names(own), rule_names(other)
    ends = [arn["Fn::Join"][1][-1] for arn in senders(own)]
    assert [end.removeprefix(":rule/") for end in ends] == [near, far]
    assert near != far
    assert max(len(name) for name in (near, far)) <= LONGEST_RULE_NAME


def test_an_app_that_is_deployed_twice_under_two_stack_names_has_other_rules(
    tmp_path: Path,
) -> None:
    names = []
    for name in ("test", "production"):
        stack = Stack(App(outdir=str(tmp_path / name)), "Own", stack_name=name)
        imported = sfn.StateMachine.from_state_machine_arn(stack, "Imported", ELSEWHERE)
        LockService(stack, "Locks").watch(imported)
        names += rule_names(stack)
    assert len(set(names)) == len(names) == 2


def test_two_services_may_watch_one_machine(own: Stack) -> None:
    locks, more = LockService(own, "Locks"), LockService(own, "More")
    shared = machine(own, "Machine", locks)
    locks.watch(shared)
    more.watch(shared)
    assert watched(own) == [reference(shared)] * 2


def test_an_imported_machine_is_watched_by_its_arn_with_its_distributed_maps(
    own: Stack,
) -> None:
    imported = sfn.StateMachine.from_state_machine_arn(own, "Imported", ELSEWHERE)
    LockService(own, "Locks").watch(imported)
    assert watched(own) == [[ELSEWHERE, {"prefix": f"{ELSEWHERE}/"}]]
    [[exactly, children]] = watched(own)
    arns = [f"{ELSEWHERE}/each-customer", f"{ELSEWHERE}-2", f"{ELSEWHERE}-2/each-customer"]
    assert [arn == exactly or arn.startswith(children["prefix"]) for arn in arns] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            Environment(account="123456789012", region="us-east-1"),
            r"^machine: must be in the service's region us-east-1: events of",
        ),
        (
            Environment(account="210987654321", region="eu-west-1"),
            r"^machine: must be in the service's account 210987654321",
        ),
    ],
)
def test_a_machine_of_another_account_or_region_is_refused(
    app: App, environment: Environment, message: str
) -> None:
    stack = Stack(app, "Placed", env=environment)
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Imported", ELSEWHERE)
    locks = LockService(stack, "Locks")
    with pytest.raises(InvalidRequest, match=message):
        locks.watch(imported)
    assert watched(stack) == [None]


def test_a_service_without_reaper_cannot_watch(own: Stack) -> None:
    locks = LockService(own, "Locks", reaper=False)
    with pytest.raises(InvalidRequest, match=r"^reaper: must be True for watch\(\): "):
        locks.watch(machine(own, "Machine", locks))


def test_no_machine_is_a_mistake_and_does_not_switch_the_reaper_off(own: Stack) -> None:
    locks = LockService(own, "Locks")
    with pytest.raises(InvalidRequest, match=r"^machines: must name at least one state machine"):
        locks.watch()
    assert watched(own) == [None]


def test_what_reports_no_ends_is_refused_by_name_and_the_reaper_is_not_narrowed(own: Stack) -> None:
    locks = LockService(own, "Locks")
    kinds = sfn.StateMachineType
    express, standard = (
        sfn.StateMachine(
            own,
            kind.value,
            definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(own, f"{kind.value}Work")),
            state_machine_type=kind,
        )
        for kind in (kinds.EXPRESS, kinds.STANDARD)
    )
    version = sfn.StateMachine.from_state_machine_arn(own, "Version", f"{ELSEWHERE}:5")
    refused: list[tuple[Any, str]] = [
        (None, r"^machine: must be a state machine, made or imported"),
        ([standard], r"^machine: must be a state machine, .* \(got a list of 1 elements\)$"),
        (ELSEWHERE, r"^machine: must be a state machine, made or imported"),
        (version, r"^machine: must be the machine itself, whose events name it, not a version"),
        (express, r"^machine: must be a Standard workflow: .* \(got 'Own/EXPRESS'\)$"),
    ]
    for thing, message in refused:
        with pytest.raises(InvalidRequest, match=message):
            locks.watch(standard, thing)
    assert watched(own) == [None]


# Hundreds of watched machines fit what EventBridge and SQS take, and no forged rule gets in.

LONGEST_PATTERN: Final = 2_048
"""Characters: EventBridge user guide, "Amazon EventBridge quotas", event pattern size."""
LONGEST_POLICY: Final = 8_192
"""Bytes: SQS developer guide, "Amazon SQS policy quotas"."""
MACHINE: Final = f"arn:{PARTITION}:states:{REGION}:{ACCOUNT}:stateMachine:"
LONGEST_NAME: Final = 80


def machines(stack: Stack, count: int) -> list[sfn.IStateMachine]:
    """State machines with the longest ARNs."""
    return [
        sfn.StateMachine.from_state_machine_arn(
            stack, f"Machine{number}", f"{MACHINE}{number:0{LONGEST_NAME}}"
        )
        for number in range(count)
    ]


def texts(stack: Stack, kind: str, name: str) -> list[str]:
    found = Template.from_stack(stack).find_resources(kind).values()
    return [json.dumps(resolved(each["Properties"][name]), separators=(",", ":")) for each in found]


def patterns(stack: Stack) -> list[str]:
    return texts(stack, "AWS::Events::Rule", "EventPattern")


def policies(stack: Stack) -> list[str]:
    return texts(stack, "AWS::SQS::QueuePolicy", "PolicyDocument")


def many_watched(patterns: list[str]) -> list[str]:
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
    assert sorted(many_watched(patterns(stack))) == sorted(each.state_machine_arn for each in many)
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
