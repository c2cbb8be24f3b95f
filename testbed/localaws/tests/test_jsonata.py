"""Correction jsonata_states, and JSONata as the guard needs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import botocore.exceptions
import pytest

from testbed.localaws.workbench import Ended, Workbench

WithoutCorrection = Callable[..., Workbench]

VALUES: list[Any] = [
    {},
    [],
    None,
    0,
    1.5,
    "",
    "text",
    True,
    False,
    [[]],
    [[1]],
    [1],
    [1, 2],
    [None],
    [[1, 2], [3]],
    {"a": []},
    {"a": [1]},
    {"a": None},
    [{"a": 1}],
    {"a": {"b": [None]}},
    2**53 - 1,
]


def machine(**states: object) -> dict[str, Any]:
    return {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states}


def inside(**state: object) -> dict[str, Any]:
    return {"StartAt": "Inside", "States": {"Inside": {"Type": "Pass", "End": True, **state}}}


def around(branch: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"Type": "Parallel", "Branches": [branch], "End": True, **fields}


MACHINES: dict[str, dict[str, Any]] = {
    "Pass": machine(P={"Type": "Pass", "Output": "{% $states.input %}", "End": True}),
    "Parallel": machine(P=around(inside(), Output="{% $states.result[0] %}")),
    "variable": machine(
        A={"Type": "Pass", "Assign": {"v": "{% $states.input %}"}, "Output": 0, "Next": "B"},
        B={"Type": "Pass", "Output": "{% $v %}", "End": True},
    ),
    "Map": machine(
        A={"Type": "Pass", "Output": {"items": ["{% $states.input %}"]}, "Next": "M"},
        M={
            "Type": "Map",
            "Items": "{% $states.input.items %}",
            "ItemProcessor": inside(),
            "Output": "{% $states.result[0] %}",
            "End": True,
        },
    ),
    "Choice, Wait, Succeed": machine(
        C={"Type": "Choice", "Choices": [{"Condition": "{% true %}", "Next": "W"}]},
        W={"Type": "Wait", "Seconds": "{% 0 %}", "Next": "S"},
        S={"Type": "Succeed"},
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_any_value_passes_through_unchanged(corrected: Workbench, name: str) -> None:
    executions = [corrected.start(MACHINES[name], value) for value in VALUES]
    outputs = [corrected.wait(execution).output for execution in executions]
    assert json.dumps(outputs) == json.dumps(VALUES)


def test_any_value_passes_through_a_task_unchanged(corrected: Workbench) -> None:
    function = corrected.function("def handler(event, context): return event\n")
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": function, "Payload": "{% $states.input %}"},
        "Output": "{% $states.result.Payload %}",
        "End": True,
    }
    definition = machine(P=around({"StartAt": "T", "States": {"T": task}}))
    outputs = [corrected.run(definition, value).output for value in VALUES]
    assert json.dumps(outputs) == json.dumps([[value] for value in VALUES])


PARALLEL = machine(
    P={
        **around(
            inside(Output="{% $states.input.n * 2 %}"),
            Arguments={"n": "{% $states.input + 1 %}"},
            Output={"got": "{% $states.result %}", "from": "{% $states.input %}"},
            Assign={"first": "{% $states.result[0] %}"},
            Next="Z",
        ),
        "End": False,
    },
    Z={
        "Type": "Pass",
        "Output": "{% $merge([$states.input, {'first': $first}]) %}",
        "End": True,
    },
)


def test_a_parallel_evaluates_arguments_output_and_assign(corrected: Workbench) -> None:
    assert corrected.run(PARALLEL, 20).output == {"got": [42], "from": 20, "first": 42}


def test_control_a_parallel_ignores_them(left_out: WithoutCorrection) -> None:
    assert left_out("jsonata_states").run(PARALLEL, 20).status == "FAILED"


def test_an_output_that_cannot_be_evaluated_is_caught_by_the_parallel(
    corrected: Workbench,
) -> None:
    catcher = {
        "ErrorEquals": ["States.QueryEvaluationError"],
        "Output": "{% $states.errorOutput.Error %}",
        "Next": "Z",
    }
    definition = machine(
        P=around(inside(), Output="{% $never_assigned %}", Catch=[catcher]),
        Z={"Type": "Succeed"},
    )
    assert corrected.run(definition).output == "States.QueryEvaluationError"


def test_succeed_has_an_output(corrected: Workbench) -> None:
    definition = machine(S={"Type": "Succeed", "Output": "{% $states.input + 1 %}"})
    assert corrected.run(definition, 1).output == 2


def choose(bench: Workbench, condition: str) -> Ended:
    rule = {"Condition": condition, "Output": "rule", "Next": "S"}
    choice = {"Type": "Choice", "Choices": [rule], "Default": "S", "Output": "default"}
    return bench.run(machine(C=choice, S={"Type": "Succeed"}))


def test_a_choice_evaluates_the_output_of_the_rule_or_its_own(corrected: Workbench) -> None:
    assert choose(corrected, "{% 1 = 1 %}").output == "rule"
    assert choose(corrected, "{% 1 = 2 %}").output == "default"


def test_a_condition_must_be_a_boolean(corrected: Workbench) -> None:
    assert choose(corrected, "{% 'yes' %}").error == "States.QueryEvaluationError"


def test_control_a_condition_of_any_type_is_taken(left_out: WithoutCorrection) -> None:
    assert choose(left_out("jsonata_states"), "{% 'yes' %}").output == "rule"


def test_a_fail_state_computes_its_error(corrected: Workbench) -> None:
    fail = {
        "Type": "Fail",
        "Error": "{% $states.input.Error %}",
        "Cause": "{% 'because of ' & $states.input.Cause %}",
    }
    ended = corrected.run(machine(F=fail), {"Error": "E", "Cause": "c"})
    assert (ended.error, ended.cause) == ("E", "because of c")


def test_a_failing_branch_s_error_reaches_a_fail_state_behind_the_catcher(
    corrected: Workbench,
) -> None:
    fails = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    catcher = {
        "ErrorEquals": ["States.ALL"],
        "Assign": {"failure": "{% $states.errorOutput %}"},
        "Output": "{% $states.input %}",
        "Next": "R",
    }
    definition = machine(
        P=around(fails, Catch=[catcher]),
        R={
            "Type": "Fail",
            "Error": "{% $failure.Error %}",
            "Cause": "{% $failure.Cause %}",
        },
    )
    ended = corrected.run(definition, {"in": "put"})
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "E", "c")


def test_uuid_millis_and_the_context_are_there(corrected: Workbench) -> None:
    output = {
        "uuid": "{% $length($uuid()) %}",
        "distinct": "{% $uuid() != $uuid() %}",
        "now": "{% $abs($millis() - $toMillis($states.context.State.EnteredTime)) < 5000 %}",
        "execution": "{% $states.context.Execution.Id %}",
        "state": "{% $states.context.State.Name %}",
    }
    ended = corrected.run(machine(P={"Type": "Pass", "Output": output, "End": True}))
    assert ended.output == {
        "uuid": 36,
        "distinct": True,
        "now": True,
        "execution": ended.arn,
        "state": "P",
    }


def test_a_wait_evaluates_its_seconds(corrected: Workbench) -> None:
    definition = machine(W={"Type": "Wait", "Seconds": "{% $states.input %}", "End": True})
    assert corrected.run(definition, 1).seconds >= 1
    assert corrected.run(definition, 1.5).error == "States.QueryEvaluationError"


# Correction express, and start_delay.


PASS = {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}}
OWN_ARN = {
    "QueryLanguage": "JSONata",
    "StartAt": "P",
    "States": {"P": {"Type": "Pass", "Output": "{% $states.context.Execution.Id %}", "End": True}},
}


def run_sync(bench: Workbench, definition: dict[str, Any]) -> dict[str, Any]:
    machine = bench.machine(definition, kind="EXPRESS")
    return dict(bench.workflows.start_sync_execution(stateMachineArn=machine, input="[1]"))


def test_a_synchronous_execution_answers_its_output(corrected: Workbench) -> None:
    answer = run_sync(corrected, PASS)
    assert (answer["status"], answer["output"]) == ("SUCCEEDED", "[1]")


def test_its_arn_is_of_the_kind_express_inside_and_outside(corrected: Workbench) -> None:
    answer = run_sync(corrected, OWN_ARN)
    assert answer["output"] == f'"{answer["executionArn"]}"'
    assert answer["executionArn"].split(":")[5] == "express"


def test_each_start_of_a_name_is_an_execution_of_its_own(corrected: Workbench) -> None:
    machine = corrected.machine(OWN_ARN, kind="EXPRESS")
    answers = [
        corrected.workflows.start_sync_execution(stateMachineArn=machine, name="one", input="1")
        for _ in range(2)
    ]
    first, second = (answer["executionArn"].split(":") for answer in answers)
    assert first[:-1] == second[:-1]
    assert (first[-2], first != second) == ("one", True)


def test_a_failed_answer_has_an_error_and_no_output(corrected: Workbench) -> None:
    fails = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    answer = run_sync(corrected, fails)
    assert (answer["status"], answer["error"], answer["cause"]) == ("FAILED", "E", "c")
    assert "output" not in answer


def describe(bench: Workbench) -> str:
    arn = run_sync(bench, PASS)["executionArn"]
    try:
        return str(bench.workflows.describe_execution(executionArn=arn)["status"])
    except botocore.exceptions.ClientError as refused:
        return str(refused.response["Error"]["Code"])


def test_it_cannot_be_described(corrected: Workbench) -> None:
    assert describe(corrected) == "InvalidArn"


def test_control_it_is_described_like_a_standard_execution(left_out: WithoutCorrection) -> None:
    assert describe(left_out("express")) == "SUCCEEDED"


@pytest.mark.parametrize(
    "pattern", ["lambda:invoke.waitForTaskToken", "states:startExecution.sync"]
)
def test_it_may_not_wait_for_others(corrected: Workbench, pattern: str) -> None:
    task = {"Type": "Task", "Resource": f"arn:aws:states:::{pattern}", "End": True}
    answer = run_sync(corrected, {"StartAt": "T", "States": {"T": task}})
    assert (answer["status"], answer["error"]) == ("FAILED", "States.Runtime")


def seconds_until_its_first_state(bench: Workbench) -> float:
    started, entered = bench.events(bench.run(PASS).arn)[:2]
    assert (started["type"], entered["type"]) == ("ExecutionStarted", "PassStateEntered")
    return float((entered["timestamp"] - started["timestamp"]).total_seconds())


def test_an_execution_starts_at_once(corrected: Workbench) -> None:
    """If the machine has time for it; the delay would be there each time."""
    assert any(seconds_until_its_first_state(corrected) < 0.15 for _ in range(20))


def test_control_an_execution_starts_after_150_ms(left_out: WithoutCorrection) -> None:
    assert seconds_until_its_first_state(left_out("start_delay")) >= 0.15


# Correction missing_paths.


def run_pass(bench: Workbench, **fields: object) -> Ended:
    states = {"P": {"Type": "Pass", "End": True, **fields}}
    return bench.run({"StartAt": "P", "States": states}, {"a": None, "list": [1]})


@pytest.mark.parametrize(
    "fields",
    [
        {"Parameters": {"x.$": "$.b"}},
        {"Parameters": {"x.$": "$.list[1]"}},
        {"Parameters": {"x.$": "$$.Execution.Nothing"}},
        {"Parameters": {"deep": {"x.$": "$.b.c"}}},
        {"InputPath": "$.b"},
        {"OutputPath": "$.b"},
        {"Parameters": {"x.$": "$.list[?(@ > 1)]"}},
    ],
)
def test_a_path_that_selects_nothing_fails_the_execution(
    corrected: Workbench, fields: dict[str, Any]
) -> None:
    ended = run_pass(corrected, **fields)
    assert (ended.status, ended.error) == ("FAILED", "States.Runtime")


def test_in_an_intrinsic_function_it_is_a_parameter_failure(corrected: Workbench) -> None:
    ended = run_pass(corrected, Parameters={"x.$": "States.Format('{}', $.b)"})
    assert (ended.status, ended.error) == ("FAILED", "States.ParameterPathFailure")


def test_control_a_path_that_selects_nothing_is_null(left_out: WithoutCorrection) -> None:
    ended = run_pass(left_out("missing_paths"), Parameters={"x.$": "$.b"})
    assert ended.output == {"x": None}


def test_null_is_a_value(corrected: Workbench) -> None:
    assert run_pass(corrected, Parameters={"x.$": "$.a"}).output == {"x": None}


def choose_by_path(bench: Workbench, rule: dict[str, Any]) -> Ended:
    states = {
        "C": {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"}], "Default": "No"},
        "Yes": {"Type": "Pass", "Result": "yes", "End": True},
        "No": {"Type": "Pass", "Result": "no", "End": True},
    }
    return bench.run({"StartAt": "C", "States": states}, {"a": 1})


def test_a_choice_may_ask_whether_a_path_selects_something(corrected: Workbench) -> None:
    present, absent = {"IsPresent": True}, {"Not": {"Variable": "$.b", "IsPresent": True}}
    assert choose_by_path(corrected, {"Variable": "$.a", **present}).output == "yes"
    assert choose_by_path(corrected, {"Variable": "$.b", **present}).output == "no"
    assert choose_by_path(corrected, absent).output == "yes"


def test_a_choice_may_compare_after_it_has_asked(corrected: Workbench) -> None:
    asked = {"Variable": "$.b", "IsPresent": True}
    compared = {"Variable": "$.b", "NumericEquals": 1}
    assert choose_by_path(corrected, {"And": [asked, compared]}).output == "no"
    assert choose_by_path(corrected, compared).error == "States.Runtime"
