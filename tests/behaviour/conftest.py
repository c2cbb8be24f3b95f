"""A lock table on the embedded DynamoDB, which serves many clients at once and is atomic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from testbed.localaws import LocalAws
from tests.support import OTHER_DYNAMODB, TABLE, create_lock_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def dynamodb(request: pytest.FixtureRequest) -> Iterator[DynamoDBClient]:
    client: DynamoDBClient | None = request.config.stash.get(OTHER_DYNAMODB, None)
    if client is None:
        aws: LocalAws = request.getfixturevalue("aws")
        client = aws.client("dynamodb", max_pool_connections=64)
    create_lock_table(client)
    yield client
    client.delete_table(TableName=TABLE)
