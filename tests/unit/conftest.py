"""The lock table of the unit tests: one moto a module and a fresh table a test, which is faster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from hypothesis import settings
from moto import mock_aws

from lambdas import runtime, telemetry
from tests.support import OTHER_DYNAMODB, TABLE, create_lock_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

settings.register_profile("ci", deadline=None, database=None, derandomize=True)
settings.load_profile("ci")


@pytest.fixture(scope="module")
def moto_dynamodb(pytestconfig: pytest.Config) -> Iterator[DynamoDBClient]:
    if OTHER_DYNAMODB in pytestconfig.stash:
        yield pytestconfig.stash[OTHER_DYNAMODB]
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            yield boto3.client("dynamodb")


@pytest.fixture
def dynamodb(moto_dynamodb: DynamoDBClient) -> Iterator[DynamoDBClient]:
    create_lock_table(moto_dynamodb)
    yield moto_dynamodb
    moto_dynamodb.delete_table(TableName=TABLE)


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
    assert dynamodb
    monkeypatch.setenv("LEASEHOLD_TABLE_NAME", TABLE)
    for handler in telemetry.logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            monkeypatch.setattr(handler, "stream", PresentStdout())
    forget_clients()
    yield
    forget_clients()


def forget_clients() -> None:
    """What the handlers keep from one invocation to the next."""
    for name in dir(runtime):
        getattr(getattr(runtime, name), "cache_clear", lambda: None)()
