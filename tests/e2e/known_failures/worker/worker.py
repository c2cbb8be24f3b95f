"""A task that fails in one way each."""

from __future__ import annotations

import time
from typing import Any

LONGER_THAN_THE_TASK_MAY_TAKE_SECONDS = 3


def handler(event: dict[str, Any], _context: object) -> Any:  # noqa: ANN401 - any JSON
    """`{"raise": name}` fails; `{"hang": true}` takes too long; else an echo of "return"."""
    if "raise" in event:
        raise type(event["raise"], (Exception,), {})(event["message"])
    if "hang" in event:
        time.sleep(LONGER_THAN_THE_TASK_MAY_TAKE_SECONDS)
    return event.get("return")
