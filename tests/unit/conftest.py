"""The lock table of the unit tests, a bench and a store over one, the surroundings of handlers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from botocore.session import get_session
from hypothesis import settings

from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from lambdas import runtime
from tests.support import OTHER_DYNAMODB, TABLE, Operations, create_lock_table, store_over
from tests.support.store_bench import Bench

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

settings.load_profile("ci")  # Of Hypothesis: the same examples each time, however slow.


@pytest.fixture
def dynamodb(pytestconfig: pytest.Config) -> Iterator[DynamoDBClient]:
    """In memory, where a request takes 0.1 ms; `make second-engine` puts DynamoDB Local here."""
    other: DynamoDBClient | None = pytestconfig.stash.get(OTHER_DYNAMODB, None)
    if other is None:
        yield cast("DynamoDBClient", MemoryTable())
        return
    create_lock_table(other)
    yield other
    other.delete_table(TableName=TABLE)


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    """In memory, also where `dynamodb` is another engine."""
    return Bench(MemoryTable(), clock)


@pytest.fixture
def store(dynamodb: DynamoDBClient, clock: ManualClock) -> Operations:
    return store_over(dynamodb, clock)


@pytest.fixture(scope="module")
def workflows() -> Iterator[SFNClient]:
    """To be stubbed."""
    client = boto3.client(
        "stepfunctions",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    client.close()


class PresentStdout:
    """Writes to the stdout of that moment: pytest changes it, and loggers keep the first one."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


@pytest.fixture
def lambda_environment(dynamodb: DynamoDBClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new execution environment of the handlers, on the test's table."""

    def create_client(service: str, **settings: Any) -> Any:  # noqa: ANN401 - as a session has it
        return (
            dynamodb if service == "dynamodb" else get_session().create_client(service, **settings)
        )

    session = SimpleNamespace(create_client=create_client)
    monkeypatch.setattr(runtime, "get_session", lambda: session)
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", TABLE)
    for handler in runtime.logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            monkeypatch.setattr(handler, "stream", PresentStdout())
    forget_clients()
    yield
    forget_clients()


@pytest.fixture
def over_botocore(
    lambda_environment: None,  # noqa: ARG001 - is changed here
    fresh_dynamodb: DynamoDBClient,  # noqa: ARG001 - answers SQS, too
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handlers make clients of botocore's, which moto answers."""
    monkeypatch.setattr(runtime, "get_session", get_session)


def forget_clients() -> None:
    """What the handlers keep from one invocation to the next."""
    for name in dir(runtime):
        getattr(getattr(runtime, name), "cache_clear", lambda: None)()
