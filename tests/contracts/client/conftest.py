"""The fixture of the contracts: a world for each kind of client."""

from __future__ import annotations

import pytest

from tests.contracts.client.drivers import Tasks, Threads, World


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "asyncio"])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    return made
