"""When a guard's wait is over there was no grant: `on_timeout` must not need its fencing token.

All handlers are in one app, which is validated as at synth, in both query languages: those that
would fail at run time beside those that are right. Each of the latter is near to one of the former.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from aws_cdk import App, Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard, Waiting
from fairlock.cdk.guard.guard_rules import GuardInMachine
from tests.unit.cdk.guard_forms import Case, Cases

JSONATA, JSONPATH = "Jsonata", "JsonPath"
LANGUAGES = (JSONATA, JSONPATH)
RULE: Final = "on_timeout: must not lead to a state that needs this guard's fencing token: "
Handler = Callable[[Case, str], sfn.IChainable]


def tell(case: Case, language: str, *, name: str = "Tell", guard: str = "Guard") -> sfn.Pass:
    """A state that needs a guard's fencing token."""
    if language == JSONATA:
        return case.step(name, outputs=LockGuard.fencing_token_of(case, guard))
    path = LockGuard.fencing_token_path_of(case, guard)
    return sfn.Pass(case, name, parameters={"token": sfn.JsonPath.number_at(path)})


def choice(case: Case, condition: str = "{% $states.input.urgent %}") -> sfn.Choice:
    return sfn.Choice.jsonata(case, "Which?").when(
        sfn.Condition.jsonata(condition), case.step("Urgent")
    )


def needs_no_token(case: Case, expression: str) -> sfn.Pass:
    token = LockGuard.fencing_token_of(case, "Guard").strip("{}% ")
    return case.step("Tell", outputs=f"{{% {expression.replace('TOKEN', token)} %}}")


def after_another(case: Case, language: str) -> sfn.IChainable:
    return case.step("First").next(tell(case, language))


def behind_a_choice(case: Case, language: str) -> sfn.IChainable:
    return choice(case).otherwise(tell(case, language))


def in_a_parallel(case: Case, language: str) -> sfn.IChainable:
    inner = choice(case).otherwise(tell(case, language))
    return sfn.Parallel.jsonata(case, "Both").branch(inner)


def in_a_map(case: Case, language: str) -> sfn.IChainable:
    return case.map("Each", case.step("First").next(tell(case, language)))


def under_another_lock(case: Case, language: str) -> sfn.IChainable:
    return case.guard("Fallback", tell(case, language))


def in_a_condition(case: Case, language: str) -> sfn.IChainable:
    if language == JSONATA:
        token = LockGuard.fencing_token_of(case, "Guard").strip("{}% ")
        return choice(case, f"{{% {token} > 5 %}}").otherwise(case.step("Later"))
    path = LockGuard.fencing_token_path_of(case, "Guard")
    high = sfn.Condition.number_greater_than(path, 5)
    which = sfn.Choice(case, "Which?").when(high, case.step("Urgent"))
    return which.otherwise(case.step("Later"))


def in_a_catch(case: Case, language: str) -> sfn.IChainable:
    call = case.call("Mail")
    call.add_catch(tell(case, language), errors=["Known"])
    return call


BROKEN: Final[dict[str, Handler]] = {
    "AtOnce": tell,
    "AfterAnother": after_another,
    "BehindAChoice": behind_a_choice,
    "InAParallel": in_a_parallel,
    "InAMap": in_a_map,
    "UnderAnotherLock": under_another_lock,
    "InACondition": in_a_condition,
    "InACatch": in_a_catch,
}
WAYS: Final[dict[str, dict[str, Any]]] = {
    "Queue": {},
    "Poll": {"waiting": Waiting.poll()},
    "Skip": {"max_wait": Duration.seconds(0)},
    "KeepAlive": {"keep_alive": Duration.seconds(20)},
}


def broken(cases: Cases) -> None:
    for name, way in WAYS.items():
        case = cases.case(name)
        task = case.step("One").next(case.step("Two"))
        case.machine(case.guard(task=task, on_timeout=tell(case, JSONPATH), **way))
    for language in LANGUAGES:
        for name, handler in BROKEN.items():
            case = cases.case(f"{name}{language}")
            case.machine(case.guard(on_timeout=handler(case, language)))
        case = cases.case(f"Joined{language}")
        after, skipped = tell(case, language), case.step("Skipped")
        skipped.next(after)
        case.machine(case.guard(on_timeout=skipped).next(after))
    case = cases.case("ByTwoGuards")
    give_up = tell(case, JSONATA)
    first = case.guard(on_timeout=give_up)
    case.machine(first.next(case.guard("Second", on_timeout=give_up)))
    case = cases.case("Prefixed")
    guard = case.guard(on_timeout=tell(case, JSONPATH))
    case.machine(guard.prefix_states("First "))


def sound(cases: Cases) -> None:
    for language in LANGUAGES:
        case = cases.case(f"OuterToken{language}")
        inner = case.guard("Inner", on_timeout=tell(case, language))
        case.machine(case.guard(task=inner, on_timeout=case.step("Later")))
        case = cases.case(f"OwnTokenOfTheFallback{language}")
        fallback = case.guard("Fallback", tell(case, language, guard="Fallback"))
        case.machine(case.guard(on_timeout=fallback))
        case = cases.case(f"AChoiceAsks{language}")
        which = choice(case).otherwise(tell(case, language))
        skipped = case.step("Skipped").next(which)
        case.machine(case.guard(on_timeout=skipped).next(which))
        case = cases.case(f"AfterTheWork{language}")
        guard = case.guard(on_timeout=sfn.Succeed.jsonata(case, "AnotherOneRuns"))
        case.machine(guard.next(tell(case, language)))
        case = cases.case(f"InTheWork{language}")
        work = sfn.Parallel.jsonata(case, "Both").branch(
            case.map("Each", tell(case, language)), choice(case).otherwise(case.step("Other"))
        )
        case.machine(case.guard(task=work, on_timeout=case.step("Later")))
    case = cases.case("OuterTokenInTheFallback")
    fallback = case.guard("Fallback", on_timeout=tell(case, JSONPATH))
    inner = case.guard("Inner", on_timeout=fallback)
    case.machine(case.guard(task=inner))
    case = cases.case("TriesAgain")
    wait = sfn.Wait.jsonata(case, "Pause", time=sfn.WaitTime.seconds("{% 60 %}"))
    guard = case.guard(task=tell(case, JSONPATH), on_timeout=wait)
    wait.next(guard)
    case.machine(guard)
    case = cases.case("TokenOfTheGuardBefore")
    second = case.guard("Second", on_timeout=tell(case, JSONPATH))
    case.machine(case.guard(on_timeout=case.step("Later")).next(second))
    case = cases.case("InAChild")
    child = case.guard("Inner", tell(case, JSONPATH, guard="Inner"))
    children = case.map("Each", child, sfn.StateMachineType.STANDARD)
    case.machine(case.guard(on_timeout=children))
    case = cases.case("FailsThen")
    fail = sfn.Fail.jsonata(case, "Busy", error="Busy", cause="another one runs")
    case.machine(case.guard(task=tell(case, JSONATA), on_timeout=fail))
    for number, expression in enumerate(
        (
            "$exists(TOKEN) ? TOKEN : 'none'",
            "TOKEN ? TOKEN : 'none'",
            "{'token': TOKEN ?? 'none'}",
            "$exists(TOKEN)",
        )
    ):
        case = cases.case(f"AsksFirst{number}")
        case.machine(case.guard(on_timeout=needs_no_token(case, expression)))
    case = cases.case("AsksInJsonPath")
    path = LockGuard.fencing_token_path_of(case, "Guard")
    granted = sfn.Condition.and_(
        sfn.Condition.is_present(path), sfn.Condition.number_greater_than(path, 5)
    )
    which = sfn.Choice(case, "Granted?").when(granted, case.step("Urgent"))
    case.machine(case.guard(on_timeout=which.otherwise(case.step("Later"))))
    case = cases.case("OtherFields")
    variable = LockGuard.fencing_token_of(case, "Guard").strip("{}% ").partition(".")[0]
    fields = {name: f"{{% {variable}.{name} %}}" for name in ("lock_name", "waiting_since_ms")}
    owner = {"owner": LockGuard.owner_id_of(case, "Guard"), "fencing_token": "none"}
    case.machine(case.guard(on_timeout=case.step("Tell", outputs={**fields, **owner})))
    case = cases.case("Comment")
    token = LockGuard.fencing_token_of(case, "Guard")
    case.machine(case.guard(on_timeout=case.step("Tell", comment=f"here is no {token}")))


@pytest.fixture(scope="module")
def app() -> App:
    app = App()
    cases = Cases(app, "Cases")
    for build in (sound, broken):
        build(cases)
    return app


@pytest.fixture(scope="module")
def faults(app: App) -> dict[str, str]:
    """What synth would tell, by the path that it names."""
    return dict(fault.split(": ", 1) for fault in app.node.validate())


REFUSED = [
    *WAYS,
    "ByTwoGuards",
    "Prefixed",
    *(f"{name}{each}" for name in (*BROKEN, "Joined") for each in LANGUAGES),
]


@pytest.mark.parametrize("case", REFUSED)
def test_a_handler_that_needs_the_token_of_a_grant_that_never_was_is_refused(
    case: str, faults: dict[str, str]
) -> None:
    state = "Which?" if case.startswith("InACondition") else "Tell"
    fault = faults[f"Cases/{case}/Guard"]
    assert fault.startswith(RULE)
    assert fault.endswith(f"(got {state!r})")


def test_of_twenty_two_other_handlers_none_is_refused(faults: dict[str, str]) -> None:
    assert set(faults) == {f"Cases/{case}/Guard" for case in REFUSED}


def test_without_the_rule_all_would_be_synthesized(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(GuardInMachine, "_tokens_without_a_grant", lambda *_: ())
    assert app.node.validate() == []
