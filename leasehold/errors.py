"""Everything that Leasehold raises, one class a situation.

    LeaseholdError
    ├── InvalidRequest          the request breaks an input rule; nothing was written
    ├── LockStoreUnavailable    outcome unknown; repeat the call with the same owner_id
    ├── LockWaitTimeout         nobody handed over the lock within max_wait
    └── LockLost                the lease is over, or somebody else holds the lock

The class names are part of the API: the Lambda runtime reports them, and workflows match on them
(`ErrorEquals`). A lock that is busy, or that is not held, is not an error; those are answers.
"""

from __future__ import annotations

from typing import Final

_LONGEST_SHOWN_VALUE: Final = 60


class LeaseholdError(Exception):
    """Base of all errors of this package."""


class InvalidRequest(LeaseholdError):  # noqa: N818 - class names are API, see the design's contract
    """A field of the request breaks its rule. Nothing was written.

    Attributes:
        field: the field at fault, or the unknown field's name.
        rule: what the field must be.
        value: the offending value, shortened; None if the field is missing.
    """

    def __init__(
        self, *, field: str, rule: str, value: object = None, missing: bool = False
    ) -> None:
        self.field = shorten(field)
        self.rule = rule
        self.value = None if missing else shorten(value)
        shown = "it is missing" if missing else f"got {self.value}"
        super().__init__(f"{self.field}: {rule} ({shown})")


class LockStoreUnavailable(LeaseholdError):  # noqa: N818 - class names are API
    """The lock table did not answer in time: the outcome is unknown, neither a grant nor a refusal.

    Safe to repeat with the same owner_id: a grant whose reply was lost is returned with its token.
    """


class LockWaitTimeout(LeaseholdError):  # noqa: N818 - class names are API
    """The lock could not be acquired within the longest wait. Nothing is held."""


class LockLost(LeaseholdError):  # noqa: N818 - class names are API
    """The lease is over, or another owner holds the lock."""


def shorten(value: object) -> str:
    """Shows a value in a message: its literal, cut to a length that suits a log line."""
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN_VALUE:
        return f"{value[:_LONGEST_SHOWN_VALUE]!r}… ({len(value)} characters)"
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _LONGEST_SHOWN_VALUE:
        return f"{text[:_LONGEST_SHOWN_VALUE]}…"
    return repr(value)
