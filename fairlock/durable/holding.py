"""`hold`: a lock around a part of a durable execution."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, overload

from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.exceptions import UnrecoverableError

from fairlock.durable.acquisition import Acquisition, DurableLock, Options
from fairlock.durable.arguments import Span, options_of
from fairlock.durable.lock_functions import LockRequests
from fairlock.durable.nesting import enter, leave, require_not_inside
from fairlock.errors import LockLost
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS, DEFAULT_MAX_WAIT_SECONDS


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
) -> AbstractContextManager[DurableLock | None]: ...


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
        * A step that runs in the moment in which the execution is stopped runs on. Pass the fencing
          token on.
        * A branch that `context.parallel` or `context.map` gives up, because enough others have
          succeeded, never leaves its block: its lock is held until the execution ends.
        * Errors of the SDK that end or repeat the invocation (`UnrecoverableError`) release
          nothing; the end of the execution does.
        * If the service does not answer the release, also after repeats, the result of the block
          stands, a warning is logged, and the lock is freed at the end of the execution.

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

    Raises:
        LockWaitTimeout: not handed over in time. Nothing is held; the queue has been left.
        LockLost: at the end of the block: somebody else has taken the lock; the block has succeeded
            but was not alone. Or this acquisition was released while it waited.
        LockStoreUnavailable: outcome unknown, also after repeats. What was granted is given back.
        LockStoreMisconfigured: no such service, or no permission to call it.
        InvalidRequest: an argument breaks its rule, or the execution holds this lock around this
            block already. Nothing was written.
    """
    options = options_of(
        name=name,
        limit=limit,
        lease=lease,
        max_wait=None if skip else max_wait,
        data=data,
        fallback=fallback,
        service=service,
    )
    return _Hold(context, options)


@dataclass(slots=True)
class _Hold:
    """A class, not a generator: a generator that is thrown away would run its exit."""

    context: DurableContext
    options: Options
    _acquisition: Acquisition | None = field(default=None, init=False)

    def __enter__(self) -> DurableLock | None:
        require_not_inside(self.context, self.options.name)
        acquisition = Acquisition(self.context, self.options)
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

    Only return and ordinary exceptions end it. The SDK suspends an execution, and stops a thread
    whose checkpoint failed, by exceptions that are no `Exception`; and by an `UnrecoverableError`
    the invocation ends, to be repeated, or the whole execution.
    """
    return error is None or (
        isinstance(error, Exception) and not isinstance(error, UnrecoverableError)
    )
