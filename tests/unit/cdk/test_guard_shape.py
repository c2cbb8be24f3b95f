"""The definition that a guard leaves in a state machine, in all its forms."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.unit.cdk.asl import Scope, evaluate, happy_path, machine_of, ways_out_unreleased
from tests.unit.cdk.guard_forms import RELEASE

Json = dict[str, Any]

POLLING = {
    "Flat": ["Guard"],
    "FlatInJsonata": ["Guard"],
    "Chain": ["Guard"],
    "TaskWithOwnCatch": ["Guard"],
    "StateWithoutConstruct": ["Guard"],
    "Nested": ["Outer", "Inner"],
    "TwoInARow": ["First", "Second"],
    "MapIterations": ["Guard"],
    "ParallelBranches": ["LeftGuard", "RightGuard"],
    "OnTimeout": ["Guard"],
}
GUARDS = {"Express": ["Guard"]} | {
    f"{kind}{form}": guards
    for kind in ("", "Queue", "KeepAlive", "KeepAlivePoll")
    for form, guards in POLLING.items()
}
every_form = pytest.mark.parametrize("form", GUARDS)
every_guard = pytest.mark.parametrize(
    ("form", "guard"), [(form, guard) for form, guards in GUARDS.items() for guard in guards]
)


def machine_polls(form: str) -> bool:
    return form.startswith("KeepAlivePoll") or not form.startswith(("Queue", "KeepAlive"))


def shadowed_variables(machine: Scope) -> set[str]:
    """Variables that an inner scope assigns although an outer one does: AWS refuses them."""
    return {
        name
        for scope in machine.all_scopes()
        for outer in scope.outer
        for name in scope.assigned() & outer.assigned()
    }


@every_guard
def test_every_state_of_a_guard_is_a_jsonata_state(forms: Json, form: str, guard: str) -> None:
    machine = machine_of(forms, form)
    own = {
        name: state.get("QueryLanguage", machine.language)
        for name, state in machine.all_states()
        if name.startswith(f"{guard}: ")
    }
    assert own == dict.fromkeys(own, "JSONata")
    assert len(own) >= (9 if machine_polls(form) else 7)


@every_form
def test_state_names_are_unique_in_the_machine_and_short_enough(forms: Json, form: str) -> None:
    names = [name for name, _ in machine_of(forms, form).all_states()]
    assert Counter(names).most_common(1)[0][1] == 1
    assert max(map(len, names)) <= 80


@every_form
def test_no_scope_assigns_a_variable_of_an_outer_scope(forms: Json, form: str) -> None:
    assert shadowed_variables(machine_of(forms, form)) == set()


def test_shadowing_is_noticed_when_two_nested_guards_share_a_variable(forms: Json) -> None:
    machine = machine_of(forms, "Nested")
    [outer] = machine.assigned()
    inner_enter = machine.holding("Inner: Enter").states["Inner: Enter"]
    inner_enter["Assign"][outer] = "the same name"
    assert shadowed_variables(machine) == {outer}


@every_guard
def test_every_path_from_acquire_ends_in_a_release(forms: Json, form: str, guard: str) -> None:
    scope = machine_of(forms, form).holding(f"{guard}: Acquire")
    assert ways_out_unreleased(scope, f"{guard}: Acquire", release_function=RELEASE) == set()


@pytest.mark.parametrize("form", ["Flat", "QueueFlat"])
@pytest.mark.parametrize("state", ["Guard: Acquire", "Charge"])
def test_a_catch_that_bypasses_the_release_is_noticed(forms: Json, state: str, form: str) -> None:
    machine = machine_of(forms, form)
    machine.states[state]["Catch"][-1]["Next"] = "Guard: Failed"
    escaped = ways_out_unreleased(machine, "Guard: Acquire", release_function=RELEASE)
    assert escaped == {"Guard: Failed"}


def test_a_bare_task_costs_four_more_transitions(forms: Json) -> None:
    assert happy_path(machine_of(forms, "FlatInJsonata")) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Acquired?",
        "Charge",
        "Guard: Release",
    ]


def test_whatever_has_transitions_of_its_own_costs_five_more(forms: Json) -> None:
    assert happy_path(machine_of(forms, "TaskWithOwnCatch")) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Acquired?",
        "Guard: Work",
        "Charge",
        "Guard: Release",
    ]


@pytest.mark.parametrize("form", ["Chain", "TaskWithOwnCatch", "StateWithoutConstruct"])
def test_a_chain_runs_in_a_branch_and_its_result_leaves_the_guard(forms: Json, form: str) -> None:
    machine = machine_of(forms, form)
    work = machine.states["Guard: Work"]
    assert work["Type"] == "Parallel"
    assert len(work["Branches"]) == 1
    assert work["Output"] == "{% $states.result[0] %}"
    assert work["Next"] == "Guard: Release"


@pytest.mark.parametrize("work", ["Charge", "Guard: Work"])
def test_every_error_of_the_work_leads_to_a_release(forms: Json, work: str) -> None:
    machine = machine_of(forms, "Flat" if work == "Charge" else "Chain")
    assert machine.states[work]["Catch"] == [
        {"ErrorEquals": ["States.DataLimitExceeded"], "Next": "Guard: Release after error"},
        {"ErrorEquals": ["States.ALL"], "Next": "Guard: Release after error"},
    ]


def test_enter_assigns_one_variable_and_leaves_the_input_alone(forms: Json) -> None:
    enter = machine_of(forms, "Flat").states["Guard: Enter"]
    [(variable, lock)] = enter.pop("Assign").items()
    assert variable.startswith("lock_Guard_")
    name = lock.pop("lock_name")
    assert evaluate(name, states={"input": {"customer": 7}}) == "customer/7"
    assert lock == {
        "owner_id": "{% $uuid() %}",
        "waiting_since_ms": "{% $millis() %}",
        "restarts": 0,
    }
    assert enter == {"Type": "Pass", "QueryLanguage": "JSONata", "Next": "Guard: Acquire"}


def test_acquire_passes_the_options_and_names_the_requester(forms: Json) -> None:
    machine = machine_of(forms, "Flat")
    [variable] = machine.assigned()
    acquire = machine.states["Guard: Acquire"]
    assert acquire["Arguments"]["Payload"] == {
        "lock_name": f"{{% ${variable}.lock_name %}}",
        "owner_id": f"{{% ${variable}.owner_id %}}",
        "owner_name": "{% $states.context.Execution.Id %}",
        "execution_arn": "{% $states.context.Execution.Id %}",
        "redrive_count": "{% $exists($states.context.Execution.RedriveCount) ? "
        "$states.context.Execution.RedriveCount : null %}",
        "waiting_since_ms": f"{{% ${variable}.waiting_since_ms %}}",
        "lease_seconds": 120,
        "limit": 3,
    }
    assert acquire["Output"] == "{% $states.input %}"


@pytest.mark.parametrize("purpose", ["Acquire", "Release", "Release after error", "Give up"])
def test_an_express_guard_names_no_execution_that_could_be_described(
    forms: Json, purpose: str
) -> None:
    call = machine_of(forms, "Express").states[f"Guard: {purpose}"]
    assert "execution_arn" not in call["Arguments"]["Payload"]
    assert ("owner_name" in call["Arguments"]["Payload"]) == (purpose == "Acquire")


CALLS = ["Acquire", "Release", "Release after error", "Give up"]


def repeated(error: str, most: int) -> Json:
    return {
        "ErrorEquals": [error],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxDelaySeconds": 20,
        "MaxAttempts": most,
        "JitterStrategy": "FULL",
    }


@pytest.mark.parametrize("purpose", CALLS)
@pytest.mark.parametrize(
    ("form", "repeats"),
    [
        ("Flat", [repeated("Lambda.TooManyRequestsException", 100), repeated("States.ALL", 8)]),
        ("Express", [repeated("States.ALL", 3)]),
    ],
)
def test_calls_are_repeated_with_full_jitter_but_mistakes_are_not(
    forms: Json, purpose: str, form: str, repeats: list[Json]
) -> None:
    call = machine_of(forms, form).states[f"Guard: {purpose}"]
    mistakes = ["InvalidRequest", "LockLost"]
    assert call["Retry"] == [{"ErrorEquals": mistakes, "MaxAttempts": 0}, *repeats]
    assert call["TimeoutSeconds"] == 30


@pytest.mark.parametrize(
    ("purpose", "next_state", "named"),
    [
        ("Release", "Guard: Not released", set()),
        ("Release after error", "Guard: Failed", {"queue"}),
        ("Give up", "Guard: Timed out", {"queue"}),
    ],
)
def test_a_release_that_fails_hands_on_its_input(
    forms: Json, purpose: str, next_state: str, named: set[str]
) -> None:
    release = machine_of(forms, "Flat").states[f"Guard: {purpose}"]
    assert release["Catch"] == [
        {"ErrorEquals": ["States.ALL"], "Output": "{% $states.input %}", "Next": next_state}
    ]
    assert release["Output"] == "{% $states.input %}"
    payload = release["Arguments"]["Payload"]
    assert payload["execution_arn"] == "{% $states.context.Execution.Id %}"
    assert set(payload) == {"lock_name", "owner_id", "execution_arn"} | named
    assert payload.get("queue", False) is bool(named)


def test_what_follows_the_guard_follows_a_failed_release_as_well(forms: Json) -> None:
    states = machine_of(forms, "Flat").states
    assert states["Guard: Release"]["Next"] == "Done"
    assert states["Guard: Not released"]["Next"] == "Done"


def test_the_timeout_chain_replaces_the_error_and_does_not_continue(forms: Json) -> None:
    states = machine_of(forms, "OnTimeout").states
    assert "Guard: Timed out" not in states
    assert states["Guard: Give up"]["Next"] == "Later"
    assert states["Guard: Give up"]["Output"] == "{% $states.input %}"
    assert states["Later"]["End"] is True


def test_a_machine_may_invoke_acquire_and_release_and_nothing_else_of_the_service(
    forms: Json,
) -> None:
    [policy] = [
        resource["Properties"]["PolicyDocument"]
        for logical_id, resource in forms["Resources"].items()
        if resource["Type"] == "AWS::IAM::Policy" and logical_id.startswith("FlatMachine")
    ]
    allowed = [resource for statement in policy["Statement"] for resource in statement["Resource"]]
    assert {statement["Action"] for statement in policy["Statement"]} == {"lambda:InvokeFunction"}
    assert sorted({json.dumps(resource).split(":function:")[1] for resource in allowed}) == [
        'acquire"',
        'acquire:*"',
        'release"',
        'release:*"',
        'work"',
        'work:*"',
    ]
