"""A table of accounts on the embedded DynamoDB, which is atomic, as an in-process mock is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest

from testbed.localaws import LocalAws
from tests.unit.optimistic.tables import ACCOUNTS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource
    from mypy_boto3_dynamodb.service_resource import Table


@pytest.fixture(scope="session")
def resource(aws: LocalAws) -> DynamoDBServiceResource:
    session = boto3.Session(
        aws_access_key_id=aws.access_key, aws_secret_access_key="test", region_name="us-east-1"
    )
    return session.resource("dynamodb", endpoint_url=aws.endpoint_url)


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Iterator[Table]:
    table = resource.create_table(
        TableName=ACCOUNTS,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account", "AttributeType": "S"}],
    )
    yield table
    table.delete()
