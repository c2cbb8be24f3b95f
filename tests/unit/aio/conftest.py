"""The fixture of the suite: a DynamoDB far away, and clients of it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock import AsyncLockClient
from fairlock.testing.fake_async_client import LoopClock
from tests.unit.client.doubles import AsyncTable, pytest_pyfunc_call

__all__ = ["far", "pytest_pyfunc_call"]


class Far:
    """A table whose requests and answers take their time, in virtual time."""

    def __init__(self) -> None:
        self.table = AsyncTable()

    def client(self, name: str = "anna", **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
        """One with a lease of 30 s, renewed every 10 s, in danger 10 s before its end."""
        given: dict[str, Any] = {"clock": LoopClock(), "owner_name": name, "lease": 30, **settings}
        return AsyncLockClient("locks", **{"client": self.table, **given})


@pytest.fixture
def far() -> Far:
    return Far()
