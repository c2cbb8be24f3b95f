"""`hold`: a lock around a part of a durable execution.

Its arguments are checked before anything is recorded, its place among the contexts before anything
is asked: the SDK records the start of a context in the background, so that the contexts around this
one are known for certain only after an operation inside of it.

A lock inside itself is refused: its wait would end only with `max_wait`. Branches of `parallel` and
`map` stand beside each other, so a lock counts as taken only for the context of the `with` block
and those below.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Literal, overload
from weakref import WeakKeyDictionary, ref

from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.exceptions import UnrecoverableError
from aws_durable_execution_sdk_python.lambda_service import OperationSubType

from fairlock.durable.durable_lock import Acquisition, DurableLock, Options
from fairlock.durable.lock_functions import Json, LockFunctions, LockRequests
from fairlock.errors import InvalidRequest, LockLost, explained
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS
from fairlock.wire import rules
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS, DEFAULT_MAX_WAIT_SECONDS

MOST_FALLBACK_PERIODS: Final = 1_000
"""Two operations each, of the 3,000 that an execution may have."""
_IN_A_MAP: Final = (
    "must be left out inside of context.map, whose iterations would supersede each other: hold the "
    "lock around the map, or give each item an execution of its own by context.invoke"
)
_WHOLE_SECONDS: Final = "must be a whole number of seconds, or a timedelta of whole seconds"
_LONGEST_EXECUTION_SECONDS: Final = 366 * 86_400

Span = int | timedelta
"""A time: whole seconds, or a timedelta of them. Durable timers know no shorter ones."""


def options_of(
    *,
    name: str,
    limit: int,
    lease: Span,
    max_wait: Span | None,
    data: Mapping[str, Any] | None,
    fallback: Span | None,
    service: LockRequests | None,
    shared: bool,
    max_hold: Span | None = None,
    only_newest: bool | int = False,
) -> Options:
    """What `hold` was asked for."""
    rules.require("name", rules.LOCK_NAME, name, show_text=True)
    rules.require("limit", rules.LIMIT, limit)
    rules.require("shared", rules.FLAG, shared)
    rules.require_one_way(shared=shared, only_newest=only_newest)
    lease_seconds = _seconds("lease", lease)
    rules.require("lease", rules.LEASE_SECONDS, lease_seconds)
    request: Json = {"lock_name": name, "limit": limit, "lease_seconds": lease_seconds}
    if shared:
        request["shared"] = True
    if data is not None:
        rules.require("data", rules.DATA, data)
        request["data"] = dict(data)
    if only_newest is not False:
        rules.require("only_newest", rules.ONLY_NEWEST, only_newest)
        request["only_newest"] = only_newest
    wait_seconds, hold_seconds = None, None
    if max_wait is not None:
        wait_seconds = _bounded_seconds("max_wait", max_wait, otherwise="skip=True does not wait")
    if max_hold is not None:
        hold_seconds = _bounded_seconds("max_hold", max_hold, otherwise="leave it out for no bound")
    if service is not None and not (hasattr(service, "acquire") and hasattr(service, "release")):
        rule = "must be LockFunctions(…), or left out for the service of grant_durable"
        raise InvalidRequest(field="service", rule=rule, value=service)
    return Options(
        name=name,
        request=request,
        max_wait=wait_seconds,
        fallback=_fallback_seconds(fallback, wait_seconds or 0),
        service=LockFunctions.from_environment() if service is None else service,
        max_hold=hold_seconds,
    )


def _bounded_seconds(field: str, span: Span, *, otherwise: str) -> int:
    seconds = _seconds(field, span)
    if not 1 <= seconds <= _LONGEST_EXECUTION_SECONDS:
        rule = f"must be from 1 s to 366 days, the longest execution; {otherwise}"
        raise InvalidRequest(field=field, rule=rule, value=seconds)
    return seconds


def _fallback_seconds(fallback: Span | None, wait_seconds: int) -> int:
    shortest = -(-wait_seconds // MOST_FALLBACK_PERIODS)
    if fallback is None:
        return max(rules.DEFAULT_FALLBACK_SECONDS, shortest)
    seconds = _seconds("fallback", fallback)
    least = max(rules.SHORTEST_FALLBACK_SECONDS, shortest)
    if not least <= seconds <= LONGEST_FALLBACK_SECONDS:
        rule = f"must be from {least} s to 12 h: the execution has room for 1,000 such periods"
        raise InvalidRequest(field="fallback", rule=rule, value=seconds)
    return seconds


def _seconds(field: str, value: object) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds % 1:
        # NaN and infinity leave a remainder that is not 0.
        raise InvalidRequest(field=field, rule=_WHOLE_SECONDS, value=value)
    return int(seconds)


_held: WeakKeyDictionary[Any, set[tuple[ref[DurableContext], str]]] = WeakKeyDictionary()
"""Which contexts hold which locks, by the state of an invocation.

Each invocation replays, and so fills its own again. A context has its state, which must not live on
for it.
"""
_mutex = threading.Lock()


def require_not_inside(context: DurableContext, name: str) -> None:
    """Refuses a name that an enclosing `hold` of the same execution has."""
    with _mutex:
        held = set(_held.get(context.state, ()))
    around = set(_places_around(context))
    for holder, held_name in held:
        places = () if (found := holder()) is None else _places_of(found)
        if held_name == name and not around.isdisjoint(places):
            rule = (
                "must not be held already by this part of the execution: it would wait for itself"
            )
            raise InvalidRequest(field="name", rule=rule, value=name)


def require_no_map(context: DurableContext, only_newest: object) -> None:
    """Refuses to ask for the newest only in an iteration of a map."""
    around = (context.state.operations.get(place) for place in _places_around(context) if place)
    # By ==: version 3 of the SDK records a string.
    if any(one is not None and one.sub_type == OperationSubType.MAP for one in around):
        raise InvalidRequest(field="only_newest", rule=_IN_A_MAP, value=only_newest)


def enter(context: DurableContext, name: str) -> None:
    """From now on the context holds the lock."""
    with _mutex:
        _held.setdefault(context.state, set()).add((ref(context), name))


def leave(context: DurableContext, name: str) -> None:
    """The context has left the `with` block: it has released, or was suspended."""
    with _mutex:
        _held.get(context.state, set()).discard((ref(context), name))


def _places_of(holder: DurableContext) -> Iterator[str | None]:
    """By which ids a context below this one finds it among the places around.

    A flat branch is recorded as no operation: what it runs stands directly below `parallel` or
    `map`. So the operation that it is in counts, too. It is the last one that it has begun.
    """
    yield _identity(holder)
    if holder.is_virtual:
        last = holder._step_counter.get_current()  # noqa: SLF001 - the SDK has no public name for it
        yield holder._create_step_id_for_logical_step(last)  # noqa: SLF001 - same


def _identity(context: DurableContext) -> str | None:
    """The id of the operation that made the context; None of the root."""
    operation: str | None = context._step_id_prefix  # noqa: SLF001 - the SDK has no public name for it
    return operation


def _places_around(context: DurableContext) -> Iterator[str | None]:
    """The context itself, and those around it up to the root, by the ids of their operations."""
    yield _identity(context)
    parent: str | None = context._parent_id  # noqa: SLF001 - same
    while parent is not None:
        yield parent
        operation = context.state.operations.get(parent)
        parent = None if operation is None else operation.parent_id
    yield None


@overload
def hold(
    context: DurableContext,
    name: str,
    *,
    limit: int = 1,
    lease: Span = DEFAULT_LEASE_SECONDS,
    max_wait: Span = DEFAULT_MAX_WAIT_SECONDS,
    data: Mapping[str, Any] | None = None,
    skip: Literal[False] = False,
    fallback: Span | None = None,
    service: LockRequests | None = None,
    shared: bool = False,
    max_hold: Span | None = None,
    only_newest: bool | int = False,
) -> AbstractContextManager[DurableLock]: ...


@overload
def hold(
    context: DurableContext,
    name: str,
    *,
    limit: int = 1,
    lease: Span = DEFAULT_LEASE_SECONDS,
    data: Mapping[str, Any] | None = None,
    skip: Literal[True],
    service: LockRequests | None = None,
    shared: bool = False,
    max_hold: Span | None = None,
    only_newest: bool | int = False,
) -> AbstractContextManager[DurableLock | None]: ...


@explained
def hold(
    context: DurableContext,
    name: str,
    *,
    limit: int = 1,
    lease: Span = DEFAULT_LEASE_SECONDS,
    max_wait: Span = DEFAULT_MAX_WAIT_SECONDS,
    data: Mapping[str, Any] | None = None,
    skip: bool = False,
    fallback: Span | None = None,
    service: LockRequests | None = None,
    shared: bool = False,
    max_hold: Span | None = None,
    only_newest: bool | int = False,
) -> AbstractContextManager[Any]:
    """Holds a lock around a part of a durable execution, however often that is suspended.

    Guaranteed:
        * Waiting costs no running function: the execution sleeps on a callback, in the same queue
          as workflows and clients.
        * A replay finds the same grant, with the same fencing token. Suspension is no exit: the
          lock is held while the execution sleeps, for days, as long as the execution runs.
        * The lock is released when the block ends, by return or by exception. A release that is
          repeated changes nothing more.
        * If the execution is stopped, times out or fails, the lock is freed: by the reaper when
          Lambda reports the end, or else when the lease is over and another owner asks.

    Not guaranteed:
        * A step that is running when the execution is stopped continues. Pass it the fencing token.
        * A branch that `context.parallel` or `context.map` gives up, because enough others have
          succeeded, never leaves its block: its lock is held until the execution ends.
        * Errors of the SDK that end or repeat the invocation (`UnrecoverableError`) release
          nothing; the end of the execution does. So it does if the service does not answer the
          release, or refuses it: the result of the block stands, and a warning is logged.

    Args:
        context: of the execution, or of a branch or child of it; operations inside the block may
            use it, too.
        name: of the lock, 1 to 512 bytes of UTF-8 in NFC. It must be the same on each replay.
        limit: number of permits of this lock, 1 to 100.
        lease: how long the lock outlives an execution whose end was not reported, 1 s to 12 h; in
            whole seconds or as a `timedelta`, like the other times.
        max_wait: the longest wait, counted from the first entry.
        data: a JSON object of at most 2 KiB that others can read while the lock is held.
        skip: do not wait; the block gets None if the lock is busy.
        fallback: how soon a waiter asks again whose push was lost, 10 s to 12 h; default is 5
            minutes, or a thousandth of `max_wait` if that is longer.
        service: the lock service; default is the one of `LockService.grant_durable`.
        shared: whether others that share the lock may hold it meanwhile; then `limit` is how many
            readers there may be, 20 if it is 1.
        max_hold: the longest time to hold the lock, from its grant on; a replay does not begin it
            again. `lock.check(context)` raises `LockLost` when it is over, and so does the end of
            the block. No sleep is ended then, and no step stopped: give them a time-out.
        only_newest: whether the grant of a newer caller supersedes this one. True orders them by
            the time of entry; a number is this caller's version, the highest wins. Refused in a
            `context.map`, whose iterations would supersede each other.

    Raises:
        LockWaitTimeout: the lock was not handed over in time. Nothing is held or waited for.
        Superseded: a newer version was granted the lock, with `only_newest`. Nothing is held.
        LockLost: at the end of the block: another owner has taken the lock, so the block was not
            alone; or its max_hold is over; or this acquisition was released while it waited.
        LockStoreUnavailable: the outcome is still unknown after repeats. A grant is given back.
        LockStoreMisconfigured: no such service, or no permission to call it. A grant to an earlier
            call is given back, and the queue is left.
        InvalidRequest: an argument breaks its rule, or the execution holds this lock around this
            block already. Nothing was written.
    """
    if not hasattr(context, "step"):
        rule = "must be the DurableContext that the SDK passes to the handler and to its branches"
        raise InvalidRequest(field="context", rule=rule, value=context)
    rules.require("skip", rules.FLAG, skip)
    options = options_of(
        name=name,
        limit=limit,
        lease=lease,
        max_wait=None if skip else max_wait,
        data=data,
        fallback=fallback,
        service=service,
        shared=shared,
        max_hold=max_hold,
        only_newest=only_newest,
    )
    return _Hold(context, options)


@dataclass(slots=True)
class _Hold:
    """A class, not a generator: a generator that is thrown away would run its exit."""

    context: DurableContext
    options: Options
    _acquisition: Acquisition | None = field(default=None, init=False)
    _was_entered: bool = field(default=False, init=False)

    def __del__(self) -> None:
        if not self._was_entered:
            name = self.options.name
            message = f"lock {name!r} was never acquired: write `with hold(context, {name!r}):`"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def __enter__(self) -> DurableLock | None:
        self._was_entered = True
        self._acquisition = None  # Of an earlier block, which has released.
        acquisition = Acquisition(self.context, self.options)
        # Recorded first, so that a refusal below is the same on each replay: the contexts around
        # are in the execution's history from then on.
        acquisition.enter()
        require_not_inside(self.context, self.options.name)
        if "only_newest" in self.options.request:
            require_no_map(self.context, self.options.request["only_newest"])
        lock = acquisition.acquire()
        if lock is not None:
            self._acquisition = acquisition
            enter(self.context, self.options.name)
        return lock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._acquisition is None:
            return
        leave(self.context, self.options.name)
        if not _is_end_of_block(error):
            return
        try:
            self._acquisition.release()
        except LockLost as lost:
            if error is None:
                raise
            error.add_note(f"At the end of the lock: {lost}")


def _is_end_of_block(error: BaseException | None) -> bool:
    """Whether the block has ended, and will not be entered again by a replay.

    The SDK suspends an execution, and stops a thread whose checkpoint failed, by exceptions that
    are no `Exception`; by an `UnrecoverableError` the invocation ends, or the execution.
    """
    return error is None or (
        isinstance(error, Exception) and not isinstance(error, UnrecoverableError)
    )
