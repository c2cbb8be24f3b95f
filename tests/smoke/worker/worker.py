"""Functions for the work that is guarded."""

from __future__ import annotations

import time
from typing import Any


class InvalidRequest(Exception):  # noqa: N818 - the name that guards do not repeat
    """Fails a call at once."""


def handler(event: Any, _context: object) -> Any:  # noqa: ANN401 - any JSON in, any JSON out
    """`sleep` waits, `big` returns so many bytes, `types_of` the types of values; else an echo."""
    if not isinstance(event, dict):
        return event
    time.sleep(event.get("sleep", 0))
    if "big" in event:
        return "x" * event["big"]
    if "types_of" in event:
        values = event["types_of"]
        types = {name: type(value).__name__ for name, value in values.items()}
        return {"values": values, "types": types}
    return event.get("return", event)


def refuse(_event: object, _context: object) -> Any:  # noqa: ANN401 - it never returns
    """Fails every call in a way that is never repeated."""
    message = "refused on purpose"
    raise InvalidRequest(message)
