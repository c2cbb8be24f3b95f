"""Fixtures for all suites: a clock that tests move, and a lock table of moto's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from moto import mock_aws

from tests.support import FakeClock, create_lock_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TESTS = Path(__file__).resolve().parent
_WHOLE_SUITES = ("e2e", "infra", "model")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share something dear (a deployment, an emulator, a synthesis) share a process."""
    for item in items:
        suite, *rest = item.path.relative_to(TESTS).parts
        if suite in _WHOLE_SUITES:
            item.add_marker(pytest.mark.xdist_group(suite))
        else:
            item.add_marker(pytest.mark.xdist_group("/".join([suite, *rest])))
    items.sort(key=lambda item: _longest_first(item.path.relative_to(TESTS).parts[0]))


def _longest_first(suite: str) -> int:
    return _WHOLE_SUITES.index(suite) if suite in _WHOLE_SUITES else len(_WHOLE_SUITES)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBClient]:
    """A DynamoDB of moto's, with a lock table. For the semantics of single clients only."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("dynamodb")
        create_lock_table(client)
        yield client
