"""A function that does as its input says, and otherwise returns it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def handler(event: Any, _context: object) -> Any:  # noqa: ANN401 - any JSON in, any JSON out
    """`{"raise": name}` fails, `{"sleep": s}` and `{"until": file}` wait; else an echo.

    `{"big": n}` returns so many bytes, `{"types_of": {…}}` the values with their types.
    `{"die_when": file}` ends the process, in which nothing sees that coming.
    """
    if not isinstance(event, dict):
        return event
    if "big" in event:
        return "x" * event["big"]
    if "types_of" in event:
        values = event["types_of"]
        return {"values": values, "types": {k: type(v).__name__ for k, v in values.items()}}
    if "raise" in event:
        raise type(event["raise"], (Exception,), {})(event.get("message", ""))
    if "die_when" in event:
        _wait_for(event["die_when"])
        os.kill(os.getpid(), signal.SIGKILL)
    if not event.keys() & {"until", "sleep"}:
        return event.get("return", event)
    began = time.time()
    if "until" in event:
        _wait_for(event["until"])
    time.sleep(event.get("sleep", 0))
    return {"began_ms": began * 1000, "ended_ms": time.time() * 1000}


def _wait_for(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.02)
