"""The definition that a guard leaves in a state machine, in all its forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Duration

from fairlock.cdk.guard.guard_arguments import checked_limit
from fairlock.cdk.machines import variables_as_text
from tests.unit.cdk.guard_forms import FORMS, FUNCTION, RELEASE, GuardFactory, request_of
from tests.unit.cdk.template import (
    EvaluationError,
    Handling,
    Scope,
    definition_of,
    evaluate,
    handling,
    happy_path,
    machine_of,
    statements,
    ways_out_unreleased,
)

Json = dict[str, Any]

every_form = pytest.mark.parametrize("form", FORMS)


def guards_of(machine: Scope) -> list[str]:
    ends = ": Acquire"
    names = [name for name, _ in machine.all_states() if name.endswith(ends)]
    return [name.removesuffix(ends) for name in names]


@every_form
def test_every_state_of_a_guard_is_a_jsonata_state(forms: Json, form: str) -> None:
    machine = machine_of(forms, form)
    for guard in guards_of(machine):
        own = [
            state.get("QueryLanguage", machine.language)
            for name, state in machine.all_states()
            if name.startswith(f"{guard}: ")
        ]
        assert (len(own) >= 7, set(own)) == (True, {"JSONata"})


@every_form
def test_names_of_states_and_variables_are_unique_where_they_must_be_and_short_enough(
    forms: Json, form: str
) -> None:
    """AWS refuses a variable that an inner scope assigns although an outer one does."""
    machine = machine_of(forms, form)
    names = [name for name, _ in machine.all_states()]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 80
    for scope in machine.all_scopes():
        assert not [outer for outer in scope.outer if scope.assigned() & outer.assigned()]


@every_form
def test_every_path_from_acquire_ends_in_a_release(forms: Json, form: str) -> None:
    machine = machine_of(forms, form)
    for guard in guards_of(machine):
        scope, acquire = machine.holding(f"{guard}: Acquire"), f"{guard}: Acquire"
        assert ways_out_unreleased(scope, acquire, release_function=RELEASE) == set()


BARE, OF_ITS_OWN = ["Charge"], ["Guard: Work", "Charge"]
POLLED, WAITED = ["Guard: Acquire", "Guard: Acquired?"], ["Guard: Acquire"]
KEPT = ["Guard: Release", "Guard: Heartbeat"]


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ("FlatInJsonata", [*POLLED, *BARE, "Guard: Release"]),
        ("TaskWithOwnCatch", [*POLLED, *OF_ITS_OWN, "Guard: Release"]),
        ("QueueFlatInJsonata", [*WAITED, *BARE, "Guard: Release"]),
        ("QueueTaskWithOwnCatch", [*WAITED, *OF_ITS_OWN, "Guard: Release"]),
        ("KeepAliveFlatInJsonata", [*WAITED, "Guard: Work", *BARE, *KEPT]),
        ("KeepAliveTaskWithOwnCatch", [*WAITED, "Guard: Work", "Guard: Body", "Charge", *KEPT]),
        ("KeepAlivePollFlatInJsonata", [*POLLED, "Guard: Work", *BARE, *KEPT]),
    ],
)
def test_uncontended_a_guard_costs_so_many_transitions(
    forms: Json, form: str, path: list[str]
) -> None:
    assert happy_path(machine_of(forms, form)) == ["Guard: Enter", *path]


def test_every_error_of_the_work_leads_to_a_release(forms: Json) -> None:
    for form, work in (("Flat", "Charge"), ("Chain", "Guard: Work")):
        assert machine_of(forms, form).states[work]["Catch"] == [
            {"ErrorEquals": ["States.DataLimitExceeded"], "Next": "Guard: Release after error"},
            {"ErrorEquals": ["States.ALL"], "Next": "Guard: Release after error"},
        ]


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


@pytest.mark.parametrize(
    ("form", "repeats"),
    [
        ("Flat", [repeated("Lambda.TooManyRequestsException", 100), repeated("States.ALL", 8)]),
        ("Express", [repeated("States.ALL", 3)]),
    ],
)
def test_calls_are_repeated_with_full_jitter_but_mistakes_are_not(
    forms: Json, form: str, repeats: list[Json]
) -> None:
    """And those of an Express guard name no execution that could be described."""
    for purpose in CALLS:
        call = machine_of(forms, form).states[f"Guard: {purpose}"]
        mistakes = ["InvalidRequest", "LockLost"]
        assert call["Retry"] == [{"ErrorEquals": mistakes, "MaxAttempts": 0}, *repeats]
        assert call["TimeoutSeconds"] == 30
        asked = call["Arguments"]["Payload"]
        assert ("execution_arn" in asked) == (form == "Flat")
        assert ("owner_name" in asked) == (purpose == "Acquire")


def test_what_follows_the_guard_follows_a_failed_release_but_no_wait_that_is_over(
    forms: Json,
) -> None:
    states = machine_of(forms, "OnTimeout").states
    assert states["Guard: Release"]["Next"] == states["Guard: Not released"]["Next"] == "Done"
    assert "Guard: Timed out" not in states
    assert states["Guard: Give up"]["Next"] == "Later"
    for purpose in ("Give up", "Release after error"):
        assert states[f"Guard: {purpose}"]["Arguments"]["Payload"]["queue"] is True
        assert states[f"Guard: {purpose}"]["Output"] == "{% $states.input %}"
    assert states["Later"]["End"] is True


@pytest.mark.parametrize(
    ("form", "functions"),
    [
        ("Flat", ["acquire", "release", "work"]),
        ("KeepAliveFlat", ["acquire", "heartbeat", "release", "work"]),
    ],
)
def test_a_machine_may_invoke_what_its_states_call_and_nothing_else_of_the_service(
    forms: Json, form: str, functions: list[str]
) -> None:
    found = statements(forms, f"{form}Machine")
    assert {statement["Action"] for statement in found} == {"lambda:InvokeFunction"}
    arns = [json.dumps(arn) for statement in found for arn in statement["Resource"]]
    invoked = {arn.split(":function:")[1] for arn in arns}
    assert invoked == {f'{name}{version}"' for name in functions for version in ("", ":*")}


# A guard that keeps its lock alive by a heartbeat beside the work.

OWN = {"lock_name": "customer/7", "owner_id": "me"}
every_kept_form = pytest.mark.parametrize(
    "form", ["KeepAliveFlat", "KeepAliveChain", "KeepAlivePollFlat"]
)


def branches(machine: Scope) -> tuple[Scope, Scope]:
    """The branch of the work, and that of the heartbeat."""
    work, heartbeat = (
        Scope(body["States"], body["StartAt"]) for body in machine.states["Guard: Work"]["Branches"]
    )
    return work, heartbeat


@every_kept_form
def test_the_work_ends_with_the_release_that_ends_the_heartbeat_and_its_result_leaves_the_guard(
    forms: Json, form: str
) -> None:
    machine = machine_of(forms, form)
    [variable] = machine.assigned()
    release = branches(machine)[0].states["Guard: Release"]
    assert release["Arguments"]["Payload"]["keep_alive"] is True
    assert release["End"] is True
    assert "Guard: Release" not in machine.states
    for purpose in ("Release after error", "Give up"):
        assert "keep_alive" not in machine.states[f"Guard: {purpose}"]["Arguments"]["Payload"]
    work = machine.states["Guard: Work"]
    assert work["Output"] == "{% $states.result[0] %}"
    assert work["Catch"] == [
        {
            "ErrorEquals": [f"LockNotReleased.{variable}"],
            "Output": "{% $parse($states.errorOutput.Cause).result %}",
            "Next": "Guard: Not released",
        },
        {"ErrorEquals": ["States.DataLimitExceeded"], "Next": "Guard: Release after error"},
        {"ErrorEquals": ["States.ALL"], "Next": "Guard: Release after error"},
    ]


def test_the_heartbeat_sleeps_on_its_task_token_for_an_interval(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    heartbeat = branches(machine)[1].states["Guard: Heartbeat"]
    token = "{% $states.context.Task.Token %}"
    assert heartbeat["Arguments"] == {
        "FunctionName": f"{FUNCTION}:heartbeat",
        "Payload": request_of(machine, task_token=token),
    }
    assert heartbeat["Resource"].endswith(":states:::lambda:invoke.waitForTaskToken")
    assert (heartbeat["QueryLanguage"], heartbeat["TimeoutSeconds"]) == ("JSONata", 15)
    assert heartbeat["Retry"][-1] == {
        "ErrorEquals": ["States.ALL"],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxDelaySeconds": 15,
        "MaxAttempts": 8,
        "JitterStrategy": "FULL",
    }
    outputs = [rule["Output"] for rule in heartbeat["Catch"]]
    assert outputs == [{"ended": True}, "{% $states.errorOutput %}", "{% $states.input %}"]
    assert heartbeat["End"] is True


def test_an_answer_to_another_acquisition_ends_no_heartbeat(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    [variable] = machine.assigned()
    heartbeat = branches(machine)[1].states["Guard: Heartbeat"]
    ended = evaluate(heartbeat["Output"], states={"result": OWN}, variables={variable: OWN})
    assert ended == {"ended": True}
    forged: list[object] = [{**OWN, name: "another"} for name in OWN]
    for answer in (*forged, {}, None, "text", []):
        with pytest.raises(EvaluationError, match="names another lock or another owner"):
            evaluate(heartbeat["Output"], states={"result": answer}, variables={variable: OWN})
    assert handling(heartbeat, "States.QueryEvaluationError") == Handling(8, "Guard: Heartbeat")


@every_kept_form
def test_no_outage_ends_the_work_but_a_loss_does(forms: Json, form: str) -> None:
    heartbeat = branches(machine_of(forms, form))[1].states["Guard: Heartbeat"]
    assert handling(heartbeat, "States.Timeout") == Handling(0, "Guard: Heartbeat")
    for error in ("LockStoreUnavailable", "Lambda.TooManyRequestsException", "Sandbox.Timedout"):
        assert handling(heartbeat, error) == Handling(8, "Guard: Heartbeat")
    for error in ("LockLost", "InvalidRequest"):
        assert handling(heartbeat, error) == Handling(0, "Guard: Not kept alive")
    assert handling(heartbeat, "KeepAliveEnded") == Handling(0, "Guard: Heartbeat ended")


def test_the_limit_is_evaluated_once_for_acquire_and_heartbeat(guards: GuardFactory) -> None:
    limit = "{% $states.input.permits %}"
    guard = guards.guard(limit=limit, keep_alive=Duration.seconds(5))
    machine = definition_of(guard)
    [lock] = machine.states["Guard: Enter"]["Assign"].values()
    assert lock["limit"] == checked_limit(limit, shared=False)
    kept = guard.fencing_token.replace("fencing_token", "limit")
    assert [each["limit"] for each in machine.requests()] == [kept, kept]


def test_repeats_of_a_heartbeat_are_no_slower_than_heartbeats(guards: GuardFactory) -> None:
    for interval, longest_pause in ((1, 2), (5, 5), (20, 20), (60, 20)):
        keep_alive = Duration.seconds(interval)
        guard = guards.guard(keep_alive=keep_alive, lease=Duration.minutes(3))
        heartbeat = branches(definition_of(guard))[1].states["Guard: Heartbeat"]
        assert heartbeat["TimeoutSeconds"] == interval
        assert heartbeat["Retry"][-1]["MaxDelaySeconds"] == longest_pause


def test_work_that_ends_past_the_release_is_noticed(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    states = machine.states["Guard: Work"]["Branches"][0]["States"]
    states["Charge"]["Next"], states["Enough"] = "Enough", {"Type": "Succeed"}
    escaped = ways_out_unreleased(machine, "Guard: Acquire", release_function=RELEASE)
    assert escaped == {"Done"}


# What is read in the JSON of a state.

LOCK = "lock_Guard_01234567"
TOKEN = f"${LOCK}.fencing_token"


@pytest.mark.parametrize(
    ("language", "fields", "is_text"),
    [
        ("JSONata", {"Output": f"{{% {TOKEN} %}}"}, False),
        ("JSONata", {"Output": [{"deep": f"{{% [1, {TOKEN}] %}}"}]}, False),
        ("JSONata", {"Output": TOKEN}, True),
        ("JSONata", {"Arguments": {"Payload.$": TOKEN}}, True),
        ("JSONata", {"Output": f"token {{% {TOKEN} %}}"}, True),
        ("JSONata", {"Comment": f"its fencing token is {TOKEN}"}, False),
        ("JSONata", {"QueryLanguage": "JSONPath", "Parameters": {"token.$": TOKEN}}, False),
        ("JSONPath", {"QueryLanguage": "JSONata", "Output": f"{{% {TOKEN} %}}"}, False),
        ("JSONPath", {"Parameters": {"token.$": TOKEN}}, False),
        ("JSONPath", {"Parameters": {"text.$": f"States.Format('{{}}', {TOKEN})"}}, False),
        ("JSONPath", {"InputPath": TOKEN}, False),
        ("JSONPath", {"Choices": [{"Variable": TOKEN, "IsPresent": True, "Next": "On"}]}, False),
        ("JSONPath", {"Parameters": {"token": TOKEN}}, True),
        ("JSONPath", {"Parameters": {"tokens": [TOKEN]}}, True),
        ("JSONPath", {"Parameters": {"token": f"{{% {TOKEN} %}}"}}, True),
        ("JSONPath", {"Parameters": {"token.$": f"{{% {TOKEN} %}}"}}, True),
    ],
)
def test_a_variable_is_handed_on_as_text_where_nothing_evaluates_it(
    language: str, fields: dict[str, Any], *, is_text: bool
) -> None:
    assert variables_as_text(fields, language=language) == ({LOCK} if is_text else set())


def test_what_a_branch_names_is_not_the_parallel_s_own() -> None:
    branch = {"StartAt": "Tell", "States": {"Tell": {"Type": "Pass", "Result": TOKEN}}}
    assert variables_as_text({"Branches": [branch]}, language="JSONPath") == set()
