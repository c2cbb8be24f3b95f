"""Fixtures for all suites: a clock that tests move, and a lock table of moto's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from xdist.scheduler import LoadScopeScheduling

from tests.support import FakeClock, create_lock_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_WHOLE_SUITES = ("e2e/lifetimes", "e2e", "model", "infra")
"""They share a deployment (`e2e/lifetimes` has one of its own), a synthesis, or searches."""


class BySuite(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Hands whole suites to one process if they share something dear, and single files else."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        inside = (suite for suite in _WHOLE_SUITES if file.startswith(f"tests/{suite}/"))
        return next(inside, file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First those that wait for long, so that the others are run meanwhile."""
    root = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(root).parent.as_posix() + "/"
        suites = enumerate(_WHOLE_SUITES)
        return next((at for at, suite in suites if folder.startswith(f"{suite}/")), len(items))

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySuite:  # noqa: ANN401 - xdist's, untyped
    """For `pytest -n`. (xdist's own groups do not work with pytest 9.2.)"""
    return BySuite(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:  # noqa: ANN401 - pytest's, not public
    """Shows what tests have measured (`record_property("figures", …)`)."""
    reports = terminalreporter.getreports("passed")
    figures = [
        text for report in reports for kind, text in report.user_properties if kind == "figures"
    ]
    if figures:
        terminalreporter.section("figures")
        for text in figures:
            terminalreporter.write_line(text)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def fresh_dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBClient]:
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


@pytest.fixture
def dynamodb(fresh_dynamodb: DynamoDBClient) -> DynamoDBClient:
    return fresh_dynamodb
