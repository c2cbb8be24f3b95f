"""The recorded machines are those that the guard makes today."""

from __future__ import annotations

import json

from tests.simulation.machines import made_today, recorded


def test_the_recorded_machines_are_those_that_the_guard_makes() -> None:
    again = "record them again: python -m tests.simulation.machines"
    assert json.loads(json.dumps(made_today())) == recorded(), again
