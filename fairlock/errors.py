"""Everything that Fairlock raises, one class a situation.

The class names are part of the API: workflows match on them (`ErrorEquals`). A lock that is busy,
or that is not held, is not an error; those are answers.

Each error can be pickled and copied with all its attributes. No message and no attribute holds an
owner_id or a task token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from fairlock.text import as_call, describe, printable, shorten

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

_SHORTEST_OWNER_ID: Final = 16
_PLAIN_NAME: Final = re.compile("[a-z_.]{1,40}")
"""Random text of that length has a digit, a hyphen or a capital letter."""


class FairlockError(Exception):
    """Base of all errors of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What pickle and copy need: by default they would call `__init__` with the message."""
        return _rebuilt, (type(self), self.args), self.__dict__ or None


def _rebuilt(kind: type[FairlockError], args: tuple[Any, ...]) -> FairlockError:
    error = kind.__new__(kind, *args)
    error.args = args  # An OSError, such as LockWaitTimeout, takes them in its `__init__` only.
    return error


class InvalidRequest(FairlockError, ValueError):  # noqa: N818 - class names are API
    """A field of the request breaks its rule. Nothing was written.

    Attributes:
        field: the field at fault; the length of its name instead if the name is unknown and could
            be an owner_id.
        rule: what the field must be.
        value: the offending value, shortened; None if the field is missing. What may be, or hold,
            an owner_id is described and not shown.
    """

    def __init__(
        self,
        *,
        field: str,
        rule: str,
        value: object = None,
        missing: bool = False,
        show_text: bool = True,
    ) -> None:
        # The name of an unknown field may be an owner_id in the wrong place.
        is_short = field.isidentifier() and len(field) < _SHORTEST_OWNER_ID
        is_harmless = is_short or _PLAIN_NAME.fullmatch(field) is not None
        self.field = field if is_harmless else f"a field of {len(field)} characters"
        self.rule = rule
        shown = shorten(value) if show_text else describe(value)
        self.value = None if missing else shown
        got = "it is missing" if missing else f"got {shown}"
        super().__init__(f"{self.field}: {rule} ({got})")


_P = ParamSpec("_P")
_R = TypeVar("_R")
_ELSEWHERE: Final = {
    **dict.fromkeys(("timeout", "wait", "wait_timeout", "blocking_timeout"), "max_wait"),
    **dict.fromkeys(("ttl", "lease_time", "lease_duration", "expire", "expires_in"), "lease"),
    **dict.fromkeys(("blocking", "block"), "max_wait=0, or try_acquire, which does not wait"),
    **dict.fromkeys(("region", "region_name"), "session=boto3.Session(region_name=…)"),
    **dict.fromkeys(("key", "lock_name", "resource"), "name"),
    **dict.fromkeys(("owner", "owner_id"), "holder, as describe shows it"),
    "table": "table_name",
    "permits": "limit",
}
"""What arguments of other lock libraries are called here."""


def explained(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Has a call with arguments that the function does not take raise `InvalidRequest`.

    Python's own TypeError names the argument, and not what to write instead.
    """
    from inspect import iscoroutinefunction  # noqa: PLC0415 - Lambda's handlers do not need it

    @wraps(function)
    def call(*args: _P.args, **named: _P.kwargs) -> _R:
        try:
            return function(*args, **named)
        except TypeError:
            _require_call(function, args, named)
            raise

    async def call_async(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
        try:
            return await cast("Any", function)(*args, **named)
        except TypeError:
            _require_call(function, args, named)
            raise

    if iscoroutinefunction(function):
        return cast("Callable[_P, _R]", wraps(function)(call_async))
    return call


def _require_call(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Raises `InvalidRequest` unless the function takes these arguments."""
    from difflib import get_close_matches  # noqa: PLC0415 - for an error only
    from inspect import Parameter  # noqa: PLC0415 - same
    from inspect import signature as signature_of  # noqa: PLC0415 - same

    signature = signature_of(function)
    parameters = signature.parameters
    taken = [name for name in parameters if name not in _FIRST]
    options = [name for name in taken if parameters[name].default is not Parameter.empty] or taken
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    whole = f"{_CALLED.get(called, called)}({', '.join(taken)})"
    by_name = [name for name in taken if parameters[name].kind is Parameter.KEYWORD_ONLY]
    for name, value in named.items():
        if name not in parameters:
            near = _ELSEWHERE.get(name, "")
            if re.split(r"\W", near)[0] not in {*parameters, "session"}:
                near = next(iter(get_close_matches(name, parameters)), "")
            near = _OTHER_METHOD.get((called, name), near) or f"one of {', '.join(options)}"
            advice = f"use {near}" if taken else f"{called} takes no arguments"
            rule = f"is no argument; {advice}"
            raise InvalidRequest(field=name, rule=rule, value=value, show_text=False)
    try:
        given = signature.bind_partial(*args, **named).arguments
    except TypeError as error:
        first = [name for name in taken if name not in by_name]
        extra = args[len(parameters) - len(taken) + len(first) :]
        rule = f"must be as in {whole}: {error}"
        if pairs := list(zip(by_name, extra, strict=False)):
            rule = f"must be given by name: {as_call(called, first, pairs)}"
        raise InvalidRequest(field="arguments", rule=rule, value=args[1:]) from None
    for name, each in parameters.items():
        is_needed = each.default is each.empty and each.kind not in {
            each.VAR_POSITIONAL,
            each.VAR_KEYWORD,
        }
        if is_needed and name not in given:
            rule = f"is required: {whole}{_OTHER_FORM.get((called, name), '')}"
            raise InvalidRequest(field=name, rule=rule, missing=True)


_OTHER_METHOD: Final = {
    ("acquire", "reentrant"): "hold(…, reentrant=True)",
    ("try_acquire", "reentrant"): "hold(…, reentrant=True)",
    ("try_acquire", "max_wait"): "acquire or hold, which wait",
}
_OTHER_FORM: Final = {("release", "owner_id"): "; a Lock has lock.release()"}
_FIRST: Final = ("self", "cls")
_CALLED: Final = {"SharedLockService": "LockService.from_stack"}  # As the documents call it.


class LockStoreUnavailable(FairlockError):  # noqa: N818 - class names are API
    """The lock table did not answer in time: the outcome is unknown, neither a grant nor a refusal.

    Safe to repeat with the same owner_id: a grant whose reply was lost is returned with its token.
    """


class LockStoreMisconfigured(FairlockError):  # noqa: N818 - class names are API
    """AWS refused the request, and a repeat does not help. The request wrote nothing.

    The table does not exist in this region or is no lock table, or permission, credentials or
    region are missing. The message names the table and says what to do.

    Attributes:
        table_name: the lock table as the caller named it.
        region: where it was looked for; None if no region is known.
        code: AWS's name of the reason, `ResourceNotFoundException` for instance.
    """

    def __init__(
        self, message: str, *, table_name: str = "", region: str | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.table_name = table_name
        self.region = region
        self.code = code


class LockItemMalformed(FairlockError):  # noqa: N818 - class names are API
    """An item of the lock table is not as Fairlock writes it, so it does not say who holds.

    Attributes:
        partition_key: of the item: `LOCK#` and the lock's name, or `EXECUTION#` and an ARN.
    """

    def __init__(self, partition_key: str) -> None:
        super().__init__(
            f"an item under {partition_key!r} is not as Fairlock writes it; another program or a "
            "person has changed it: stop the work under the lock, then delete the item. Do not put "
            "an old copy in its place: its fencing tokens would be granted again"
        )
        self.partition_key = partition_key


class ClientUnusable(FairlockError):  # noqa: N818 - class names are API
    """This client acquires no more locks: make another one.

    It was closed, or it was given an AWS client before its process was forked, or it serves another
    event loop than the caller's.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedHolder:
    """A holder of a lock, as all may see it.

    Attributes:
        owner_name: the owner's label, empty if it gave none. It proves nothing.
        acquired_at: when it got the lock, by its own clock.
        expires_at: when its lease ends unless it is renewed.
        lease: seconds for which each renewal holds.
        limit: number of permits, as the holder's request said: no more hold as long as it does.
        data: the JSON object that it stored with the lock; None if it stored none; the stored text
            if another program has changed it so that it is no JSON object. Not in the `repr`, which
            may end up in a log.
        execution_arn: the workflow execution that it belongs to; None for any other owner.
        shared: whether it shares the lock with others.
    """

    owner_name: str
    acquired_at: datetime
    expires_at: datetime
    fencing_token: int
    lease: float
    limit: int
    data: Mapping[str, Any] | str | None = field(repr=False, hash=False)
    execution_arn: str | None
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCeiling:
    """A limit that an operator has set, above which no grant of the lock goes.

    As text it says so in a few words: `paused by olga since … (reason)`.

    Attributes:
        limit: how many may hold, whatever limits callers name; 0 if the lock is paused.
        at: since when.
        requested_by: who set it, as the request said; it is not verified.
    """

    limit: int
    at: datetime
    requested_by: str
    reason: str

    def __str__(self) -> str:
        """For messages and logs, without control characters."""
        what = f"limited to {self.limit}" if self.limit else "paused"
        since = self.at.isoformat(sep=" ", timespec="seconds")
        return f"{what} by {printable(self.requested_by)} since {since} ({printable(self.reason)})"


class LockWaitTimeout(FairlockError, TimeoutError):  # noqa: N818 - class names are API
    """The lock could not be acquired within the longest wait. Nothing is held.

    It is a TimeoutError, and so an OSError, whose `errno` is None.

    Attributes:
        lock_name: the lock.
        waited_seconds: how long the call has waited.
        holders: who had the lock when it was last looked at.
        ceiling: the limit that an operator had set then, 0 for a pause; None if none stood.
    """

    def __init__(
        self,
        message: str = "",
        *,
        lock_name: str = "",
        waited_seconds: float = 0.0,
        holders: tuple[DescribedHolder, ...] = (),
        ceiling: DescribedCeiling | None = None,
    ) -> None:
        super().__init__(message)
        self.lock_name = lock_name
        self.waited_seconds = waited_seconds
        self.holders = holders
        self.ceiling = ceiling


class Superseded(FairlockError):  # noqa: N818 - class names are API
    """A newer version was granted the lock, so this acquisition is never granted it.

    It asked for the newest only. Nothing is held; the queue has been left. `version` is its own,
    `newest` the highest that was granted.
    """

    def __init__(
        self, message: str = "", *, lock_name: str = "", version: int = 0, newest: int = 0
    ) -> None:
        told = f"version {version} is superseded, {newest} was granted the lock"
        super().__init__(message or f"lock {lock_name!r}: {told}")
        self.lock_name = lock_name
        self.version = version
        self.newest = newest


class SlotTooLate(FairlockError, TimeoutError):  # noqa: N818 - class names are API
    """The next slot of a pace begins later than the longest wait. No slot was reserved.

    It is a TimeoutError, and so an OSError, whose `errno` is None.

    Attributes:
        pace_name: the pace.
        wait_seconds: how long the wait for the next slot would have been.
    """

    def __init__(
        self, message: str = "", *, pace_name: str = "", wait_seconds: float = 0.0
    ) -> None:
        super().__init__(message)
        self.pace_name = pace_name
        self.wait_seconds = wait_seconds


class LockLost(FairlockError):  # noqa: N818 - class names are API
    """The lease is over, or the lock was granted again: to another owner, or to the same one."""


class HolderChanged(FairlockError):  # noqa: N818 - class names are API
    """The grant that was to be released by force is over. This call has written nothing.

    Its holder has released, or was replaced. Describe the lock again before you decide.
    """

    def __init__(self, message: str = "", *, lock_name: str = "", fencing_token: int = 0) -> None:
        super().__init__(message)
        self.lock_name = lock_name
        self.fencing_token = fencing_token


class KeepAliveEnded(FairlockError):  # noqa: N818 - class names are API
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


class TransactionRefused(FairlockError):  # noqa: N818 - class names are API
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

    @property
    def shown(self) -> str:
        """The items at fault and why, in a line."""
        return ", ".join(f"item {i}: {self.reasons[i].code}" for i in self.failed)

    def __str__(self) -> str:
        """Names the items at fault and why."""
        return f"the transaction was refused and nothing was written ({self.shown})"


class VersionConflict(FairlockError):  # noqa: N818 - class names are API
    """Other writers changed the item before each try to write it. Nothing was written."""


class OutcomeUnknown(FairlockError):  # noqa: N818 - class names are API
    """A versioned write may have happened, or not. Read the item before making the change again.

    Unlike `LockStoreUnavailable` it is not safe to repeat: the change may then be done twice.
    """
