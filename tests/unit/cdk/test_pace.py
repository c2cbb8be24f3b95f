"""`only_newest` of a guard, and the state that keeps a pace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_stepfunctions as sfn

from fairlock import InvalidRequest
from fairlock.cdk import LockService, Pace, Waiting
from fairlock.cdk.guard.guard_arguments import checked_only_newest
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.guard_forms import Cases, machine, role
from tests.unit.cdk.template import (
    EvaluationError,
    Json,
    evaluate,
    flattened,
    handling,
    ways_out_unreleased,
)

# `only_newest` of a guard: where a superseded one goes, what it asks, and where it is refused.

WAYS: list[Json] = [
    {"waiting": Waiting.queue()},
    {"waiting": Waiting.poll()},
    {"max_wait": Duration.seconds(0)},
    {"waiting": None, "express": True},
]
BUILD = "{% $states.input.build %}"
SUPERSEDED = {"acquired": False, "reason": "SUPERSEDED", "newest": 9}


def test_the_version_is_sent_and_a_superseded_guard_leaves_and_fails(guards: Cases) -> None:
    for way in WAYS:
        scope = guards.definition(only_newest=BUILD, **way)
        states, variable = scope.states, scope.variable
        lock = states["Guard: Enter"]["Assign"][variable]
        assert lock["only_newest"] == checked_only_newest(BUILD)
        sent = states["Guard: Acquire"]["Arguments"]["Payload"]["only_newest"]
        assert sent == f"{{% ${variable}.only_newest %}}"
        for answer, then in (({"acquired": True}, "Work"), (SUPERSEDED, "Superseded")):
            given = {variable: {**answer, "waiting_since_ms": 0}}
            assert scope.chosen("Guard: Acquired?", variables=given) == f"Guard: {then}"
        leaving = states["Guard: Superseded"]
        assert leaving["Arguments"]["Payload"]["queue"] is True
        failed = states[leaving["Next"]]
        assert (failed["Type"], failed["Error"]) == ("Fail", "Superseded")
        assert ways_out_unreleased(scope, "Guard: Acquire") == set()
        versions = {"lock_name": "deploy", "only_newest": 7, "newest": 9}
        cause = evaluate(failed["Cause"], variables={variable: versions})
        assert cause == "lock deploy: version 7 is superseded, 9 was granted the lock"


def test_by_time_the_version_is_when_the_guard_was_entered(guards: Cases) -> None:
    [lock] = guards.definition(only_newest=True).states["Guard: Enter"]["Assign"].values()
    assert lock["only_newest"] == "{% $millis() %}"


def test_a_number_is_sent_as_it_is_also_by_heartbeats(guards: Cases) -> None:
    kept = {"waiting": Waiting.queue(), "keep_alive": Duration.seconds(20)}
    requests = guards.definition(only_newest=0, **kept).requests()
    assert [each["only_newest"] for each in requests] == [0, 0, 0]


def test_the_queue_takes_a_superseded_answer_of_its_own_only(guards: Cases) -> None:
    queued = guards.definition(only_newest=BUILD, waiting=Waiting.queue())
    [(variable, assign)] = queued.states["Guard: Acquire"]["Assign"].items()
    owner = {"lock_name": "a", "owner_id": "o"}
    lock = {variable: {**owner, "waiting_since_ms": 1, "restarts": 0, "only_newest": 7}}
    answer = {**SUPERSEDED, **owner}
    taken = evaluate(assign, variables=lock, states={"result": answer})
    assert taken["reason"] == "SUPERSEDED"
    for forged in ({"owner_id": "forged"}, {"reason": "HELD"}):
        with pytest.raises(EvaluationError, match="another lock or another owner"):
            evaluate(assign, variables=lock, states={"result": {**answer, **forged}})


def test_on_superseded_goes_with_only_newest(guards: Cases) -> None:
    elsewhere = sfn.Pass(guards, "Superseded elsewhere")
    with pytest.raises(InvalidRequest, match="on_superseded: goes with only_newest only"):
        guards.guard(on_superseded=elsewhere)
    machine = guards.definition(only_newest=True, on_superseded=elsewhere)
    assert machine.states["Guard: Superseded"]["Next"] == "Superseded elsewhere"
    assert "Guard: Newer granted" not in machine.states


# `LockService(pace=True)` and the state `Pace`: what is deployed, and what is refused at synth.

MINUTE = Duration.minutes(1)
HERE = Environment(account="123456789012", region="us-east-1")


@pytest.fixture(scope="module")
def user(new_app: NewApp) -> Stack:
    return Stack(new_app(), "User", env=HERE)


@pytest.fixture(scope="module")
def locks(user: Stack) -> LockService:
    return LockService(user, "Locks", pace=True, reaper=False)


def states_of(user: Stack, name: str, body: sfn.IChainable, **props: Any) -> Json:  # noqa: ANN401 - a machine's
    resource: Any = machine(user, body, name, **props).node.default_child
    return dict(json.loads(flattened(user.resolve(resource.definition_string)))["States"])


def test_it_is_a_call_and_a_wait_in_either_language(user: Stack, locks: LockService) -> None:
    by_path, by_jsonata = sfn.JsonPath.string_at("$.vendor"), "{% $states.input.vendor %}"
    languages = {sfn.QueryLanguage.JSON_PATH: by_path, sfn.QueryLanguage.JSONATA: by_jsonata}
    for language, name in languages.items():
        vendor = f"Vendor{language.name}"
        pace = Pace(user, vendor, service=locks, pace_name=name, rate=(10, MINUTE), burst=2)
        states = states_of(user, f"Machine{language.name}", pace, query_language=language)
        purposes = ("Enter", "Reserve", "Reserved?", "Too late", "Wait")
        enter, reserve, choice, too_late, wait = (states[f"{vendor}: {each}"] for each in purposes)
        [(variable, entered)] = enter["Assign"].items()
        assert entered == {"pace_name": by_jsonata, "reservation_id": "{% $uuid() %}"}
        assert handling(reserve, "SandboxTimedout") == (8, None)
        assert handling(reserve, "InvalidRequest") == (0, None)
        payload = reserve["Arguments"]["Payload"]
        assert payload["rate"] == [10, 60]
        assert (payload["burst"], payload["max_wait_seconds"]) == (2, 1800)
        assert wait["Seconds"] == f"{{% ${variable}.wait_seconds %}}"
        assert choice["Choices"][0]["Next"].endswith(": Wait")
        assert choice["Default"].endswith(": Too late")
        assert too_late["Error"] == "SlotTooLate"
        for state in (enter, reserve, choice, wait):
            assert state.get("Output", "{% $states.input %}") == "{% $states.input %}"


def test_a_refusal_may_go_elsewhere(user: Stack, locks: LockService) -> None:
    skipped = sfn.Pass.jsonata(user, "Skipped")
    waits_not: Json = {"max_wait": Duration.seconds(0), "on_too_late": skipped}
    pace = Pace(user, "Skips", service=locks, pace_name="x", rate=(1, MINUTE), **waits_not)
    work = sfn.Pass.jsonata(user, "SkipsWork")
    states = states_of(user, "MachineSkips", pace.next(work))
    assert states["Skips: Reserved?"]["Default"] == "Skipped"
    assert states["Skips: Wait"]["Next"] == "SkipsWork"
    assert "Skips: Too late" not in states


def test_a_pace_outside_of_a_stack_or_in_another_region_is_refused(locks: LockService) -> None:
    with pytest.raises(RuntimeError, match="no Stack found"):
        Pace(App(), "Nowhere", service=locks, pace_name="vendor", rate=(10, MINUTE))
    there = Stack(App(), "There", env=Environment(account=HERE.account, region="eu-west-1"))
    with pytest.raises(InvalidRequest, match=r"^service: must be in the workflow's region eu-"):
        Pace(there, "Pace", service=locks, pace_name="vendor", rate=(10, MINUTE))


def test_a_service_without_the_function_says_how_to_get_it(user: Stack) -> None:
    without = LockService(user, "Without", reaper=False)
    with pytest.raises(InvalidRequest, match="pace: must be True where the service is made"):
        Pace(user, "None", service=without, pace_name="vendor", rate=(10, MINUTE))
    with pytest.raises(InvalidRequest, match="pace: must be True"):
        without.grant_pace(role(user))
