"""What runs inside locks here. Everything is noted in a file, one short line at a time."""

from __future__ import annotations

import os
import time
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import hold


def note(event: dict[str, Any], what: str, token: int) -> None:
    line = f"{what} {event['name']} {token} {time.time():.4f}\n"
    descriptor = os.open(event["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@durable_execution
def durable(event: dict[str, Any], context: DurableContext) -> int:
    """Notes when it comes in and when it leaves, and sleeps in between."""
    with hold(
        context,
        event["lock"],
        lease=event.get("lease", 60),
        max_wait=600,
        fallback=event.get("fallback", 300),
    ) as lock:
        context.step(lambda _: note(event, "in", lock.fencing_token), name="in")
        if event.get("sleeps"):
            context.wait(Duration.from_seconds(event["sleeps"]), name="sleep")
        if event.get("stays"):
            context.create_callback(name="stays").result()
        context.step(lambda _: note(event, "out", lock.fencing_token), name="out")
    return lock.fencing_token


def plain(event: dict[str, Any], _context: object) -> None:
    """The same as the task of a workflow's guard."""
    note(event, "in", event["token"])
    time.sleep(0.05)
    note(event, "out", event["token"])
