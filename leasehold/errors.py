"""Everything that Leasehold raises, one class a situation.

    LeaseholdError
    ├── InvalidRequest          the request breaks an input rule; nothing was written
    ├── LockStoreUnavailable    outcome unknown; repeat the call with the same owner_id
    ├── LockWaitTimeout         the lock was not handed over within max_wait
    ├── LockLost                the lease is over, or another owner holds the lock
    ├── KeepAliveEnded          the guarded work is done; ends the heartbeat beside it
    ├── TransactionRefused      a condition of the caller's own items failed; nothing was written
    ├── VersionConflict         others changed the item at every try; nothing was written
    └── OutcomeUnknown          a versioned write may have happened; do not repeat it

The class names are part of the API: the Lambda runtime reports them, and workflows match on them
(`ErrorEquals`). A lock that is busy, or that is not held, is not an error; those are answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

_LONGEST_SHOWN_VALUE: Final = 60
_LONGEST_SHOWN_OWNER_ID: Final = 4


class LeaseholdError(Exception):
    """Base of all errors of this package."""


class InvalidRequest(LeaseholdError):  # noqa: N818 - class names are API
    """A field of the request breaks its rule. Nothing was written.

    Attributes:
        field: the field at fault; an unknown field's name, shortened and quoted if it is odd.
        rule: what the field must be.
        value: the offending value, shortened; None if the field is missing. Of an owner_id, also
            of a misspelled one, only the beginning: it may be somebody's proof of ownership.
    """

    def __init__(
        self, *, field: str, rule: str, value: object = None, missing: bool = False
    ) -> None:
        ordinary = field.isidentifier() and len(field) <= _LONGEST_SHOWN_VALUE
        self.field = field if ordinary else shorten(field)
        self.rule = rule
        self.value = None if missing else _shown(field, value)
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


class KeepAliveEnded(LeaseholdError):  # noqa: N818 - class names are API
    """The work of a guard is done, so its heartbeat ends; the release of the work frees the lock.

    Raised when the task token cannot end the heartbeat. It never leaves the guard.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CancellationReason:
    """What DynamoDB says about one item of a transaction that it cancelled.

    Attributes:
        code: `None` (the text) if nothing is wrong with this item, else for instance
            `ConditionalCheckFailed`.
        message: DynamoDB's words, if it has any.
        item: the stored item, if the write asked for it
            (`ReturnValuesOnConditionCheckFailure: ALL_OLD`).
    """

    code: str
    message: str = ""
    item: Mapping[str, AttributeValueTypeDef] = field(default_factory=dict)


class TransactionRefused(LeaseholdError):  # noqa: N818 - class names are API
    """The lock is held, but DynamoDB refused the caller's own items. Nothing was written.

    Attributes:
        reasons: one for each of the caller's items, in the caller's order.
    """

    def __init__(self, reasons: tuple[CancellationReason, ...]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    @property
    def failed(self) -> tuple[int, ...]:
        """The indexes of the items at fault."""
        return tuple(i for i, reason in enumerate(self.reasons) if reason.code != "None")

    def __str__(self) -> str:
        """Names the items at fault and why."""
        shown = ", ".join(f"item {i}: {self.reasons[i].code}" for i in self.failed)
        return f"the transaction was refused and nothing was written ({shown})"


class VersionConflict(LeaseholdError):  # noqa: N818 - class names are API
    """Other writers changed the item before each try to write it. Nothing was written."""


class OutcomeUnknown(LeaseholdError):  # noqa: N818 - class names are API
    """A versioned write may have happened, or not. Read the item before making the change again.

    Unlike `LockStoreUnavailable` it is not safe to repeat: the change may then be done twice.
    """


def _shown(field: str, value: object) -> str:
    if isinstance(value, str) and "owner" in field.lower() and field != "owner_name":
        return f"{value[:_LONGEST_SHOWN_OWNER_ID]!r}… ({len(value)} characters)"
    return shorten(value)


def shorten(value: object) -> str:
    """Shows a value in a message: its literal, cut to a length that suits a log line.

    Never fails, whatever the value: this runs while an error is being made.
    """
    if isinstance(value, str):
        text = repr(value[:_LONGEST_SHOWN_VALUE])
        if len(value) <= _LONGEST_SHOWN_VALUE and len(text) <= _LONGEST_SHOWN_VALUE + 2:
            return text
        return f"{text[:_LONGEST_SHOWN_VALUE]}… ({len(value)} characters)"
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Nested as deeply as JSON can just be read, or a number with thousands of digits.
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= _LONGEST_SHOWN_VALUE else f"{text[:_LONGEST_SHOWN_VALUE]}…"
