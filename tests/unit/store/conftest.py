"""The bench of the store's tests: a lock table, a clock and a workflow engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, Operations, store_over
from tests.support.store_bench import Bench

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """In memory, also where `dynamodb` is another engine."""
    return Bench(MemoryTable(), clock)


@pytest.fixture
def store(dynamodb: DynamoDBClient, clock: FakeClock) -> Operations:
    return store_over(dynamodb, clock)
