"""Holds a lock, forks, and tells what parent and child see; see `test_fork.py`.

python -m tests.unit.client.programs.fork_while_holding TABLE protected|unprotected
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from fairlock import Lock, LockClient, LockLost
from fairlock.client.local_lease import LocalLease

CHILD_SECONDS = 30


def outcome_of(action: Any) -> Any:  # noqa: ANN401 - a function without arguments, and what it gives
    try:
        return action()
    except LockLost as lost:
        return type(lost).__name__


def in_the_child(locks: LockClient, inherited: Lock, parents_client: object) -> dict[str, Any]:
    """What the child can do with its parent's lock, and with a lock of its own."""
    threads = threading.active_count()
    seen = {
        "threads": threads,
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
        own.lost.wait(3)  # Longer than its lease: it has to be renewed.
        seen["own lock is renewed"] = outcome_of(own.check)
    inherited.__exit__(None, None, None)  # As of a fork in the middle of its block.
    seen["connections of its own"] = client is not parents_client
    return seen


def main() -> None:
    table_name, mode = sys.argv[1:]
    locks = LockClient(table_name, lease=2)
    lock = locks.acquire(f"parents-{mode}")
    lock.lost.wait(0.8)  # Heartbeats are under way.
    parents_client = locks._connection.dynamodb()  # noqa: SLF001 - as above
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if mode == "unprotected":
            LocalLease.is_from_parent_process = False  # type: ignore[method-assign, assignment]  # the control
        seen = in_the_child(locks, lock, parents_client)
        os.write(writing, json.dumps(seen).encode())
        sys.exit()  # As a child ends that knows nothing of forks: with all exit handlers.
    os.close(writing)
    limit = threading.Timer(CHILD_SECONDS, os.kill, (child, signal.SIGKILL))
    limit.start()
    with os.fdopen(reading) as pipe:
        seen = json.loads(pipe.read() or "{}")
    _, status = os.waitpid(child, 0)
    limit.cancel()
    lock.lost.wait(1.0)
    answer = {
        "child": seen,
        "child's status": status,
        "parent": outcome_of(lock.check),
        "release": lock.release(),
    }
    locks.close()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
