"""The fixture of the contracts: a world for each kind of client."""

from __future__ import annotations

import pytest

from tests.contracts.client.drivers import Tasks, Threads, World
from tests.unit.client.doubles import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call", "world"]


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "asyncio"])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    return made
