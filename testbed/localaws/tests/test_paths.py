"""Correction missing_paths."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.localaws.workbench import Ended, Workbench

WithoutCorrection = Callable[..., Workbench]


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


def choose(bench: Workbench, rule: dict[str, Any]) -> Ended:
    states = {
        "C": {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"}], "Default": "No"},
        "Yes": {"Type": "Pass", "Result": "yes", "End": True},
        "No": {"Type": "Pass", "Result": "no", "End": True},
    }
    return bench.run({"StartAt": "C", "States": states}, {"a": 1})


def test_a_choice_may_ask_whether_a_path_selects_something(corrected: Workbench) -> None:
    present, absent = {"IsPresent": True}, {"Not": {"Variable": "$.b", "IsPresent": True}}
    assert choose(corrected, {"Variable": "$.a", **present}).output == "yes"
    assert choose(corrected, {"Variable": "$.b", **present}).output == "no"
    assert choose(corrected, absent).output == "yes"


def test_a_choice_may_compare_after_it_has_asked(corrected: Workbench) -> None:
    asked = {"Variable": "$.b", "IsPresent": True}
    compared = {"Variable": "$.b", "NumericEquals": 1}
    assert choose(corrected, {"And": [asked, compared]}).output == "no"
    assert choose(corrected, compared).error == "States.Runtime"
