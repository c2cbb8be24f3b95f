"""A lock for each test, and what takes long, begun before the first of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.known_failures.lock import Lock
from tests.e2e.known_failures.scenarios import MOST_AT_ONCE, Scenarios, begin
from tests.e2e.warming import warm_up


@pytest.fixture(scope="session", autouse=True)
def scenarios(deployment: Deployment) -> Iterator[Scenarios]:
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        warm_up(deployment, environments=MOST_AT_ONCE)
        yield begin(deployment, pool)


@pytest.fixture
def lock(deployment: Deployment) -> Lock:
    return Lock(deployment)
