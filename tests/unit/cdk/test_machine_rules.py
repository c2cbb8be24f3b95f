"""Rules that need the whole state machine are told at synth, by field and rule.

All cases are in one app, which is synthesized once: sound ones beside those that break a rule.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard, LockService, OptimisticUpdate, Waiting
from fairlock.cdk.guard.guard_rules import GuardInMachine
from fairlock.errors import InvalidRequest
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.guard_forms import EXPRESS, JSONATA, Case, Cases

STANDARD = sfn.StateMachineType.STANDARD
POLL, QUEUE = Waiting.poll(), Waiting.queue()
KEPT = Duration.seconds(20)
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
NOT_EXPRESS = "Guard: express: must be True in an Express workflow: Step Functions has no"
OTHER_LOCK = "Inner: lock_name: must not be that of the guard around this one, Cases/"
OWN_CATCH = "Guard: task: must get its own Catch before LockGuard(…) is called, which"
OWN_TOKEN = "Machine: variable: must be that of a guard around the state 'Tell': fencing_token"
AS_TEXT = "Machine: variable: must be read in the query language of the state 'Tell', which"
UNLOCKED = "Guard: task: must be reached by its guard only: "
PAST = "must not lead to the task, which would run without the lock"


def asks(case: Case, condition: str, then: sfn.IChainable) -> sfn.Choice:
    choice = sfn.Choice.jsonata(case, f"{condition.title()}?")
    return choice.when(sfn.Condition.jsonata(f"{{% $states.input.{condition} %}}"), then)


def sound(cases: Cases) -> None:
    """Whatever is right, and near to a mistake; more is in the forms of guards."""
    case = cases.case("ExpressChildren")
    case.machine(case.map("Each", case.guard(express=True), EXPRESS))
    case = cases.case("StandardChildren")
    case.machine(case.map("Each", case.guard(), STANDARD))
    case = cases.case("TwoServices")
    inner = case.guard("Inner", lock_name="same", service=cases.other_locks)
    case.machine(case.guard("Outer", inner, lock_name="same"))
    case = cases.case("TwoStacks")
    inner = case.guard("Inner", lock_name="same", service=case.shared())
    other = LockService.from_stack(case, "Other", stack_name="Other")
    case.machine(case.guard("Outer", inner, lock_name="same", service=other))
    case = cases.case("NewestOfEach")
    evaluated = case.guard(lock_name="{% $states.input.service %}", only_newest=True)
    case.machine(case.map("Each", evaluated, STANDARD))
    case = cases.case("NewestAroundAMap")
    case.machine(case.guard(task=case.map("Each", case.step("Work")), only_newest=True))
    case = cases.case("OneAfterTheOther")
    later = case.guard("Later", lock_name="row")
    one, two = (case.guard(name, lock_name="row", on_timeout=later) for name in ("One", "Two"))
    case.machine(one.next(two))
    case = cases.case("Token")
    case.machine(case.guard(task=case.map("Each", case.tell())))
    case = cases.case("TokenPath")
    keep = sfn.Pass(case, "Keep", input_path=LockGuard.fencing_token_path_of(case, "Guard"))
    case.machine(case.guard(task=case.tell("JSONPath").next(keep)))
    case = cases.case("TokenInJsonataMachine")
    tell = {"Type": "Pass", "Output": LockGuard.fencing_token_of(case, "Guard")}
    body = sfn.CustomState(case, "Tell", state_json=tell)
    case.machine(case.guard(task=body), query_language=JSONATA)
    case = cases.case("BareInAFragment")
    beating = case.guard(task=case.call("Call1"), keep_alive=KEPT).prefix_states("First ")
    polling = case.guard("Poll", case.call("Call2"), waiting=POLL).prefix_states("Second ")
    case.work.add_retry(errors=["Known"])
    guarded = beating.next(polling).next(case.guard("Retried", case.work))
    case.machine(guarded.next(case.step("After")))
    case = cases.case("ByHand")
    graph = sfn.StateGraph(case.guard().start_state, "by hand").to_graph_json()
    text = Stack.of(case).to_json_string(graph)
    sfn.CfnStateMachine(case, "Machine", role_arn=ROLE, definition_string=text)
    case = cases.case("NotOurs")
    for number, text in enumerate(NOT_A_DEFINITION):
        sfn.CfnStateMachine(case, f"Machine{number}", role_arn=ROLE, definition_string=text)
    case, there = cases.case("MachineElsewhere"), Cases(cases.node.root, "Elsewhere")  # type: ignore[arg-type]  # the app
    there.case("There").machine(case.guard())
    case = cases.case("WaitsOnceMore")
    pause = case.step("Later")
    pause.next(guard := case.guard(task=case.work, on_timeout=pause))
    case.machine(guard.next(asks(case, "again", guard.start_state).otherwise(case.step("Done"))))


def broken(cases: Cases) -> None:
    """Each rule."""
    case = cases.case("NoMachine", "Guard: guard: is in no state machine: pass it to Definition")
    case.guard(task=case.step("One").next(case.step("Two")))
    arn = "arn:aws:states:us-east-1:123456789012:stateMachine:imported"
    sfn.StateMachine.from_state_machine_arn(case, "Imported", arn)
    case = cases.case("NoMachineForUpdate", "Update: update: is in no state machine")
    table = dynamodb.Table.from_table_name(case, "Accounts", "accounts")
    key = {"account": {"S": "{% $states.input.account %}"}}
    OptimisticUpdate(case, "Update", table=table, key=key, task=case.step("Compute"))
    case = cases.case("NotToldOfExpress", NOT_EXPRESS)
    parallel = sfn.Parallel.jsonata(case, "Both").branch(case.guard(waiting=POLL))
    case.machine(case.map("Each", parallel), state_machine_type=EXPRESS)
    case = cases.case("NotToldOfExpressChildren", NOT_EXPRESS)
    case.machine(case.map("Each", case.guard(), EXPRESS))
    told = "Guard: express: must be left out in a Standard workflow: its lock then ends with"
    cases.guarded("NoExpress", told, express=True)
    case = cases.case("OwnLock", f"{OTHER_LOCK}OwnLock")
    chain = case.step("Before").next(case.guard("Inner", lock_name="mine"))
    case.machine(case.guard("Outer", chain, lock_name="mine", keep_alive=KEPT))
    case = cases.case("Upgrade", f"{OTHER_LOCK}Upgrade")
    inner = case.guard("Inner", lock_name="upgrade")
    case.machine(case.guard("Outer", inner, lock_name="upgrade", shared=True))
    case = cases.case("InsideSeveral", f"{OTHER_LOCK}InsideSeveral")
    inner = case.guard("Inner", lock_name="second")
    case.machine(case.guard("Outer", inner, lock_name=["second", "first"]))
    case = cases.case("TwoReferences", f"{OTHER_LOCK}TwoReferences")
    inner = case.guard("Inner", lock_name="same", service=case.shared())
    again = LockService.from_stack(case, "Again", stack_name="Fairlock")
    case.machine(case.guard("Outer", inner, lock_name="same", service=again))
    told = "Guard: only_newest: must be left out in a Map whose iterations want the same lock"
    for name, kind in (("InAMap", None), ("InChildren", STANDARD)):
        case = cases.case(f"Newest{name}", told)
        case.machine(case.map("Each", case.guard(only_newest=True), kind))
    case = cases.case("WrongId", OWN_TOKEN)
    case.machine(case.guard(task=case.tell(guard="Gaurd")))
    case = cases.case("ChildSeesNoVariable", OWN_TOKEN)
    case.machine(case.guard(task=case.map("Each", case.tell(), STANDARD)))
    token_before(cases)
    for name, keep_alive in (("Later", None), ("BesideHeartbeat", KEPT)):
        case = cases.case(f"CatchAdded{name}", OWN_CATCH)
        guard = case.guard(task=case.work, keep_alive=keep_alive)
        case.work.add_catch(case.step("Handle"), errors=["Known"])
        case.machine(guard)
    long = "Machine: state: must have at most 80 characters: give the guard a shorter"
    case = cases.case("LongName", long)
    case.machine(case.guard("OneChargePerCustomerOfThisShop").to_single_state())
    # Fencing tokens that would be handed on as texts.
    for name, read in (
        ("JsonataInJsonPath", LockGuard.fencing_token_of),
        ("PathAsText", LockGuard.fencing_token_path_of),
    ):
        case = cases.case(name, AS_TEXT)
        parameters = {"token": read(case, "Guard")}
        case.machine(case.guard(task=sfn.Pass(case, "Tell", parameters=parameters)))
    case = cases.case("PathInJsonata", AS_TEXT)
    outputs = {"tokens": [LockGuard.fencing_token_path_of(case, "Guard")]}
    case.machine(case.guard(task=case.step("Tell", outputs=outputs)))


def token_before(cases: Cases) -> None:
    told = "Guard: fencing_token: must be read by states inside the guard, and this one"
    case = cases.case("TokenBefore", told)
    case.machine(case.tell().next(case.guard()))


def unlocked(cases: Cases) -> None:
    """Every way to a task that is not its guard's grant."""
    case = cases.case("AfterItself", UNLOCKED)
    case.machine(case.guard(task=case.work).next(case.work))
    case = cases.case("AfterItselfInAMap", UNLOCKED)
    case.machine(case.map("Each", case.guard(task=case.work).next(case.work)))
    case = cases.case("AfterItselfBehindSeveral", UNLOCKED)
    case.machine(case.guard(task=case.work, lock_name=["one", "two"]).next(case.work))
    case = cases.case("AfterAStateOfTheGuardsScope", UNLOCKED)
    guard = case.guard(task=case.work)
    case.machine(guard.next(sfn.Pass.jsonata(guard, "Log").next(case.work)))
    case = cases.case("WayPastTheLock", UNLOCKED)
    guard = case.guard(task=case.work)
    case.machine(asks(case, "urgent", case.work).otherwise(guard))
    case = cases.case("AfterAnotherGuard", UNLOCKED)
    case.machine(case.guard("One", on_timeout=case.work).next(case.guard(task=case.work)))
    case = cases.case("AfterAnError", UNLOCKED)
    case.machine(case.call("First").add_catch(case.work).next(case.guard(task=case.work)))
    case = cases.case("ByName", UNLOCKED)
    goto = sfn.CustomState(case, "Goto", state_json={"Type": "Pass", "Next": "Guard: Work"})
    case.machine(case.guard().next(goto))
    case = cases.case("Inside", UNLOCKED)
    goto = sfn.CustomState(case, "Goto", state_json={"Type": "Pass", "Next": "Guard: Acquire"})
    case.machine(case.guard(task=case.work).next(goto))
    case = cases.case("AtTheStart", UNLOCKED)
    case.guard(task=case.work)
    case.machine(sfn.Chain.custom(case.work, [case.work], case.work))
    case = cases.case("InAnotherGuard", UNLOCKED)
    case.guard(task=case.work)
    case.machine(case.guard("Other", case.step("Before").next(case.work)))
    for end, only_newest in (("on_timeout", False), ("on_superseded", True)):
        case = cases.case(f"After{end}", f"Guard: {end}: {PAST}")
        later = case.step("Later")
        way: dict[str, Any] = {"only_newest": only_newest, end: later}
        guard = case.guard(task=case.work, **way)
        later.next(case.work)
        case.machine(guard)


def pair(cases: Cases, name: str, one: dict[str, Any], two: dict[str, Any]) -> None:
    """Two guards of one lock, one after the other."""
    case = cases.case(name)
    first = case.guard("One", **{"lock_name": name, **one})
    case.machine(first.next(case.guard("Two", **{"lock_name": name, **two})))


def doubtful(cases: Cases) -> None:
    """What is mostly a mistake."""
    pair(cases, "Limits", {"limit": 1}, {"limit": 2})
    pair(cases, "Ways", {"waiting": POLL}, {"waiting": QUEUE})
    pair(cases, "Skips", {"waiting": POLL, "max_wait": Duration.seconds(0)}, {"waiting": QUEUE})
    pair(cases, "ReaderAndWriter", {"shared": True}, {})
    pair(cases, "ReaderAndSemaphore", {"shared": True}, {"limit": 5})
    pair(cases, "Unknown", {"limit": 4}, {"limit": "{% $states.input.limit %}"})
    by_id = {"lock_name": "{% $states.input.id %}"}
    pair(cases, "Evaluated", {**by_id, "limit": 1}, {**by_id, "limit": 2})
    cases.guarded("OtherMachine", lock_name="Limits", limit=3)
    case = cases.case("TokenBehind")
    case.machine(case.guard().next(case.tell()))
    for name in ("None", "null", "undefined", "nonesuch"):
        cases.guarded(f"Named{name}", lock_name=f"deploy/{name}")


@pytest.fixture(scope="module")
def cases(new_app: NewApp) -> Cases:
    made = Cases(new_app(), "Cases")
    for build in (sound, broken, unlocked, doubtful):
        build(made)
    return made


@pytest.fixture(scope="module")
def faults(cases: Cases) -> list[str]:
    app: Any = cases.node.root
    with pytest.raises(RuntimeError, match="Validation failed") as refusal:
        app.synth()
    lines = [line.strip() for line in str(refusal.value).splitlines()]
    return [line.removeprefix("[] ") for line in lines if line.startswith("[] ")]


def test_each_broken_rule_is_told_and_nothing_else(cases: Cases, faults: list[str]) -> None:
    assert {fault.split("/")[1] for fault in faults} == cases.told.keys()
    for told in cases.told.values():
        assert [fault for fault in faults if fault.startswith(told)], told


def test_without_the_rule_an_early_token_is_synthesized(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    token_before(Cases(app, "Cases"))
    assert app.node.validate()
    monkeypatch.setattr(GuardInMachine, "_tokens_elsewhere", lambda *_: ())
    assert app.node.validate() == []


def test_what_is_done_instead_does_not_lead_to_the_task() -> None:
    cases = Cases(App(), "Cases")
    ends: list[tuple[str, dict[str, Any]]] = [
        ("on_timeout", {}),
        ("on_timeout", {"keep_alive": KEPT}),
        ("on_superseded", {"only_newest": True}),
    ]
    for number, (field, options) in enumerate(ends):
        case = cases.case(f"Case{number}")
        for way in (case.work, case.step("Log").next(case.work)):
            with pytest.raises(InvalidRequest, match=rf"^{field}: {PAST}"):
                case.guard(f"By {way.id}", case.work, **{**options, field: way})


@pytest.fixture(scope="module")
def warned(cases: Cases, faults: list[str]) -> dict[str, str]:
    """What synth warns of, by the path that it names."""
    assert faults
    return {
        child.node.path.removeprefix("Cases/"): str(entry.data).split(" [ack", 1)[0]
        for child in cases.node.find_all()
        for entry in child.node.metadata
        if entry.type == "aws:cdk:warning"
    }


def test_guards_of_one_lock_that_do_not_fit_together_are_warned_of(warned: dict[str, str]) -> None:
    told = {
        "Limits/Two": ("Limits", "limit=2 here and 1 there"),
        "OtherMachine/Guard": ("Limits", "limit=3 here and 1 there"),
        "Ways/Two": ("Ways", "waiting=Waiting.queue() here and Waiting.poll() there"),
        "ReaderAndSemaphore/Two": ("ReaderAndSemaphore", "limit=5 here and 20 there"),
    }
    assert {path: text for path, text in warned.items() if "is also that" in text} == {
        path: f"lock_name '{lock}' is also that of Cases/{lock}/One: {difference}"
        for path, (lock, difference) in told.items()
    }


def test_a_token_behind_its_guard_and_a_name_of_none_are_warned_of(warned: dict[str, str]) -> None:
    """They are no errors: a report may name the token, an environment may be called `null`."""
    others = {path: text for path, text in warned.items() if "is also that" not in text}
    behind = others.pop("TokenBehind/Guard")
    assert "the state 'Tell' behind this guard, which has released" in behind
    assert set(others) == {f"Named{name}/Guard" for name in ("None", "null", "undefined")}
    for text in others.values():
        assert re.search("looks like a missing value, .*; pass the value, or acknow", text)
