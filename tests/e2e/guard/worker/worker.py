"""A function that does as its input says, and otherwise returns it."""

from __future__ import annotations

import time
from typing import Any


def handler(event: Any, _context: object) -> Any:  # noqa: ANN401 - any JSON in, any JSON out
    """`{"raise": name}` fails; `{"sleep": s}` tells when it began and ended; else an echo."""
    if not isinstance(event, dict):
        return event
    if "raise" in event:
        raise type(event["raise"], (Exception,), {})(event.get("message", ""))
    if "sleep" in event:
        began = time.time()
        time.sleep(event["sleep"])
        return {"began": began, "ended": time.time()}
    return event.get("return", event)
