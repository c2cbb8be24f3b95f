"""The definition that a guard leaves in a state machine, in all its forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Duration

from fairlock.cdk.guard.guard_arguments import checked_limit
from fairlock.cdk.machines import variables_as_text
from tests.unit.cdk.guard_forms import FORMS, FUNCTION, Cases, request_of
from tests.unit.cdk.template import (
    EvaluationError,
    Json,
    Scope,
    definition_of,
    evaluate,
    handling,
    happy_path,
    machine_of,
    repeated,
    statements,
    ways_out_unreleased,
)

every_form = pytest.mark.parametrize("form", FORMS)


@every_form
def test_names_of_states_and_variables_are_unique_and_short_enough(forms: Json, form: str) -> None:
    """AWS refuses a variable that an inner scope assigns although an outer one does."""
    machine = machine_of(forms, form)
    names = [name for name, _ in machine.all_states()]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 80
    for scope in machine.all_scopes():
        assert not [outer for outer in scope.outer if scope.assigned() & outer.assigned()]


@every_form
def test_every_state_is_in_jsonata_and_every_path_ends_in_a_release(forms: Json, form: str) -> None:
    machine = machine_of(forms, form)
    split = [name.partition(": ") for name, _ in machine.all_states()]
    for guard in [guard for guard, _, purpose in split if purpose == "Acquire"]:
        own = [state for name, state in machine.all_states() if name.startswith(f"{guard}: ")]
        languages = {state.get("QueryLanguage", machine.language) for state in own}
        assert (len(own) >= 7, languages) == (True, {"JSONata"})
        scope, acquire = machine.holding(f"{guard}: Acquire"), f"{guard}: Acquire"
        assert ways_out_unreleased(scope, acquire) == set()


BARE, OF_ITS_OWN = ["Charge"], ["Guard: Work", "Charge"]
POLLED, WAITED = ["Guard: Acquire", "Guard: Acquired?"], ["Guard: Acquire"]
KEPT = ["Guard: Release", "Guard: Heartbeat"]


def test_uncontended_a_guard_costs_so_many_transitions(forms: Json) -> None:
    for form, path in (
        ("FlatInJsonata", [*POLLED, *BARE, "Guard: Release"]),
        ("TaskWithOwnCatch", [*POLLED, *OF_ITS_OWN, "Guard: Release"]),
        ("QueueFlatInJsonata", [*WAITED, *BARE, "Guard: Release"]),
        ("QueueTaskWithOwnCatch", [*WAITED, *OF_ITS_OWN, "Guard: Release"]),
        ("KeepAliveFlatInJsonata", [*WAITED, "Guard: Work", *BARE, *KEPT]),
        ("KeepAliveTaskWithOwnCatch", [*WAITED, "Guard: Work", "Guard: Body", "Charge", *KEPT]),
        ("KeepAlivePollFlatInJsonata", [*POLLED, "Guard: Work", *BARE, *KEPT]),
    ):
        assert happy_path(machine_of(forms, form)) == ["Guard: Enter", *path]


RELEASED_AFTER_ERRORS = [
    {"ErrorEquals": [error], "Next": "Guard: Release after error"}
    for error in ("States.DataLimitExceeded", "States.ALL")
]


def test_every_error_of_the_work_leads_to_a_release(forms: Json) -> None:
    for form, work in (("Flat", "Charge"), ("Chain", "Guard: Work")):
        assert machine_of(forms, form).states[work]["Catch"] == RELEASED_AFTER_ERRORS


THROTTLED = repeated("Lambda.TooManyRequestsException", most=100, longest=20)


def test_calls_are_repeated_with_full_jitter_but_mistakes_are_not(forms: Json) -> None:
    """And those of an Express guard name no execution that could be described."""
    mistakes = {"ErrorEquals": ["InvalidRequest", "LockLost"], "MaxAttempts": 0}
    for form, repeats in (
        ("Flat", [THROTTLED, repeated("States.ALL", most=8, longest=20)]),
        ("Express", [repeated("States.ALL", most=3, longest=20)]),
    ):
        for purpose in ("Acquire", "Release", "Release after error", "Give up"):
            call = machine_of(forms, form).states[f"Guard: {purpose}"]
            assert call["Retry"] == [mistakes, *repeats]
            assert call["TimeoutSeconds"] == 30
            asked = call["Arguments"]["Payload"]
            assert ("execution_arn" in asked) == (form == "Flat")
            assert ("owner_name" in asked) == (purpose == "Acquire")


def test_what_follows_the_guard_follows_a_failed_release_but_no_timeout(forms: Json) -> None:
    states = machine_of(forms, "OnTimeout").states
    assert states["Guard: Release"]["Next"] == states["Guard: Not released"]["Next"] == "Done"
    assert "Guard: Timed out" not in states
    assert states["Guard: Give up"]["Next"] == "Later"
    for purpose in ("Give up", "Release after error"):
        assert states[f"Guard: {purpose}"]["Arguments"]["Payload"]["queue"] is True
        assert states[f"Guard: {purpose}"]["Output"] == "{% $states.input %}"
    assert states["Later"]["End"] is True


def test_a_machine_may_invoke_what_its_states_call_and_nothing_else(forms: Json) -> None:
    for form, heartbeat in (("Flat", []), ("KeepAliveFlat", ["heartbeat"])):
        found = statements(forms, f"{form}Machine")
        assert {statement["Action"] for statement in found} == {"lambda:InvokeFunction"}
        arns = [json.dumps(arn) for statement in found for arn in statement["Resource"]]
        functions = ("acquire", "release", "work", *heartbeat)
        assert {arn.split(":function:")[1] for arn in arns} == {
            f'{name}{version}"' for name in functions for version in ("", ":*")
        }


# A guard that keeps its lock alive by a heartbeat beside the work.

OWN = {"lock_name": "customer/7", "owner_id": "me"}
every_kept_form = pytest.mark.parametrize(
    "form", ["KeepAliveFlat", "KeepAliveChain", "KeepAlivePollFlat"]
)


def heartbeat_of(machine: Scope) -> Json:
    _, beside_the_work = machine.inner()
    return dict(beside_the_work.states["Guard: Heartbeat"])


@every_kept_form
def test_the_work_ends_with_the_release_that_ends_the_heartbeat(forms: Json, form: str) -> None:
    machine = machine_of(forms, form)
    release = next(machine.inner()).states["Guard: Release"]
    assert release["Arguments"]["Payload"]["keep_alive"] is True
    assert release["End"] is True
    assert "Guard: Release" not in machine.states
    for purpose in ("Release after error", "Give up"):
        assert "keep_alive" not in machine.states[f"Guard: {purpose}"]["Arguments"]["Payload"]
    work = machine.states["Guard: Work"]
    assert work["Output"] == "{% $states.result[0] %}"
    not_released, *others = work["Catch"]
    assert not_released == {
        "ErrorEquals": [f"LockNotReleased.{machine.variable}"],
        "Output": "{% $parse($states.errorOutput.Cause).result %}",
        "Next": "Guard: Not released",
    }
    assert others == RELEASED_AFTER_ERRORS


def test_the_heartbeat_sleeps_on_its_task_token_for_an_interval(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    heartbeat = heartbeat_of(machine)
    token = "{% $states.context.Task.Token %}"
    assert heartbeat["Arguments"] == {
        "FunctionName": f"{FUNCTION}:heartbeat",
        "Payload": request_of(machine, task_token=token),
    }
    assert heartbeat["Resource"].endswith(":states:::lambda:invoke.waitForTaskToken")
    assert (heartbeat["QueryLanguage"], heartbeat["TimeoutSeconds"]) == ("JSONata", 15)
    assert heartbeat["Retry"][-1] == repeated("States.ALL", most=8, longest=15)
    outputs = [rule["Output"] for rule in heartbeat["Catch"]]
    assert outputs == [{"ended": True}, "{% $states.errorOutput %}", "{% $states.input %}"]
    assert heartbeat["End"] is True


def test_an_answer_to_another_acquisition_ends_no_heartbeat(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    heartbeat, mine = heartbeat_of(machine), {machine.variable: OWN}
    ended = evaluate(heartbeat["Output"], states={"result": OWN}, variables=mine)
    assert ended == {"ended": True}
    forged: list[object] = [{**OWN, name: "another"} for name in OWN]
    for answer in (*forged, {}, None, "text", []):
        with pytest.raises(EvaluationError, match="names another lock or another owner"):
            evaluate(heartbeat["Output"], states={"result": answer}, variables=mine)
    assert handling(heartbeat, "States.QueryEvaluationError") == (8, "Guard: Heartbeat")


@every_kept_form
def test_no_outage_ends_the_work_but_a_loss_does(forms: Json, form: str) -> None:
    heartbeat = heartbeat_of(machine_of(forms, form))
    outages = ("LockStoreUnavailable", "Lambda.TooManyRequestsException", "Sandbox.Timedout")
    for error, handled in (
        ("States.Timeout", (0, "Guard: Heartbeat")),
        *((error, (8, "Guard: Heartbeat")) for error in outages),
        *((error, (0, "Guard: Not kept alive")) for error in ("LockLost", "InvalidRequest")),
        ("KeepAliveEnded", (0, "Guard: Heartbeat ended")),
    ):
        assert handling(heartbeat, error) == handled


def test_the_limit_is_evaluated_once_for_acquire_and_heartbeat(guards: Cases) -> None:
    limit = "{% $states.input.permits %}"
    machine = guards.definition(limit=limit, keep_alive=Duration.seconds(5))
    [(variable, lock)] = machine.states["Guard: Enter"]["Assign"].items()
    assert lock["limit"] == checked_limit(limit, shared=False)
    kept = f"{{% ${variable}.limit %}}"
    assert [each["limit"] for each in machine.requests()] == [kept, kept]


def test_repeats_of_a_heartbeat_are_no_slower_than_heartbeats(guards: Cases) -> None:
    for interval, longest_pause in ((1, 2), (5, 5), (20, 20), (60, 20)):
        keep_alive = Duration.seconds(interval)
        guard = guards.guard(keep_alive=keep_alive, lease=Duration.minutes(3))
        heartbeat = heartbeat_of(definition_of(guard))
        assert heartbeat["TimeoutSeconds"] == interval
        assert heartbeat["Retry"][-1]["MaxDelaySeconds"] == longest_pause


def test_work_that_ends_past_the_release_is_noticed(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    states = machine.states["Guard: Work"]["Branches"][0]["States"]
    states["Charge"]["Next"], states["Enough"] = "Enough", {"Type": "Succeed"}
    escaped = ways_out_unreleased(machine, "Guard: Acquire")
    assert escaped == {"Done"}


# What is read in the JSON of a state.

LOCK = "lock_Guard_01234567"
TOKEN = f"${LOCK}.fencing_token"


A_BRANCH = {"StartAt": "Tell", "States": {"Tell": {"Type": "Pass", "Result": TOKEN}}}
READ: list[tuple[str, dict[str, Any], bool]] = [
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
    ("JSONPath", {"Branches": [A_BRANCH]}, False),
    ("JSONPath", {"Choices": [{"Variable": TOKEN, "IsPresent": True, "Next": "On"}]}, False),
    ("JSONPath", {"Parameters": {"token": TOKEN}}, True),
    ("JSONPath", {"Parameters": {"tokens": [TOKEN]}}, True),
    ("JSONPath", {"Parameters": {"token": f"{{% {TOKEN} %}}"}}, True),
    ("JSONPath", {"Parameters": {"token.$": f"{{% {TOKEN} %}}"}}, True),
]


def test_a_variable_is_handed_on_as_text_where_nothing_evaluates_it() -> None:
    for language, fields, is_text in READ:
        assert variables_as_text(fields, language=language) == ({LOCK} if is_text else set()), (
            fields
        )
