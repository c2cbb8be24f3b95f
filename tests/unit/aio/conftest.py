"""Fixtures: a table, and clients over it in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock import AsyncLockClient
from fairlock.testing.fake_async_client import LoopClock
from tests.unit.client.doubles import AsyncTable, pytest_pyfunc_call

__all__ = ["make_client", "pytest_pyfunc_call", "table"]

MakeClient = Callable[..., AsyncLockClient]


@pytest.fixture
def table() -> AsyncTable:
    return AsyncTable()


@pytest.fixture
def make_client(table: AsyncTable) -> MakeClient:
    """Clients with a lease of 30 s, renewed every 10 s, in danger 10 s before its end."""

    def make(name: str = "anna", **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
        defaults: dict[str, Any] = {
            "client": table,
            "clock": LoopClock(),
            "owner_name": name,
            "lease": 30,
        }
        return AsyncLockClient("locks", **{**defaults, **settings})

    return make
