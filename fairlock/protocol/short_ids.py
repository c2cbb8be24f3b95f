"""UUIDs in 20 characters instead of 36: guards name themselves and their executions by UUIDs."""

from __future__ import annotations

import base64
import uuid
from functools import lru_cache
from typing import Final

_UUID_LENGTH: Final = 36
_REMEMBERED: Final = 512
"""Each request names its owner several times."""


@lru_cache(_REMEMBERED)
def shorten(text: str) -> str | None:
    """A UUID, as it is usually written, in 20 ASCII characters; None if the text is none."""
    if len(text) != _UUID_LENGTH:
        return None
    try:
        found = uuid.UUID(text)
    except ValueError:
        return None
    return base64.b85encode(found.bytes).decode() if str(found) == text else None


@lru_cache(_REMEMBERED)
def lengthen(short: str) -> str:
    """The UUID of which these are the 20 characters."""
    return str(uuid.UUID(bytes=base64.b85decode(short)))
