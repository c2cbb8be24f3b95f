"""A release that fails for good beside a heartbeat: the result is carried out in an error."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.unit.cdk.asl import Scope, evaluate, machine_of

Json = dict[str, Any]

FENCING_TOKEN = 1_900_000_000_000_001
"""Sixteen digits."""
RESULTS = [
    {"a": [1], "token": FENCING_TOKEN},
    {},
    [1, 2],
    [7],
    [[7]],
    [[]],
    [],
    "text",
    'quo"ted',
    "",
    0,
    1.5,
    2**53,
    True,
    False,
    None,
    {"a": None},
]


@pytest.fixture(scope="module")
def work(forms: Json) -> Json:
    return dict(machine_of(forms, "KeepAliveFlat").states["Guard: Work"])


@pytest.fixture(scope="module")
def failure(work: Json) -> Json:
    [body, _] = work["Branches"]
    return dict(Scope(body["States"], body["StartAt"]).states["Guard: Lock not released"])


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
def test_the_result_stands(work: Json, failure: Json, result: object) -> None:
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
    assert raised(failure, character * (room + 1), string=as_javascript)[0] == "LockNotReleased"


def test_a_result_may_have_room_by_characters_and_none_by_bytes(failure: Json) -> None:
    """The control: what `$length` alone would let through."""
    result = "\u20ac" * 32_000
    text = as_javascript({"result": result})
    assert len(text) <= 32_768 < len(text.encode())
    assert raised(failure, result, string=as_javascript)[0] == "LockNotReleased"


def test_a_result_that_would_be_rounded_is_an_error_of_its_own(failure: Json) -> None:
    assert raised(failure, {"n": 123}, string=rounding)[0].startswith("LockNotReleased.")
    assert raised(failure, {"token": FENCING_TOKEN}, string=rounding)[0] == "LockNotReleased"


def test_an_error_of_the_work_by_that_name_is_not_taken_for_the_guards_own(work: Json) -> None:
    assert "LockNotReleased" not in work["Catch"][0]["ErrorEquals"]
    [own] = work["Catch"][0]["ErrorEquals"]
    assert own.startswith("LockNotReleased.lock_Guard_")
