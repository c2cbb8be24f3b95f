"""DynamoDB Local, Amazon's own engine, of 2020: the last release that a package registry holds."""

import contextlib
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from testbed.second_engine.child import Child
from testbed.second_engine.places import DYNAMODB_LOCAL

_POLICY = Path(__file__).with_name("loopback.policy")
_CONDITION_FAILED = "ConditionalCheckFailedException"
_NAMES = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_MOST_ROUNDS = 100
_UNTIL_INPUT_ENDS = ("sh", "-c", '"$@" & cat > /dev/null; kill $!', "sh")
"""Java does not end with the process that started it."""
MOST_CONNECTIONS = 64


@contextlib.contextmanager
def dynamodb_local() -> Iterator[Any]:
    """A client of a DynamoDB Local that answers loopback only, and ends with the block.

    Raises RuntimeError if there is no Java.
    """
    if shutil.which("java") is None:
        raise RuntimeError("DynamoDB Local needs Java 17 to 23, and there is no `java` in the path")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *_UNTIL_INPUT_ENDS,
        "java",
        "-Djava.security.manager",
        f"-Djava.security.policy=={_POLICY}",
        "-Djava.library.path=DynamoDBLocal_lib",
        "-jar",
        "DynamoDBLocal.jar",
        "-inMemory",
        "-port",
        str(port),
    ]
    url = f"http://127.0.0.1:{port}"
    with Child(command, url=url, directory=DYNAMODB_LOCAL):
        client = boto3.client(
            "dynamodb",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(proxies={}, max_pool_connections=MOST_CONNECTIONS),
        )
        with contextlib.closing(client):
            yield OldItemsAdded(client)


@dataclass
class OldItemsAdded:
    """A client that adds to a failed condition of UpdateItem the item that failed it.

    DynamoDB has answered with it since June 2023, on request; this release knows the request in
    transactions only. So the condition is checked again, alone, in a transaction, whose answer has
    the item. If the condition holds by then, the update is sent again: no answer tells of an item
    that would have met the condition.
    """

    inner: Any

    def __getattr__(self, name: str) -> Any:
        """Whatever the client has."""
        return getattr(self.inner, name)

    def update_item(self, **update: Any) -> Any:
        """As UpdateItem of today."""
        if update.get("ReturnValuesOnConditionCheckFailure") != "ALL_OLD":
            return self.inner.update_item(**update)
        for _ in range(_MOST_ROUNDS):
            try:
                return self.inner.update_item(**update)
            except ClientError as error:
                if error.response["Error"]["Code"] != _CONDITION_FAILED:
                    raise
                item = self._item_that_fails(update)
                if item is not None:
                    error.response["Item"] = item  # type: ignore[typeddict-unknown-key]
                    raise
        raise AssertionError(f"the condition failed {_MOST_ROUNDS} times, and held in between")

    def _item_that_fails(self, update: dict[str, Any]) -> dict[str, Any] | None:
        try:
            self.inner.transact_write_items(TransactItems=[{"ConditionCheck": _check_of(update)}])
        except self.inner.exceptions.TransactionCanceledException as error:
            [reason] = error.response["CancellationReasons"]
            if reason["Code"] != "ConditionalCheckFailed":
                return None
            item: dict[str, Any] = reason.get("Item", {})
            return item
        return None


def _check_of(update: dict[str, Any]) -> dict[str, Any]:
    """The condition alone, with the names and values that it uses."""
    condition = update["ConditionExpression"]
    used = set(re.findall(r"[#:]\w+", condition))
    fields = {
        field: {name: value for name, value in update.get(field, {}).items() if name in used}
        for field in _NAMES
    }
    return {
        "TableName": update["TableName"],
        "Key": update["Key"],
        "ConditionExpression": condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **{field: values for field, values in fields.items() if values},
    }
