"""Errors by name and text: as a function reports them, and as an execution records them."""

from __future__ import annotations

from leasehold.errors import (
    InvalidRequest,
    LeaseholdError,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)


def error_named(kind: str, message: str) -> LeaseholdError:
    """The error of this class name and text.

    What Lambda itself reports of a function that it ended is an unknown outcome, like any other
    name.
    """
    match kind:
        case "InvalidRequest":
            return _invalid_request(message)
        case "LockStoreMisconfigured" | "LockItemMalformed":
            return LockStoreMisconfigured(message, code=kind)
        case "LockStoreUnavailable":
            return LockStoreUnavailable(message)
        case _:
            return LockStoreUnavailable(f"{kind}: {message}")


def _invalid_request(message: str) -> InvalidRequest:
    """Made as pickle makes it: its text is not to be shortened and quoted again."""
    error = InvalidRequest.__new__(InvalidRequest, message)
    error.field, _, rest = message.partition(": ")
    rule, _, shown = rest.rpartition(" (got ")
    error.rule, error.value = rule or rest, shown.removesuffix(")") or None
    return error
