"""`watch` narrows the reaper to some state machines, wherever in the app they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template

from fairlock.cdk import LockGuard, LockService
from fairlock.errors import InvalidRequest

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


def test_without_watch_the_rule_matches_every_machine(own: Stack) -> None:
    LockService(own, "Locks")
    assert watched(own) == [None]


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


def test_the_rule_of_another_stack_has_the_same_targets(own: Stack, other: Stack) -> None:
    locks = LockService(own, "Locks")
    locks.watch(machine(other, "Far", locks))
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


def test_an_imported_machine_is_watched_by_its_arn(own: Stack) -> None:
    imported = sfn.StateMachine.from_state_machine_arn(own, "Imported", ELSEWHERE)
    LockService(own, "Locks").watch(imported)
    assert watched(own) == [[ELSEWHERE, {"prefix": f"{ELSEWHERE}/"}]]


def test_the_children_of_a_distributed_map_are_watched_with_their_machine(own: Stack) -> None:
    imported = sfn.StateMachine.from_state_machine_arn(own, "Imported", ELSEWHERE)
    LockService(own, "Locks").watch(imported)
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
