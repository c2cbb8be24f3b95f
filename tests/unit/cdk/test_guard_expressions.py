"""What the guard's JSONata gives, evaluated."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import Waiting
from fairlock.cdk.guard import guard_arguments
from fairlock.cdk.guard.guard_arguments import checked_limit, checked_only_newest
from tests.unit.cdk.guard_forms import Cases
from tests.unit.cdk.template import EvaluationError, Json, evaluate, machine_of


def test_the_error_of_the_work_leaves_as_it_is(forms: Json) -> None:
    failed = machine_of(forms, "Flat").states["Guard: Failed"]
    for error_output, error, cause in (
        ({"Error": "CardDeclined", "Cause": "no funds"}, "CardDeclined", "no funds"),
        ({"Error": "CardDeclined"}, "CardDeclined", ""),
        ({"Error": "CardDeclined", "Cause": None}, "CardDeclined", ""),
        ({}, "States.TaskFailed", ""),
    ):
        assert evaluate(failed["Error"], states={"input": error_output}) == error
        assert evaluate(failed["Cause"], states={"input": error_output}) == cause


# `LockGuard(shared=True)`: what its states ask for.


def test_each_call_of_a_reader_asks_to_share_with_twenty_or_as_many_as_told(guards: Cases) -> None:
    kept = {"keep_alive": Duration.seconds(5)}
    for options, number in (
        ({**kept, "waiting": Waiting.poll()}, 2),
        ({**kept, "waiting": Waiting.queue()}, 3),
        ({"express": True}, 1),
    ):
        for limits, limit in (({}, 20), ({"limit": 3}, 3)):
            made = guards.definition(shared=True, **options, **limits).requests()
            assert [(each["shared"], each["limit"]) for each in made] == [(True, limit)] * number
        writer = guards.definition(**options)
        assert not [each for each in writer.requests() if "shared" in each]


# A release that fails for good beside a heartbeat: the result is carried out in an error.

FENCING_TOKEN = 1_900_000_000_000_001  # of sixteen digits
RESULTS: list[Any] = [
    *({"a": [1]}, {"a": None}, {"token": FENCING_TOKEN}, {}, [1, 2], [7], [[7]], [[]], []),
    *("text", "", 'quo"ted', 0, 1.5, 2**53, True, False, None),
]


@pytest.fixture(scope="module")
def work(forms: Json) -> Json:
    return dict(machine_of(forms, "KeepAliveFlat").states["Guard: Work"])


@pytest.fixture(scope="module")
def failure(work: Json) -> Json:
    return dict(work["Branches"][0]["States"]["Guard: Lock not released"])


def raised(failure: Json, result: object, **functions: Any) -> tuple[str, str]:  # noqa: ANN401 - functions of JSONata
    """Error and cause with which the branch of the work ends."""
    [variable] = re.findall(r"\$(lock_\w+)\.lock_name", failure["Cause"])
    context: Json = {
        "states": {"input": result},
        "variables": {variable: {"lock_name": "customer/7"}},
        "functions": functions,
    }
    return evaluate(failure["Error"], **context), evaluate(failure["Cause"], **context)


def rounding(value: object) -> str:
    """`$string` of an engine that keeps 15 digits, as the JSONata documents say."""
    text = json.dumps(value)
    return json.dumps(json.loads(text, parse_int=lambda digits: int(float(f"{int(digits):.15g}"))))


def as_javascript(value: object) -> str:
    """`$string` of an engine that escapes no more than it must."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_the_result_of_the_work_leaves_the_guard_as_it_is_also_by_an_error(
    forms: Json, work: Json, failure: Json, result: object
) -> None:
    output = machine_of(forms, "Chain").states["Guard: Work"]["Output"]
    assert evaluate(output, states={"result": [result]}) == result
    catch = work["Catch"][0]
    error, cause = raised(failure, result)
    assert [error] == catch["ErrorEquals"]
    assert evaluate(catch["Output"], states={"errorOutput": {"Cause": cause}}) == result


def test_a_result_that_is_too_long_for_a_cause_is_an_error_of_its_own(failure: Json) -> None:
    room = 32_768 - len(json.dumps({"result": ""}, separators=(",", ":")))
    assert raised(failure, "x" * room)[0].startswith("LockNotReleased.")
    assert raised(failure, "x" * (room + 1)) == (
        "LockNotReleased",
        "the work is done; the lock customer/7 could not be released, nor the result be handed on",
    )


@pytest.mark.parametrize("character", ["ä", "\u20ac", "\U0001f600", "\x7f"], ids=ascii)
def test_what_is_not_ascii_is_counted_as_four_bytes(failure: Json, character: str) -> None:
    """No one says whether Step Functions counts characters or bytes: it must not cut the result."""
    room = (32_768 - len('{"result":""}')) // 4
    error, cause = raised(failure, character * room, string=as_javascript)
    assert error.startswith("LockNotReleased.")
    assert len(cause) <= len(cause.encode()) <= 32_768
    longer = character * (room + 1)
    assert len(as_javascript({"result": longer})) < 32_768
    assert raised(failure, longer, string=as_javascript)[0] == "LockNotReleased"


def test_a_result_that_would_be_rounded_is_an_error_of_its_own(failure: Json) -> None:
    assert raised(failure, {"n": 123}, string=rounding)[0].startswith("LockNotReleased.")
    assert raised(failure, {"token": FENCING_TOKEN}, string=rounding)[0] == "LockNotReleased"


# What only shows when a workflow runs, such as an id that is missing, fails by its field and rule.


def test_a_number_that_is_missing_when_the_workflow_runs_is_named() -> None:
    made = {
        "limit": checked_limit("{% $states.input.limit %}", shared=False),
        "only_newest": checked_only_newest("{% $states.input.only_newest %}"),
    }
    for field, checked in made.items():
        told = rf"^{field}: \$states.input.{field} must give a value: it is missing"
        with pytest.raises(EvaluationError, match=told):
            evaluate(str(checked), states={"input": {}})
        assert evaluate(str(checked), states={"input": {field: 3}}) == 3


CUSTOMER = "{% 'customer/' & $states.input.customer_id %}"
BY_PATH = sfn.JsonPath.format("customer/{}", sfn.JsonPath.string_at("$.customer_id"))


def name_of(lock_name: str) -> str:
    stack = Stack()
    return str(stack.resolve(guard_arguments.workflow_lock_name(stack, lock_name)))


def test_a_part_that_is_there_makes_the_name_and_a_missing_one_none() -> None:
    told = r"^lock_name: \$states.input.customer_id must be a text or a number: it is missing, null"
    for name in map(name_of, (CUSTOMER, BY_PATH)):
        for value in (7, "ä 7"):
            found = evaluate(name, states={"input": {"customer_id": value}})
            assert found == f"customer/{value}"
        for given in ({}, *({"customer_id": each} for each in (None, "", {"id": 7}, [7]))):
            with pytest.raises(EvaluationError, match=told):
                evaluate(name, states={"input": given})


def test_without_the_check_all_customers_without_an_id_have_one_lock() -> None:
    assert evaluate(CUSTOMER, states={"input": {}}) == "customer/"
    assert evaluate(CUSTOMER, states={"input": {"customer_id": None}}) == "customer/null"


def test_jsonata_that_is_no_mere_concatenation_stays_as_it_is() -> None:
    for expression in (
        "$states.input.name",
        "$states.input.urgent ? 'a/' & $states.input.id : 'b'",
        "'a/' & $states.input.id and true",
        "'a/' & $states.input.number + 1",
        "'a/' & 'b'",
        "$string($states.input.id)",
    ):
        assert name_of(f"{{% {expression} %}}") == f"{{% {expression} %}}"


def test_operands_may_be_calls_quoted_names_and_brackets() -> None:
    given = {"id": 7, "customer id": 8, "list": ["x", "y"]}
    functions = {"f": lambda text, number: f"{text}{number}"}
    for expression, name in (
        ("'a/' & $f('x & y', $states.input.id) & '/b'", "a/x & y7/b"),
        ('"o\'r/" & $states.input.`customer id`', "o'r/8"),
        ("'a/' & ($states.input.id + 1)", "a/8"),
        ("$states.input.id & '/' & $states.input.list[1]", "7/y"),
    ):
        found = name_of(f"{{% {expression} %}}")
        assert evaluate(found, states={"input": given}, functions=functions) == name
