"""Fixtures: a client without heartbeats, over a table in memory and a clock moved by hand."""

from __future__ import annotations

import pytest

from fairlock import LockClient
from tests.unit.client.conftest import Near, near
from tests.unit.client.doubles import Table, pytest_pyfunc_call

__all__ = ["locks", "near", "pytest_pyfunc_call", "table"]


@pytest.fixture
def locks(near: Near) -> LockClient:
    return near.client()


@pytest.fixture
def table(near: Near) -> Table:
    return near.table
