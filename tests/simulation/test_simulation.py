"""A slice of `make simulate`: no promise is broken, each control is found, a seed is one run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonata.jsonata import Jsonata  # type: ignore[import-untyped]  # it ships no types

from tests.simulation.__main__ import SCENARIOS
from tests.simulation.campaign import Plan, run_all
from tests.simulation.jsonata import FUNCTIONS, MISSING, EvaluationError, compiled, evaluate
from tests.simulation.machines import made_today, recorded
from tests.simulation.scenario import Result, Scenario, run, run_control
from tests.simulation.world import World


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: str(each.number))
def test_no_promise_is_broken(scenario: Scenario) -> None:
    result = run(scenario, seed=1, scale=scenario.scale_of_tests or scenario.scale / 7)
    assert result.findings == ()
    assert result.outcomes["granted"] > 5


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: str(each.number))
def test_a_protection_that_is_switched_off_is_found(scenario: Scenario) -> None:
    """The first control of each; `make simulate` tries them all."""
    control = scenario.controls[0]
    findings = run_control(scenario, control, seed=control.seed).findings
    assert control.breaks in {each.promise for each in findings}


def test_a_run_that_raises_or_does_not_end_is_a_violation_and_the_others_go_on() -> None:
    def raises(_world: World) -> None:
        raise ValueError("a bug")

    def hangs(world: World) -> None:
        world.begin(0, world.process("client"), lambda: waits(world))
        world.run(at_most=math.inf)

    def waits(world: World) -> None:
        while True:
            world.engine.wait(1)

    given = SCENARIOS[9]
    plays = {1: raises, 2: hangs, 3: given.play}
    scenarios = {
        number: replace(given, number=number, play=play, controls=(), scale=0.002)
        for number, play in plays.items()
    }
    found = run_all(scenarios, Plan(seeds=1, seconds=3))
    assert [
        [what.what for what in each.findings] for each in found if isinstance(each, Result)
    ] == [
        ["ValueError('a bug')"],
        ["it did not end within 3 s"],
        [],
    ]


OTHER_PYTHON = os.environ.get("OTHER_PYTHON", sys.executable)
"""Another version of Python with greenlet and boto3, if you have one: a run is the same in it."""


def test_a_seed_is_one_run_whatever_the_hash_seed_and_the_version_of_python() -> None:
    digests = set()
    for python, hash_seed in ((sys.executable, "1"), (OTHER_PYTHON, "2")):
        chosen = {"PYTHONHASHSEED": hash_seed, "SCENARIO": "19", "SEED": "3", "SCALE": "0.005"}
        ran = subprocess.run(
            [python, "-m", "tests.simulation"],
            env={**os.environ, **chosen},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        digests.add(ran.stdout.splitlines()[-1])
    assert len(digests) == 1
    assert digests.pop().startswith("digest: ")


# The compiled JSONata agrees with the whole language on each expression of the machines.

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


# The recorded machines are those that the guard makes today.


def test_the_recorded_machines_are_those_that_the_guard_makes() -> None:
    again = "record them again: python -m tests.simulation.machines"
    assert json.loads(json.dumps(made_today())) == recorded(), again
