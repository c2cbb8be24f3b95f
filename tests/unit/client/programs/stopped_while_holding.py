"""Holds some locks, is frozen, and uses each for the first time when it thaws.

    python -m tests.unit.client.programs.stopped_while_holding TABLE protected|unprotected

Says "holding", then waits for a line on its standard input; the test stops it meanwhile.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import boto3

from fairlock import Lock, LockClient
from fairlock.clock import BootClock
from fairlock.errors import FairlockError

LOCKS = 21
LEASE_SECONDS = 3
WRITES = 34
"""Of each lock that is used for writes: 3 locks for each kind of use, so 102 writes."""


WRITING = ("transact_write", "condition_check", "no guard")


class StandsStillWhenStopped(BootClock):
    """The control: time in which this process could run, and no other."""

    def __init__(self) -> None:
        self._offset = super().monotonic()

    def monotonic(self) -> float:
        return self._offset + time.process_time()


def main() -> None:
    table_name, mode = sys.argv[1:]
    clock = BootClock() if mode == "protected" else StandsStillWhenStopped()
    locks = LockClient(table_name, lease=LEASE_SECONDS, clock=clock)
    dynamodb = boto3.client("dynamodb")
    held = [locks.acquire(f"{mode}-{number}") for number in range(LOCKS)]

    def put(lock: Lock) -> Any:  # noqa: ANN401 - a write of a transaction
        key = {"pk": {"S": f"written-{mode}"}, "sk": {"S": lock.name}}
        return {"Put": {"TableName": table_name, "Item": key}}

    def write_under_own_guard(lock: Lock) -> None:
        dynamodb.transact_write_items(TransactItems=[lock.condition_check(), put(lock)])

    uses: list[tuple[str, Callable[[Lock], object]]] = [
        ("check", lambda lock: lock.check()),
        ("remaining", lambda lock: fail_unless(is_so=lock.remaining > 0)),
        ("lost", lambda lock: fail_unless(is_so=not lock.lost.is_set())),
        ("heartbeat", lambda lock: lock.heartbeat()),
        ("transact_write", lambda lock: lock.transact_write([put(lock)])),
        ("condition_check", write_under_own_guard),
        ("no guard", lambda lock: dynamodb.transact_write_items(TransactItems=[put(lock)])),
    ]
    assert all(lock.remaining > 0 for lock in held)
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    sys.stdin.readline()
    went_on: Counter[str] = Counter({name: 0 for name, _ in uses})
    for number, lock in enumerate(held):
        name, use = uses[number % len(uses)]
        for _ in range(WRITES if name in WRITING else 1):
            try:
                use(lock)
            except (FairlockError, dynamodb.exceptions.TransactionCanceledException):
                continue
            went_on[name] += 1
    sys.stdout.write(json.dumps(went_on))
    sys.stdout.flush()


def fail_unless(*, is_so: bool) -> None:
    if not is_so:
        raise FairlockError


if __name__ == "__main__":
    main()
