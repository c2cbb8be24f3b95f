"""A lock for each test, and what takes long, begun before the first of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.known_failures.lock import Lock
from tests.e2e.known_failures.scenarios import SCENARIOS
from tests.e2e.scenario_runs import ScenarioRuns, begun, warm_up


@pytest.fixture(scope="session", autouse=True)
def failure_runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    warm_up(deployment, environments=len(SCENARIOS))
    with begun(deployment, {name: [scenario] for name, scenario in SCENARIOS.items()}) as runs:
        yield runs


@pytest.fixture
def lock(deployment: Deployment) -> Lock:
    return Lock(deployment)
