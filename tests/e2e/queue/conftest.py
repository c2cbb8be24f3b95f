"""All long waits run at the same time, beside the tests that are quick."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.queue.queued_lock import SCENARIOS
from tests.e2e.scenario_runs import ScenarioRuns, begun, warm_up

AT_ONCE = 6
"""Functions that scenarios begun together call at the same time."""


@pytest.fixture(scope="session", autouse=True)
def queue_runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    warm_up(deployment, environments=AT_ONCE)
    with begun(deployment, {name: [scenario] for name, scenario in SCENARIOS.items()}) as runs:
        yield runs
