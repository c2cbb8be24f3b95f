"""What a guard's time allows: what is done when its wait is over, and how long its task may take.

When the wait is over there was no grant: `on_timeout` must not need its fencing token. All handlers
are in one app, which is validated as at synth: those that would fail at run time beside those that
are right and near to one of the former.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from aws_cdk import App, Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock import InvalidRequest
from fairlock.cdk import LockGuard, Waiting
from fairlock.cdk.guard import guard_rules, standalone
from fairlock.cdk.guard.guard_rules import GuardInMachine, faults_of_end
from tests.unit.cdk.guard_forms import Case, Cases
from tests.unit.cdk.template import definition_of

LANGUAGES: Final = ("JSONata", "JSONPath")
RULE: Final = "must not lead to a state that needs this guard's fencing token: "
NEEDED: Final = f"Guard: on_timeout: {RULE}"
Handler = Callable[[Case, str], sfn.IChainable]


def choice(case: Case, condition: str = "{% $states.input.urgent %}") -> sfn.Choice:
    return sfn.Choice.jsonata(case, "Which?").when(
        sfn.Condition.jsonata(condition), case.step("Urgent")
    )


def token_in(case: Case) -> str:
    return LockGuard.fencing_token_of(case, "Guard").strip("{}% ")


def behind_a_choice(case: Case, language: str) -> sfn.IChainable:
    return choice(case).otherwise(case.tell(language))


def in_a_parallel(case: Case, language: str) -> sfn.IChainable:
    return sfn.Parallel.jsonata(case, "Both").branch(behind_a_choice(case, language))


def in_a_condition(case: Case, language: str) -> sfn.IChainable:
    if language == "JSONata":
        return choice(case, f"{{% {token_in(case)} > 5 %}}").otherwise(case.step("Later"))
    return when_token_is_high(case)


def when_token_is_high(case: Case, *first: sfn.Condition) -> sfn.IChainable:
    path = LockGuard.fencing_token_path_of(case, "Guard")
    high = sfn.Condition.and_(*first, sfn.Condition.number_greater_than(path, 5))
    return sfn.Choice(case, "Which?").when(high, case.step("Urgent")).otherwise(case.step("Later"))


BROKEN: Final[dict[str, Handler]] = {
    "AtOnce": lambda case, language: case.tell(language),
    "InACondition": in_a_condition,
    "BehindAChoice": behind_a_choice,
    "InAParallel": in_a_parallel,
    "InAMap": lambda case, language: case.map("Each", case.step("First").next(case.tell(language))),
    "UnderAnotherLock": lambda case, language: case.guard("Fallback", case.tell(language)),
    "InACatch": lambda case, language: case.work.add_catch(case.tell(language), errors=["Known"]),
}
BY_LANGUAGE: Final = ("AtOnce", "InACondition")
"""What is read in another way in each query language; the way to a state is the same in both."""
WAYS: Final[dict[str, dict[str, Any]]] = {
    "Queue": {},
    "Poll": {"waiting": Waiting.poll()},
    "Skip": {"max_wait": Duration.seconds(0)},
    "KeepAlive": {"keep_alive": Duration.seconds(20)},
}


def broken(cases: Cases) -> None:
    for name, way in WAYS.items():
        case = cases.case(name, NEEDED)
        task = case.step("One").next(case.step("Two"))
        case.machine(case.guard(task=task, on_timeout=case.tell("JSONPath"), **way))
    for name, handler in BROKEN.items():
        for language in LANGUAGES if name in BY_LANGUAGE else LANGUAGES[1:]:
            case = cases.case(f"{name}{language}", NEEDED)
            case.machine(case.guard(on_timeout=handler(case, language)))
    for language in LANGUAGES:
        case = cases.case(f"Joined{language}", NEEDED)
        after, skipped = case.tell(language), case.step("Skipped")
        skipped.next(after)
        case.machine(case.guard(on_timeout=skipped).next(after))
    case = cases.case("ByTwoGuards", NEEDED)
    give_up = case.tell()
    first = case.guard(on_timeout=give_up)
    case.machine(first.next(case.guard("Second", on_timeout=give_up)))
    case = cases.case("Prefixed", NEEDED)
    case.machine(case.guard(on_timeout=case.tell("JSONPath")).prefix_states("First "))
    case = cases.case("Superseded", f"Guard: on_superseded: {RULE}")
    case.machine(case.guard(only_newest=True, on_superseded=case.tell()))


def sound(cases: Cases) -> None:
    case = cases.case("OuterToken")
    inner = case.guard("Inner", on_timeout=case.tell())
    case.machine(case.guard(task=inner, on_timeout=case.step("Later")))
    case = cases.case("OwnTokenOfTheFallback")
    fallback = case.guard("Fallback", case.tell("JSONPath", guard="Fallback"))
    case.machine(case.guard(on_timeout=fallback))
    for language in LANGUAGES:
        case = cases.case(f"AChoiceAsks{language}")
        which = behind_a_choice(case, language)
        case.machine(case.guard(on_timeout=case.step("Skipped").next(which)).next(which))
    case = cases.case("InTheWork")
    work = in_a_parallel(case, "JSONPath")
    case.machine(case.guard(task=work, on_timeout=case.step("Later")))
    case = cases.case("TriesAgain")
    wait = sfn.Wait.jsonata(case, "Pause", time=sfn.WaitTime.seconds("{% 60 %}"))
    guard = case.guard(task=case.tell("JSONPath"), on_timeout=wait)
    wait.next(guard)
    case.machine(guard)
    case = cases.case("InAChild")
    child = case.guard("Inner", case.tell("JSONPath", guard="Inner"))
    case.machine(case.guard(on_timeout=case.map("Each", child, sfn.StateMachineType.STANDARD)))
    asking = ("$exists(X) ? X : 'none'", "X ? X : 'none'", "{'token': X ?? 'none'}", "$exists(X)")
    for number, expression in enumerate(asking):
        case = cases.case(f"AsksFirst{number}")
        asks = f"{{% {expression.replace('X', token_in(case))} %}}"
        case.machine(case.guard(on_timeout=case.step("Tell", outputs=asks)))
    case = cases.case("AsksInJsonPath")
    granted = sfn.Condition.is_present(LockGuard.fencing_token_path_of(case, "Guard"))
    case.machine(case.guard(on_timeout=when_token_is_high(case, granted)))
    case = cases.case("OtherFields")
    variable = token_in(case).partition(".")[0]
    fields = {name: f"{{% {variable}.{name} %}}" for name in ("lock_name", "waiting_since_ms")}
    owner = {"owner": LockGuard.owner_id_of(case, "Guard"), "fencing_token": "none"}
    comment = f"no {{% {token_in(case)} %}}"
    tells = case.step("Tell", outputs={**fields, **owner}, comment=comment)
    case.machine(case.guard(on_timeout=tells))


@pytest.fixture(scope="module")
def cases() -> Cases:
    cases = Cases(App(), "Cases")
    for build in (sound, broken):
        build(cases)
    return cases


def test_a_handler_that_needs_the_token_of_a_grant_that_never_was_is_refused_and_no_other(
    cases: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = sorted(cases.node.root.node.validate())
    expected = sorted(cases.told.values())
    for fault, told in zip(faults, expected, strict=True):
        assert fault.startswith(told)
        assert fault.endswith("(got 'Which?')" if "InACondition" in fault else "(got 'Tell')")
    # The control: without the rule, all would be synthesized.
    monkeypatch.setattr(GuardInMachine, "_tokens_without_a_grant", lambda *_: ())
    assert cases.node.root.node.validate() == []


# `max_hold` of a guard: the time-out of its task is not longer, or synth refuses the guard.

TEN_MINUTES = Duration.minutes(10)
NO_END = "max_hold: needs a single task state with a time-out"
TOO_LONG = "max_hold: must be as long as the task may take"
FUNCTIONS = dict.fromkeys(standalone.FUNCTIONS, "arn")
TASK = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "TimeoutSeconds": 600}


@pytest.fixture
def case() -> Case:
    return Cases(App(), "Cases").case("Case")


def ends_after(seconds: int) -> dict[str, Any]:
    timeout = sfn.Timeout.duration(Duration.seconds(seconds))
    return {"task_timeout": timeout, "retry_on_service_exceptions": False}


@pytest.mark.parametrize(
    "way", [*WAYS.values(), {"express": True}, {"shared": True}], ids=[*WAYS, "express", "shared"]
)
def test_a_time_out_makes_max_hold_cost_no_state(case: Case, way: dict[str, Any]) -> None:
    plain, capped = (
        definition_of(
            case.guard(name, case.call(f"{name}Call", **ends_after(600)), lock_name="x", **options)
        )
        for name, options in (("Plain", way), ("Capped", {**way, "max_hold": TEN_MINUTES}))
    )
    assert len(str(capped.states).replace("Capped", "Plain")) == len(str(plain.states))


def test_work_without_an_end_is_refused_and_what_to_do_is_told(case: Case) -> None:
    caught = case.call("Caught", **ends_after(5))
    caught.add_catch(case.step("After"))
    path = {"task_timeout": sfn.Timeout.at("{% $states.input.seconds %}")}
    works: tuple[sfn.IChainable, ...] = (
        case.call("NoTimeOut"),
        case.call("ByInput", **path),
        case.call("First", **ends_after(5)).next(case.call("Next", **ends_after(5))),
        caught,
        case.step("Pass"),
        sfn.Wait(case, "Wait", time=sfn.WaitTime.duration(Duration.seconds(1))),
        sfn.Parallel(case, "Parallel").branch(case.call("In", **ends_after(5))),
        case.guard("Inner", case.call("Inside", **ends_after(5))),
    )
    for number, work in enumerate(works):
        with pytest.raises(InvalidRequest, match=NO_END) as refused:
            case.guard(f"Guard{number}", work, max_hold=TEN_MINUTES)
        assert "Set its task_timeout (TimeoutSeconds) to a number" in str(refused.value)
        assert "start a chain as a workflow of its own" in str(refused.value)


def test_a_longer_time_out_is_refused_also_with_the_retries_that_cdk_adds(case: Case) -> None:
    """Seven attempts, and 2 + 4 + 8 + 16 + 32 + 64 s between them."""
    retried = {"task_timeout": sfn.Timeout.duration(Duration.seconds(60))}
    several = {"lock_name": ["a", "b"], "max_wait": Duration.minutes(5)}
    works: tuple[tuple[dict[str, Any], int, dict[str, Any], str], ...] = (
        (retried, 7 * 60 + 126, {}, TOO_LONG),
        (ends_after(600), 600, {}, TOO_LONG),
        (ends_after(600), 300 + 600, several, "300 s may pass before it for the other locks"),
    )
    for number, (ends, seconds, options, told) in enumerate(works):
        task, other = (case.call(f"{name}{number}", **ends) for name in ("Task", "Other"))
        enough, short = Duration.seconds(seconds), Duration.seconds(seconds - 1)
        case.guard(f"Enough{number}", task, max_hold=enough, **options)
        with pytest.raises(InvalidRequest, match=told):
            case.guard(f"Short{number}", other, max_hold=short, **options)
    in_jsonpath = sfn.CustomState(case, "Custom", state_json=TASK)
    case.guard("In JSONPath", in_jsonpath, max_hold=TEN_MINUTES)


def test_all_attempts_and_their_pauses_have_to_fit() -> None:
    retries: list[tuple[list[dict[str, Any]], int]] = [
        ([], 10),
        ([{"ErrorEquals": ["States.ALL"]}], 10 + 3 * 10 + 1 + 2 + 4),
        ([{"MaxAttempts": 0}], 10),
        ([{"MaxAttempts": 2, "IntervalSeconds": 5, "BackoffRate": 1}], 3 * 10 + 10),
        ([{"MaxAttempts": 4, "IntervalSeconds": 5, "MaxDelaySeconds": 8}], 5 * 10 + 5 + 3 * 8),
        ([{"MaxAttempts": 1}, {"MaxAttempts": 2}], 4 * 10 + 1 + 1 + 2),
    ]
    for retry, longest in retries:
        task = {"TimeoutSeconds": 10, "Retry": retry}
        for wait in (0, 60):
            assert list(faults_of_end(longest + wait, task, wait_seconds=wait)) == []
            assert len(list(faults_of_end(longest + wait - 1, task, wait_seconds=wait))) == 1
        retry.append({"MaxAttempts": 99_999_999})  # Is refused soon.
        assert len(list(faults_of_end(3600, task))) == 1


def test_a_later_retry_is_found_at_synth(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the task when it is guarded would not find that."""
    task = case.call("Work", **ends_after(400))
    case.machine(case.guard(task=task, max_hold=TEN_MINUTES))
    task.add_retry(max_attempts=2)
    assert TOO_LONG in str(case.node.root.node.validate())
    monkeypatch.setattr(guard_rules, "faults_of_end", lambda *_, **__: iter(()))
    assert case.node.root.node.validate() == []


def test_a_machine_without_an_app_that_may_hold_longer_is_refused() -> None:
    machine = partial(standalone.guarded_machine, functions=FUNCTIONS, lock_name="x")
    assert machine(TASK, max_hold_seconds=600) == machine(TASK)
    two = {"StartAt": "A", "States": {"A": TASK, "B": TASK}}
    with pytest.raises(InvalidRequest, match=TOO_LONG):
        machine(TASK, max_hold_seconds=599)
    for work in ({"Type": "Pass"}, two):
        with pytest.raises(InvalidRequest, match=NO_END):
            machine(work, max_hold_seconds=600)
    with pytest.raises(InvalidRequest, match=TOO_LONG):
        machine(TASK, max_hold_seconds=600, lock_name=["x", "y"])
