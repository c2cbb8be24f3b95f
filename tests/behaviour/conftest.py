"""A lock table on the embedded DynamoDB, which serves many clients at once and is atomic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from localaws import LocalAws
from tests.support import TABLE, create_lock_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="module")
def dynamodb(aws: LocalAws) -> Iterator[DynamoDBClient]:
    client: DynamoDBClient = aws.client("dynamodb", max_pool_connections=64)
    create_lock_table(client)
    yield client
    client.delete_table(TableName=TABLE)
