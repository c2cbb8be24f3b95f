"""A slice of `make simulate`: no promise is broken, each control is found, a seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import SCENARIOS
from tests.simulation.scenario import Scenario, run, run_control


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
