"""Forks while a thread is inside the connection pool of a client that was passed in.

    python -m tests.unit.client.programs.fork_in_connection_pool TABLE protected|unprotected

Prints whether the child, which does nothing, has come to its end, and what one is told that locks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import boto3

from fairlock import ClientUnusable, LockClient
from fairlock.client.connection import Connection

SECONDS = {"protected": 30.0, "unprotected": 2.0}


def close_given(self: Any) -> None:  # noqa: ANN401 - a connection
    """The control: a child that closes what its parent was given."""
    self._given["dynamodb"].close()


def in_a_child(action: Callable[[], str], *, seconds: float) -> str | None:
    """What the action returns; None if the child does not even get there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, action().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        is_told, _, _ = select.select([pipe], [], [], seconds)
        if not is_told:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return pipe.read().decode() if is_told else None


def outcome_of_locking(locks: LockClient) -> str:
    try:
        locks.acquire("in-a-child", max_wait=0)
    except ClientUnusable as error:
        return str(error)
    return "acquired"


def main() -> None:
    table_name, mode = sys.argv[1:]
    client: Any = boto3.client("dynamodb")
    locks = LockClient(table_name, client=client)
    locks.acquire(f"given-{mode}").release()
    if mode == "unprotected":
        Connection.forget = close_given  # type: ignore[method-assign]
    pools = client._endpoint.http_session._manager.pools  # noqa: SLF001 - the moment is short
    mutex = pools[next(iter(pools.keys()))].pool.mutex
    inside, go_on = threading.Event(), threading.Event()

    def be_inside() -> None:
        with mutex:
            inside.set()
            go_on.wait(60)

    other = threading.Thread(target=be_inside)
    other.start()
    assert inside.wait(20)
    idle = in_a_child(lambda: "came to its end", seconds=SECONDS[mode])
    answer = {"idle": idle}
    if mode == "protected":
        answer["locking"] = in_a_child(lambda: outcome_of_locking(locks), seconds=SECONDS[mode])
    go_on.set()
    other.join(20)
    locks.close()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
