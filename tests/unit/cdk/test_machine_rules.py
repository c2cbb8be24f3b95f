"""Rules that need the whole state machine are told at synth, by field and rule.

All cases are in one app, which is synthesized once: sound ones beside those that break a rule.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack, Stage
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.aws_stepfunctions import TaskStateBase

from fairlock.cdk import LockGuard, OptimisticUpdate, Waiting
from fairlock.cdk.guard.guard_rules import GuardInMachine
from fairlock.errors import InvalidRequest
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.guard_forms import Case, Cases

EXPRESS, STANDARD = sfn.StateMachineType.EXPRESS, sfn.StateMachineType.STANDARD
POLL, QUEUE = Waiting.poll(), Waiting.queue()
ROLE = "arn:aws:iam::1:role/r"
NOT_A_DEFINITION = (
    "no JSON",
    "[]",
    '{"States": []}',
    '{"States": {"A": null}}',
    '{"States": {"A": {"Type": "Parallel", "Branches": 5}}}',
    '{"States": {"A": {"Type": "Map", "ItemProcessor": null}}}',
    '{"States": {"A": {"Type": "Task", "Catch": 5}}}',
    '{"States": {"A": {"Type": "Pass", "Assign": 5}}}',
)
"""What another caller may have given to CDK as a machine, which only Step Functions refuses."""


def calling(cases: Cases, name: str) -> tuple[Case, TaskStateBase]:
    """A case with a task."""
    case = cases.case(name)
    return case, case.call("Call")


def sound(cases: Cases) -> None:
    """Whatever is right, and near to a mistake."""
    case = cases.case("Express")
    case.machine(case.guard(express=True), state_machine_type=EXPRESS)
    case = cases.case("ExpressChildren")
    case.machine(case.map("Each", case.guard(express=True), EXPRESS))
    case = cases.case("StandardChildren")
    case.machine(case.map("Each", case.guard(), STANDARD))
    case = cases.case("TwoNames")
    case.machine(case.guard("Outer", case.guard("Inner")))
    case = cases.case("TwoServices")
    inner = case.guard("Inner", lock_name="same", service=cases.other_locks)
    case.machine(case.guard("Outer", inner, lock_name="same"))
    case = cases.case("OneAfterTheOther")
    later = case.guard("Later", lock_name="row")
    one, two = (case.guard(name, lock_name="row", on_timeout=later) for name in ("One", "Two"))
    case.machine(one.next(two))
    case = cases.case("Token")
    token = LockGuard.fencing_token_of(case, "Guard")
    case.machine(case.guard(task=case.map("Each", case.step("Tell", outputs=token))))
    case = cases.case("TokenPath")
    path = LockGuard.fencing_token_path_of(case, "Guard")
    parameters = {"token": sfn.JsonPath.number_at(path)}
    chain = sfn.Pass(case, "Tell", parameters=parameters).next(
        sfn.Pass(case, "Keep", input_path=path)
    )
    case.machine(case.guard(task=chain))
    case = cases.case("TokenInJsonataMachine")
    tell = {"Type": "Pass", "Output": LockGuard.fencing_token_of(case, "Guard")}
    body = sfn.CustomState(case, "Tell", state_json=tell)
    case.machine(case.guard(task=body), query_language=sfn.QueryLanguage.JSONATA)
    case, call = calling(cases, "OwnCatch")
    call.add_catch(case.step("Handle"), errors=["Known"])
    case.machine(case.guard(task=call))
    case = cases.case("BareInAFragment")
    beating = case.guard(task=case.call("Call"), keep_alive=Duration.seconds(20))
    polling = case.guard("Poll", case.call("Call2"), waiting=POLL).prefix_states("Second ")
    call = case.call("Call3")
    call.add_retry(errors=["Known"])
    guarded = beating.prefix_states("First ").next(polling).next(case.guard("Retried", call))
    case.machine(guarded.next(case.step("After")))
    case = cases.case("ByHand")
    graph = sfn.StateGraph(case.guard().start_state, "by hand").to_graph_json()
    text = Stack.of(case).to_json_string(graph)
    sfn.CfnStateMachine(case, "Machine", role_arn=ROLE, definition_string=text)
    case = cases.case("NotOurs")
    for number, text in enumerate(NOT_A_DEFINITION):
        sfn.CfnStateMachine(case, f"Machine{number}", role_arn=ROLE, definition_string=text)
    case = cases.case("MachineElsewhere")
    elsewhere = Case(Cases(cases.node.scope, "Elsewhere"), "There")  # type: ignore[arg-type]  # the app
    elsewhere.machine(case.guard())


def locked_again(cases: Cases) -> None:
    """Ways back to the guard, which then waits for the lock."""
    case = cases.case("WaitsOnceMore")
    later = case.step("Later")
    later.next(guard := case.guard(task=case.call("Call"), on_timeout=later))
    again = sfn.Choice.jsonata(case, "Again?").otherwise(case.step("Done"))
    again.when(sfn.Condition.jsonata("{% $states.input.again %}"), guard.start_state)
    case.machine(guard.next(again))


def broken(cases: Cases) -> None:
    """One case a rule."""
    case = cases.case("NoMachine")
    case.guard(task=case.step("One").next(case.step("Two")))
    sfn.StateMachine.from_state_machine_arn(
        case, "Imported", "arn:aws:states:us-east-1:123456789012:stateMachine:imported"
    )
    case = cases.case("NoMachineForUpdate")
    table = dynamodb.Table.from_table_name(case, "Accounts", "accounts")
    key = {"account": {"S": "{% $states.input.account %}"}}
    OptimisticUpdate(case, "Update", table=table, key=key, task=case.step("Compute"))
    case = cases.case("NotToldOfExpress")
    parallel = sfn.Parallel.jsonata(case, "Both").branch(case.guard(waiting=POLL))
    case.machine(case.map("Each", parallel), state_machine_type=EXPRESS)
    cases.guarded("NoExpress", express=True)
    case = cases.case("NotToldOfExpressChildren")
    case.machine(case.map("Each", case.guard(), EXPRESS))
    case = cases.case("OwnLock")
    inner = case.guard("Inner", lock_name="mine")
    chain = case.step("Before").next(inner)
    case.machine(case.guard("Outer", chain, lock_name="mine", keep_alive=Duration.seconds(20)))
    case = cases.case("WrongId")
    token = LockGuard.fencing_token_of(case, "Gaurd")
    case.machine(case.guard(task=case.step("Tell", outputs=token)))
    case = cases.case("TokenBefore")
    before = case.step("Tell", outputs=LockGuard.fencing_token_of(case, "Guard"))
    case.machine(before.next(case.guard()))
    case = cases.case("ChildSeesNoVariable")
    token = LockGuard.fencing_token_of(case, "Guard")
    child = case.step("Tell", outputs=token)
    case.machine(case.guard(task=case.map("Each", child, STANDARD)))
    for name, keep_alive in (("Later", None), ("BesideHeartbeat", Duration.seconds(20))):
        case, call = calling(cases, f"CatchAdded{name}")
        guard = case.guard(task=call, keep_alive=keep_alive)
        call.add_catch(case.step("Handle"), errors=["Known"])
        case.machine(guard)
    case, call = calling(cases, "WayPastTheLock")
    guard = case.guard(task=call)
    urgent = sfn.Choice.jsonata(case, "Urgent?").when(sfn.Condition.jsonata("{% true %}"), call)
    case.machine(urgent.otherwise(guard))


def unlocked(cases: Cases) -> None:
    """Every way to a task that is not its guard's grant."""
    case, call = calling(cases, "AfterItself")
    case.machine(case.guard(task=call).next(call))
    case, call = calling(cases, "AfterItselfInAMap")
    case.machine(case.map("Each", case.guard(task=call).next(call)))
    case, call = calling(cases, "AfterItselfBehindSeveral")
    case.machine(case.guard(task=call, lock_name=["one", "two"]).next(call))
    case, call = calling(cases, "AfterAStateOfTheGuardsScope")
    guard = case.guard(task=call)
    case.machine(guard.next(sfn.Pass.jsonata(guard, "Log").next(call)))
    case, call = calling(cases, "AfterTheWait")
    later = case.step("Later")
    guard = case.guard(task=call, on_timeout=later)
    later.next(call)
    case.machine(guard)
    case, call = calling(cases, "AfterANewer")
    later = case.step("Later")
    guard = case.guard(task=call, only_newest=True, on_superseded=later)
    later.next(call)
    case.machine(guard)
    case, call = calling(cases, "AfterAnotherGuard")
    case.machine(case.guard("One", on_timeout=call).next(case.guard(task=call)))
    case, call = calling(cases, "AfterAnError")
    case.machine(case.call("First").add_catch(call).next(case.guard(task=call)))
    case = cases.case("ByName")
    goto = sfn.CustomState(case, "Goto", state_json={"Type": "Pass", "Next": "Guard: Work"})
    case.machine(case.guard().next(goto))
    case = cases.case("Inside")
    goto = sfn.CustomState(case, "Goto", state_json={"Type": "Pass", "Next": "Guard: Acquire"})
    case.machine(case.guard(task=case.call("Call")).next(goto))
    case, call = calling(cases, "AtTheStart")
    guard = case.guard(task=call)
    case.machine(sfn.Chain.custom(call, [call], call))
    case, call = calling(cases, "InAnotherGuard")
    case.guard(task=call)
    case.machine(case.guard("Other", case.step("Before").next(call)))


def misread(cases: Cases) -> None:
    """Fencing tokens that would be handed on as texts."""
    for name, read in (
        ("JsonataInJsonPath", LockGuard.fencing_token_of),
        ("PathAsText", LockGuard.fencing_token_path_of),
    ):
        case = cases.case(name)
        parameters = {"token": read(case, "Guard")}
        case.machine(case.guard(task=sfn.Pass(case, "Tell", parameters=parameters)))
    case = cases.case("PathInJsonata")
    outputs = {"tokens": [LockGuard.fencing_token_path_of(case, "Guard")]}
    case.machine(case.guard(task=case.step("Tell", outputs=outputs)))


def doubtful(cases: Cases) -> None:
    """Guards of one lock that do not fit together, which is mostly a mistake."""
    skip = {"waiting": POLL, "max_wait": Duration.seconds(0)}
    pairs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Limits": ({"limit": 1}, {"limit": 2}),
        "Ways": ({"waiting": POLL}, {"waiting": QUEUE}),
        "Skips": (skip, {"waiting": QUEUE}),
        "ReaderAndWriter": ({"shared": True}, {}),
        "ReaderAndSemaphore": ({"shared": True}, {"limit": 5}),
        "Unknown": ({"limit": 4}, {"limit": "{% $states.input.limit %}"}),
    }
    for name, (one, two) in pairs.items():
        case = cases.case(name)
        first, second = (
            case.guard(each, lock_name=name, **props)
            for each, props in (("One", one), ("Two", two))
        )
        case.machine(first.next(second))
    case = cases.case("Upgrade")
    inner = case.guard("Inner", lock_name="upgrade")
    case.machine(case.guard("Outer", inner, lock_name="upgrade", shared=True))
    case = cases.case("InsideSeveral")
    inner = case.guard("Inner", lock_name="second")
    case.machine(case.guard("Outer", inner, lock_name=["second", "first"]))
    cases.guarded("OtherMachine", lock_name="Limits", limit=3)
    case = cases.case("LongName")
    case.machine(case.guard("OneChargePerCustomerOfThisShop").to_single_state())
    case = cases.case("TokenBehind")
    after = case.step("Tell", outputs=LockGuard.fencing_token_of(case, "Guard"))
    case.machine(case.guard().next(after))
    for name in ("None", "null", "undefined", "nonesuch"):
        cases.guarded(f"Named{name}", lock_name=f"deploy/{name}")
    case = cases.case("Evaluated")
    name = "{% $states.input.id %}"
    first = case.guard("One", lock_name=name, limit=1)
    case.machine(first.next(case.guard("Two", lock_name=name, limit=2)))


@pytest.fixture(scope="module")
def cases(new_app: NewApp) -> Cases:
    made = Cases(new_app(), "Cases")
    for build in (sound, locked_again, broken, unlocked, misread, doubtful):
        build(made)
    return made


@pytest.fixture(scope="module")
def faults(cases: Cases) -> dict[str, str]:
    """Each fault by the path that it names."""
    app = Stage.of(cases)
    assert app is not None
    with pytest.raises(RuntimeError, match="Validation failed") as refusal:
        app.synth()
    lines = [line.strip() for line in str(refusal.value).splitlines()]
    return dict(line.removeprefix("[] ").split(": ", 1) for line in lines if line.startswith("[] "))


AS_TEXT = "variable: must be read in the query language of the state 'Tell'"
UNLOCKED = (
    "AfterItself",
    "AfterItselfInAMap",
    "AfterItselfBehindSeveral",
    "AfterAStateOfTheGuardsScope",
    "AfterAnotherGuard",
    "AfterAnError",
    "ByName",
    "Inside",
    "AtTheStart",
    "InAnotherGuard",
)
FAULTS = {
    "NoMachine/Guard": "guard: is in no state machine: pass it to DefinitionBody",
    "NoMachineForUpdate/Update": "update: is in no state machine",
    "NotToldOfExpress/Guard": "express: must be True in an Express workflow: Step Functions has no",
    "NotToldOfExpressChildren/Guard": "express: must be True in an Express workflow: ",
    "NoExpress/Guard": "express: must be left out in a Standard workflow: its lock then ends with",
    "OwnLock/Inner": "lock_name: must not be that of the guard around this one, Cases/OwnLock",
    "Upgrade/Inner": "lock_name: must not be that of the guard around this one, Cases/Upgrade",
    "InsideSeveral/Inner": "lock_name: must not be that of the guard around this one, Cases/Inside",
    "WrongId/Machine": "variable: must be that of a guard around the state 'Tell': fencing_token",
    "ChildSeesNoVariable/Machine": "variable: must be that of a guard around the state 'Tell'",
    "TokenBefore/Guard": "fencing_token: must be read by states inside the guard, and this one",
    "CatchAddedLater/Guard": "task: must get its own Catch before LockGuard(…) is called, which",
    "CatchAddedBesideHeartbeat/Guard": "task: must get its own Catch before LockGuard(…)",
    "WayPastTheLock/Guard": "task: must be reached by its guard only: ",
    **{f"{case}/Guard": "task: must be reached by its guard only: " for case in UNLOCKED},
    "AfterTheWait/Guard": "on_timeout: must not lead to the task, which would run without the lock",
    "AfterANewer/Guard": "on_superseded: must not lead to the task, which would run without the",
    "JsonataInJsonPath/Machine": f"{AS_TEXT}, which would hand on",
    "PathAsText/Machine": AS_TEXT,
    "PathInJsonata/Machine": AS_TEXT,
    "LongName/Machine": "state: must have at most 80 characters: give the guard a shorter",
}


def test_each_broken_rule_is_told_with_path_field_and_rule_and_nothing_else_is_refused(
    faults: dict[str, str],
) -> None:
    assert {path.split("/")[1] for path in faults} == {path.split("/")[0] for path in FAULTS}
    for path, told in FAULTS.items():
        assert faults[f"Cases/{path}"].startswith(told)


def test_without_the_rule_a_token_before_the_guard_is_synthesized(
    cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardInMachine, "_tokens_elsewhere", lambda *_: ())
    assert not [each for each in cases.node.scope.node.validate() if "TokenBefore" in each]  # type: ignore[union-attr]  # the app


@pytest.mark.parametrize("chained", [False, True])
def test_what_is_done_instead_does_not_lead_to_the_task(*, chained: bool) -> None:
    ends: list[tuple[str, dict[str, Any]]] = [
        ("on_timeout", {}),
        ("on_timeout", {"keep_alive": Duration.seconds(20)}),
        ("on_superseded", {"only_newest": True}),
    ]
    for number, (field, options) in enumerate(ends):
        case = Cases(App(), "Cases").case(f"Case{number}")
        call = case.call("Call")
        way: dict[str, Any] = {field: case.step("Log").next(call) if chained else call}
        with pytest.raises(InvalidRequest, match=rf"^{field}: must not lead to the task, which wo"):
            case.guard(task=call, **options, **way)


@pytest.fixture(scope="module")
def warned(cases: Cases, faults: dict[str, str]) -> dict[str, str]:
    """What synth warns of, by the path that it names."""
    assert faults
    return {
        child.node.path: str(entry.data).split(" [ack", 1)[0]
        for child in cases.node.find_all()
        for entry in child.node.metadata
        if entry.type == "aws:cdk:warning"
    }


def test_guards_of_one_lock_that_do_not_fit_together_are_warned_of(warned: dict[str, str]) -> None:
    here, there = "waiting=Waiting.queue() here", "Waiting.poll() there"
    told = {
        ("Limits", "Limits/Two"): "limit=2 here and 1 there",
        ("Limits", "OtherMachine/Guard"): "limit=3 here and 1 there",
        ("Ways", "Ways/Two"): f"{here} and {there}",
        ("ReaderAndSemaphore", "ReaderAndSemaphore/Two"): "limit=5 here and 20 there",
    }
    assert {path: text for path, text in warned.items() if "is also that" in text} == {
        f"Cases/{path}": f"lock_name '{lock}' is also that of Cases/{lock}/One: {difference}"
        for (lock, path), difference in told.items()
    }


def test_a_token_behind_its_guard_and_a_name_made_of_none_are_warned_of(
    warned: dict[str, str],
) -> None:
    """They are no errors: a report may name the token, an environment may be called `null`."""
    others = {path: text for path, text in warned.items() if "is also that" not in text}
    behind = others.pop("Cases/TokenBehind/Guard")
    assert "the state 'Tell' behind this guard, which has released" in behind
    assert set(others) == {f"Cases/Named{name}/Guard" for name in ("None", "null", "undefined")}
    for text in others.values():
        assert re.search("looks like a missing value, .*; pass the value, or acknow", text)
