"""Holds a lock, is stopped and goes on, and then writes as if nothing had happened.

    python -m tests.unit.guarded.paused LOCK_TABLE LEDGER LOCK

Prints "holding" and waits for a line on its standard input; the test stops it meanwhile. Then it
prints how many writes of each kind were accepted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import boto3

from fairlock import LockClient
from fairlock.errors import LockLost
from fairlock.guarded.guarded_writes import GuardedWrites

WRITES_OF_A_KIND = 20
LEASE_SECONDS = 1.0


def main() -> None:
    lock_table, ledger, lock_name = sys.argv[1:]
    dynamodb = boto3.client("dynamodb")
    lock = LockClient(lock_table, client=dynamodb, lease=LEASE_SECONDS).acquire(lock_name)
    straight_to_dynamodb = GuardedWrites(
        dynamodb,
        table_name=lock_table,
        lock_name=lock_name,
        owner_id=lock.owner_id,
        fencing_token=lock.fencing_token,
    )
    fence = lock.fence_condition()

    def put(kind: str, number: int) -> Any:  # noqa: ANN401 - a write of a transaction
        item = {"account": {"S": f"{lock_name}/{kind}/{number}"}}
        return {"Put": {"TableName": ledger, "Item": item}}

    def own_transaction(item: Any) -> None:  # noqa: ANN401 - same
        dynamodb.transact_write_items(TransactItems=[item, lock.condition_check()])

    def fenced(_item: object) -> None:
        dynamodb.update_item(
            TableName=ledger,
            Key={"account": {"S": f"{lock_name}/fenced"}},
            UpdateExpression=f"SET {fence.assignment}",
            ConditionExpression=fence.condition,
            ExpressionAttributeNames=fence.names,
            ExpressionAttributeValues=fence.values,
        )

    kinds: dict[str, Callable[[Any], object]] = {
        "the lock's": lambda item: lock.transact_write([item]),
        "the lock's, with release": lambda item: lock.transact_write([item], release=True),
        "past the lock's own clock": lambda item: straight_to_dynamodb.transact_write([item]),
        "the same, with release": lambda item: straight_to_dynamodb.transact_write(
            [item], release=True
        ),
        "own transaction": own_transaction,
        "fenced": fenced,
        "unguarded": lambda item: dynamodb.transact_write_items(TransactItems=[item]),
    }
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    sys.stdin.readline()
    refusals = (
        LockLost,
        dynamodb.exceptions.TransactionCanceledException,
        dynamodb.exceptions.ConditionalCheckFailedException,
    )

    def is_accepted(kind: str, number: int) -> bool:
        try:
            kinds[kind](put(kind, number))
        except refusals:
            return False
        return True

    accepted = {
        kind: sum(is_accepted(kind, number) for number in range(WRITES_OF_A_KIND)) for kind in kinds
    }
    sys.stdout.write(json.dumps(accepted))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
