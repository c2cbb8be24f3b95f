"""Programs that tests run as processes of their own, to freeze them, to fork them, to end them.

    python -m tests.unit.client.programs NAME TABLE

Each prints what it has found as JSON; see `test_processes.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import boto3
from botocore.exceptions import ClientError

from fairlock import Lock, LockClient, LockLost
from tests.support.faulty_table import down
from tests.unit.client.doubles import Table


def outcome_of(action: Any) -> Any:  # noqa: ANN401 - a function without arguments, and what it gives
    try:
        return action()
    except (LockLost, ClientError) as error:
        return type(error).__name__


# Frozen while it holds: uses each lock for the first time when it thaws.


def freezes(table_name: str) -> object:
    """Holds locks; is stopped, and tells how the first use of each ended. One write asks no one."""
    dynamodb = boto3.client("dynamodb")
    locks = LockClient(table_name, lease=3)
    put: Any = {"Put": {"TableName": table_name, "Item": {"pk": {"S": "w"}, "sk": {"S": "w"}}}}

    def write(*items: Any) -> None:  # noqa: ANN401 - writes of a transaction
        dynamodb.transact_write_items(TransactItems=[*items, put])

    uses: dict[str, Callable[[Lock], object]] = {
        "check": lambda lock: lock.check(),
        "heartbeat": lambda lock: lock.heartbeat(),
        "transact_write": lambda lock: lock.transact_write([put]),
        "condition_check": lambda lock: write(lock.condition_check()),
        "no guard": lambda _: write(),
    }
    held = {name: locks.acquire(name) for name in uses}
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    sys.stdin.readline()
    return {name: outcome_of(partial(use, held[name])) for name, use in uses.items()}


# Forks: what the child can do with what it has inherited.


def is_renewed(lock: Lock) -> bool:
    """Whether a heartbeat comes: more time remains than a moment before."""
    remaining = (lock.remaining for _ in range(2000) if not lock.lost.wait(0.01))
    return any(before < after for before, after in pairwise(remaining))


def in_the_child(locks: LockClient, inherited: Lock, parents_client: object) -> dict[str, Any]:
    """What the child can do with its parent's lock, and with a lock of its own."""
    seen = {
        "threads": threading.active_count(),
        "lost": inherited.lost.is_set(),
        "lost is waited for": inherited.lost.wait(0.1),
        "remaining": inherited.remaining,
        "check": outcome_of(inherited.check),
        "heartbeat": outcome_of(inherited.heartbeat),
        "condition_check": outcome_of(inherited.condition_check),
        "block": outcome_of(lambda: bool(inherited.__enter__())),
        "release": outcome_of(inherited.release),
    }
    client = locks._connection.dynamodb()  # noqa: SLF001 - whose sockets would else be shared
    with locks.hold(f"child-of-{inherited.name}", max_wait=0) as own:
        seen["own lock is renewed"] = is_renewed(own)
    inherited.__exit__(None, None, None)  # As of a fork in the middle of its block.
    seen["connections of its own"] = client is not parents_client
    return seen


def forks(table_name: str) -> object:
    """Holds a lock, forks, and tells what parent and child see."""
    locks = LockClient(table_name, lease=60, heartbeat_every=0.2)
    lock = locks.acquire("parents")
    is_renewed(lock)  # Heartbeats are under way.
    parents_client = locks._connection.dynamodb()  # noqa: SLF001 - as above
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen = in_the_child(locks, lock, parents_client)
        os.write(writing, json.dumps(seen).encode())
        sys.exit()  # As a child ends that knows nothing of forks: with all exit handlers.
    os.close(writing)
    limit = threading.Timer(60, os.kill, (child, signal.SIGKILL))
    limit.start()
    with os.fdopen(reading) as pipe:
        seen = json.loads(pipe.read() or "{}")
    _, status = os.waitpid(child, 0)
    limit.cancel()
    told = {"child": seen, "child's status": status, "parent's is renewed": is_renewed(lock)}
    told["release"] = lock.release()
    locks.close()
    return told


# The main thread ends at once; another one holds a lock, for its whole lease if no one renews it.

LEASE_SECONDS = 5.0


def hold_without_main_thread() -> None:
    threading.main_thread().join(60)
    table = Table()
    settings: dict[str, Any] = {"lease": LEASE_SECONDS, "heartbeat_every": 0.2, "safe_period": 4.0}
    locks = LockClient("locks", client=table, **settings)
    told = threading.Event()
    lock = locks.acquire("a", on_danger=lambda _lock, _reason: told.set())
    answer = {"renewed": table.does_more(3, seconds=LEASE_SECONDS), "lost": lock.lost.is_set()}
    table.will(down())
    answer["told of danger"] = told.wait(LEASE_SECONDS)
    table.will()
    locks.close(release=True)
    sys.stdout.write(json.dumps({**answer, "held": table.state("a").held}))


def ends_its_main_thread(_table_name: str) -> None:
    threading.Thread(target=hold_without_main_thread).start()


PROGRAMS: dict[str, Callable[[str], object]] = {
    each.__name__: each for each in (freezes, forks, ends_its_main_thread)
}


if __name__ == "__main__":
    name, table = sys.argv[1:]
    found = PROGRAMS[name](table)
    if found is not None:
        sys.stdout.write(json.dumps(found))
        sys.stdout.flush()
