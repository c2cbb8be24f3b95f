"""All long waits run at the same time, beside the tests that are quick."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.queue.scenarios import SCENARIOS
from tests.e2e.warming import warm_up

AT_ONCE = 6
"""Functions that scenarios begun together call at the same time."""


@dataclass(frozen=True)
class Underway:
    """Scenarios that were begun; asking for one waits for its end."""

    scenarios: dict[str, Future[Any]]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - each scenario has facts of its own
        return self.scenarios[name].result(timeout=150)


@pytest.fixture(scope="session", autouse=True)
def underway(deployment: Deployment) -> Iterator[Underway]:
    warm_up(deployment, environments=AT_ONCE)
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        yield Underway(
            {name: pool.submit(scenario, deployment) for name, scenario in SCENARIOS.items()}
        )
