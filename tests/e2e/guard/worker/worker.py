"""A function that does as its input says, and otherwise returns it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def handler(event: Any, _context: object) -> Any:  # noqa: ANN401 - any JSON in, any JSON out
    """`{"raise": name}` fails, `{"sleep": s}` and `{"until": file}` wait; else an echo."""
    if not isinstance(event, dict):
        return event
    if "raise" in event:
        raise type(event["raise"], (Exception,), {})(event.get("message", ""))
    if "until" in event:
        began_ms = time.time() * 1000
        while not Path(event["until"]).exists():
            time.sleep(0.02)
        return {"began_ms": began_ms, "ended_ms": time.time() * 1000}
    if "sleep" in event:
        began = time.time()
        time.sleep(event["sleep"])
        return {"began": began, "ended": time.time()}
    return event.get("return", event)
