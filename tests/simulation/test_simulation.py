"""A slice of `make simulate`: no promise is broken, each control is found, a seed is one run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.simulation.__main__ import SCENARIOS, run_all
from tests.simulation.scenario import Control, Result, Scenario, run, run_control
from tests.simulation.states import EvaluationError, evaluate
from tests.simulation.versions import made_today, recorded
from tests.simulation.world import World

pytestmark = pytest.mark.cached


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: str(each.number))
def test_no_promise_is_broken(scenario: Scenario) -> None:
    result = run(scenario, seed=1, scale=scenario.scale_of_tests or scenario.scale / 10)
    assert result.findings == ()
    assert result.outcomes["granted"] > 5


@pytest.mark.parametrize(
    ("scenario", "control"),
    [
        pytest.param(scenario, control, id=f"{scenario.number}: {control.name}")
        for scenario in SCENARIOS.values()
        for control in scenario.controls
    ],
)
def test_a_protection_that_is_switched_off_is_found(scenario: Scenario, control: Control) -> None:
    assert control.breaks in run_control(scenario, control, seed=control.seed).broken


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
    found = run_all(scenarios, seeds=1, seconds=3)
    assert [
        [what.what for what in each.findings] for each in found if isinstance(each, Result)
    ] == [["ValueError('a bug')"], ["it did not end within 3 s"], []]


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


def test_a_field_that_leads_nowhere_fails() -> None:
    with pytest.raises(EvaluationError):
        evaluate({"a": "{% $states.input.b %}"}, {"$states": {"input": {}}})


# The recorded machines are those that the guard makes today.


def test_the_recorded_machines_are_those_that_the_guard_makes() -> None:
    again = "record them again: python -m tests.simulation.versions --record"
    assert json.loads(json.dumps(made_today())) == recorded(), again
