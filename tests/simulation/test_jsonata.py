"""The compiled JSONata agrees with the whole language on each expression of the machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonata.jsonata import Jsonata  # type: ignore[import-untyped]  # it ships no types

from tests.simulation.jsonata import FUNCTIONS, MISSING, EvaluationError, compiled, evaluate
from tests.simulation.machines import recorded

LOCK = {
    "lock_name": "orders/7",
    "owner_id": "owner-0123456789",
    "waiting_since_ms": 1_900_000_000_123,
    "restarts": 2,
    "pause_seconds": 4,
    "acquired": True,
    "reason": "HELD",
    "retry_after_seconds": 1.5,
    "fencing_token": 1_900_000_000_000_001,
}
ANSWERS: tuple[dict[str, Any], ...] = (
    {"lock_name": "orders/7", "owner_id": "owner-0123456789", "acquired": True, "n": 1},
    {"lock_name": "orders/7", "owner_id": "owner-0123456789", "acquired": False, "n": [1, 2]},
    {"lock_name": "orders/8", "owner_id": "owner-0123456789", "acquired": True},
    {},
)
HOLDERS: tuple[Any, ...] = (
    None,
    [],
    [{"owner_name": "a"}],
    [{"owner_name": str(n)} for n in range(9)],
)
EXECUTIONS = (
    {"Id": "arn:1"},
    {"Id": "arn:1", "RedriveCount": 1, "RedriveTime": "2030-03-17T17:46:41.000+00:00"},
)
INPUTS: tuple[Any, ...] = (
    None,
    {"lock": "x", "Error": "E", "Cause": "c"},
    {"Error": 1, "long": "x" * 40_000},
    ["é" * 9_000],
)


def expressions(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, str) and value.startswith("{%"):
        yield value[2:-2]
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from expressions(part)


def situations() -> Iterator[dict[str, Any]]:
    for number in range(16):
        lock = dict(LOCK)
        holders = HOLDERS[number % 4]
        if holders is not None:
            lock["holders"] = holders
        if number % 3:
            lock["detail"] = "why"
        answer = ANSWERS[number // 4]
        result = {"Payload": answer} if number % 2 else answer
        yield {
            "input": INPUTS[number % 4],
            "result": [result, 2] if number == 7 else result,
            "errorOutput": {"Error": "E", "Cause": '{"result": 1}'},
            "context": {"Execution": EXECUTIONS[number % 2], "Task": {"Token": "t"}},
            "lock": lock,
        }


def by_the_whole_language(text: str, states: dict[str, Any], variable: str) -> Any:  # noqa: ANN401 - any JSON
    expression = Jsonata(text)
    frame = expression.create_frame()
    frame.bind("states", states)
    frame.bind(variable, states["lock"])
    expression.register_lambda("uuid", lambda: "a-uuid")
    expression.register_lambda("millis", lambda: 1_900_000_900_000)
    expression.register_lambda("parse", json.loads)
    try:
        return json.loads(json.dumps(expression.evaluate(None, frame)))
    except Exception:  # noqa: BLE001 - whatever it raises
        return EvaluationError


EXPRESSIONS = sorted(set(expressions(recorded())))


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_compiled_expression_has_the_value_of_the_whole_language(text: str) -> None:
    variable = next((part for part in text.replace(".", " ").split() if "$lock_" in part), "$lock_")
    variable = "$lock_" + variable.partition("$lock_")[2].rstrip(",])}").partition(",")[0]
    for states in situations():
        values = {"$states": states, variable: states["lock"], "$uuid": lambda: "a-uuid"}
        values["$millis"] = lambda: 1_900_000_900_000
        try:
            found = compiled(text)(values)
            found = None if found is MISSING else json.loads(json.dumps(found))
        except (EvaluationError, TypeError, KeyError):
            found = EvaluationError
        assert found == by_the_whole_language(text, states, variable[1:]), states


@pytest.mark.parametrize("text", ["a.b", "$x[1", "$map([1], function($i){$i})", "~> $f"])
def test_what_the_guard_does_not_use_is_refused(text: str) -> None:
    with pytest.raises((SyntaxError, KeyError)):
        compiled(text)({})


def test_a_field_that_leads_nowhere_fails() -> None:
    with pytest.raises(EvaluationError):
        evaluate({"a": "{% $states.input.b %}"}, {"$states": {"input": {}}})
    assert "$merge" in FUNCTIONS
