"""Errors by name and text: as a function reports them, and as an execution records them."""

from __future__ import annotations

from fairlock.errors import (
    FairlockError,
    InvalidRequest,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.wire.answers import invalid_request_text, read_invalid_request


def text_of(error: Exception) -> str:
    """The text from which `error_named` makes the same error again."""
    return invalid_request_text(error) if isinstance(error, InvalidRequest) else str(error)


def error_named(kind: str, message: str) -> FairlockError:
    """The error of this class name and text.

    What Lambda itself reports of a function that it ended is an unknown outcome, like any other
    name.
    """
    match kind:
        case "InvalidRequest":
            return read_invalid_request(message)
        case "LockStoreMisconfigured" | "LockItemMalformed":
            return LockStoreMisconfigured(message, code=kind)
        case "LockStoreUnavailable":
            return LockStoreUnavailable(message)
        case _:
            return LockStoreUnavailable(f"{kind}: {message}")
