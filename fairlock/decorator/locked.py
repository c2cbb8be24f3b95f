"""`@locked("orders/{order_id}")`: a function that runs only while it holds a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from fairlock.client.arguments import (
    checked_version,
    require_bool,
    require_finite,
    require_max_wait,
)
from fairlock.client.blocks import BaseClient
from fairlock.client.lock_client import LockClient
from fairlock.clock import Seconds, in_seconds
from fairlock.decorator.default_clients import default_async_client, default_client
from fairlock.decorator.locked_call import (
    LOCK_PARAMETER,
    Call,
    IfTaken,
    NameOf,
    Plan,
    is_function_to_decorate,
    plan_for,
    refuse_coroutine,
)
from fairlock.errors import InvalidRequest, LockStoreUnavailable, LockWaitTimeout, explained
from fairlock.wire import rules

if TYPE_CHECKING:
    from fairlock.aio import AsyncLock, AsyncLockClient
    from fairlock.client.lock import Lock

    AnyClient = LockClient | AsyncLockClient

_P = ParamSpec("_P")
_R = TypeVar("_R")
_D = TypeVar("_D")
_D_co = TypeVar("_D_co", covariant=True)


@overload
def locked(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...  # type: ignore[overload-overlap]  # alone, a function is decorated


@overload
def locked(
    name: str | NameOf | None = None,
    *,
    if_taken: Literal["wait", "raise"] = "wait",
    max_wait: Seconds | None = None,
    lease: Seconds | None = None,
    limit: int = 1,
    reentrant: bool = False,
    client: AnyClient | Callable[[], AnyClient] | None = None,
    shared: bool = False,
    max_hold: Seconds | None = None,
    only_newest: bool | int = False,
) -> Locked: ...


@overload
def locked(
    name: str | NameOf | None = None,
    *,
    if_taken: Literal["skip"],
    lease: Seconds | None = None,
    limit: int = 1,
    reentrant: bool = False,
    client: AnyClient | Callable[[], AnyClient] | None = None,
    shared: bool = False,
    max_hold: Seconds | None = None,
) -> LockedOrSkipped[None]: ...


@overload
def locked(
    name: str | NameOf | None = None,
    *,
    if_taken: Literal["skip"],
    otherwise: _D,
    lease: Seconds | None = None,
    limit: int = 1,
    reentrant: bool = False,
    client: AnyClient | Callable[[], AnyClient] | None = None,
    shared: bool = False,
    max_hold: Seconds | None = None,
) -> LockedOrSkipped[_D]: ...


@explained
def locked(
    name: Any = None,
    *,
    if_taken: IfTaken = "wait",
    otherwise: Any = None,
    max_wait: Seconds | None = None,
    lease: Seconds | None = None,
    limit: int = 1,
    reentrant: bool = False,
    client: AnyClient | Callable[[], AnyClient] | None = None,
    shared: bool = False,
    max_hold: Seconds | None = None,
    only_newest: bool | int = False,
) -> Any:
    """Lets a function, a coroutine function or a Lambda handler run only while it holds a lock.

        @locked("orders/{order_id}")
        def charge(order_id: str, *, lock: Lock | None = None) -> Receipt: ...

        @locked("orders/{event[detail][id]}", if_taken="skip")
        def handler(event, context): ...

        @locked
        def rebuild_index() -> None: ...

    Without a name, the lock is named after the module and the function: all calls exclude each
    other, whatever their arguments. The lock is released when the function returns or raises; the
    rest is as with `LockClient.hold`, or `AsyncLockClient.hold` for a coroutine function. A
    function with a parameter `lock` gets the lock there.
    If the second argument is the context of a Lambda function and no `lease` is given, the lease
    lasts until the invocation must have ended: no heartbeat is needed, and the lock of an
    invocation that died is free soon after. After a wait, one heartbeat shortens the lease by the
    time that was waited. No wait is longer than the invocation has left.

    Args:
        name: of the lock; fields in braces are filled with the arguments of the call, as
            `str.format` does. Or a function that makes the name from the same arguments; alone,
            without any other argument here, write it `name=`. None names the lock after the
            function, which may stand neither in the program itself (`__main__`) nor be a Lambda
            handler: others would be called the same.
        if_taken: "wait" waits in the queue, at most for `max_wait`. "raise" raises at once. "skip"
            does not call the function, and returns `otherwise`.
        otherwise: what a call that was skipped returns.
        max_wait: seconds or a timedelta; None takes the client's.
        lease: seconds or a timedelta; None takes the client's, or that of the invocation.
        limit: number of permits of this lock.
        reentrant: whether a call inside a block of this lock goes on under it, in the same thread
            or task and by the same client, as with `hold`.
        client: a `LockClient` for functions, an `AsyncLockClient` for coroutine functions, or a
            function that returns the client. None makes one when it is first needed, for the table
            that FAIRLOCK_TABLE_NAME names. A given client should send no heartbeats in Lambda
            (`heartbeat_every=math.inf`), or have a period for short leases.
        shared: whether calls that share the lock may run side by side, as with `hold`.
        max_hold: longest seconds to hold the lock, as with `hold`: a call that takes longer has run
            to its end, and raises `LockLost`.
        only_newest: whether the grant of a newer call supersedes one that waits, as with `hold`:
            the call raises `Superseded`. Not with "skip".

    Raises:
        InvalidRequest: at decoration, if an argument breaks its rule; at a call, if no name can be
            formed from its arguments, or there is no client.
        LockWaitTimeout: at a call, if the lock is taken; the function did not run.
        LockStoreUnavailable: at a call, as of `acquire`; the function did not run.
        LockLost: at a call; the function has run to its end, but was not alone.
    """
    if if_taken not in ("wait", "skip", "raise"):
        rule = 'must be "wait", "skip" or "raise"'
        raise InvalidRequest(field="if_taken", rule=rule, value=if_taken)
    longest, length, longest_hold = map(in_seconds, (max_wait, lease, max_hold))
    if longest is not None:
        require_max_wait(longest)
        if if_taken != "wait":
            rule = f'must be left out with if_taken="{if_taken}", which does not wait'
            raise InvalidRequest(field="max_wait", rule=rule, value=longest)
    if length is not None:
        rules.require("lease", rules.LEASE_SECONDS, length)
    rules.require("limit", rules.LIMIT, limit)
    require_bool("reentrant", reentrant)
    require_bool("shared", shared)
    if longest_hold is not None:
        require_finite("max_hold", longest_hold)
    checked_version(only_newest)
    rules.require_one_way(shared=shared, only_newest=only_newest)
    if only_newest is not False and if_taken == "skip":
        rule = 'must be left out with if_taken="skip", which does not wait'
        raise InvalidRequest(field="only_newest", rule=rule, value=only_newest)
    if otherwise is not None and if_taken != "skip":
        rule = 'goes with if_taken="skip" only'
        raise InvalidRequest(field="otherwise", rule=rule, value=otherwise)
    _require_client(client)
    others = (if_taken, otherwise, max_wait, lease, limit, reentrant, client, shared, max_hold)
    defaults = ("wait", None, None, None, 1, False, None, False, None)
    is_bare = is_function_to_decorate(name) and others == defaults and only_newest is False
    plain_name = None if is_bare else name
    options = _Options(
        *(plain_name, if_taken, otherwise, longest, length, limit, reentrant, client, shared),
        *(longest_hold, only_newest),
    )
    return options.around(name) if is_bare else options.around


def _require_client(client: object) -> None:
    """A class would make a client, and with a fake one a table, for each call."""
    is_client = isinstance(client, BaseClient)
    if isinstance(client, type) or not (client is None or is_client or callable(client)):
        rule = (
            "must be a LockClient, an AsyncLockClient for coroutine functions, or a function that "
            "returns the client, as in client=lambda: locks"
        )
        raise InvalidRequest(field="client", rule=rule, value=client)


def _require_kind(client: AnyClient, *, is_async: bool) -> None:
    if isinstance(client, LockClient) is is_async:
        kinds = ("a LockClient, as it is no", "an AsyncLockClient, as it is a")
        rule = f"must be {kinds[is_async]} coroutine function"
        raise InvalidRequest(field="client", rule=rule, value=client)


class Locked(Protocol):
    """A decorator of functions: the result has the same signature."""

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Returns the function that acquires the lock first."""


class LockedOrSkipped(Protocol[_D_co]):
    """A decorator of functions: the result may also return what stands for a skipped call."""

    @overload
    def __call__(
        self, function: Callable[_P, Coroutine[Any, Any, _R]]
    ) -> Callable[_P, Coroutine[Any, Any, _R | _D_co]]: ...

    @overload
    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R | _D_co]: ...


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments of `locked`, in their order."""

    name: str | NameOf | None
    if_taken: IfTaken
    otherwise: Any
    max_wait: float | None
    lease: float | None
    limit: int
    reentrant: bool
    client: AnyClient | Callable[[], AnyClient] | None
    shared: bool
    max_hold: float | None
    only_newest: bool | int

    def around(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        plan = plan_for(function, self.name)
        is_async = inspect.iscoroutinefunction(function)
        if self.client is not None and not callable(self.client):
            _require_kind(self.client, is_async=is_async)
        wrap = self._around_coroutine if is_async else self._around_function
        wrapper = functools.wraps(function)(wrap(plan, function))
        wrapper.__signature__ = plan.signature  # type: ignore[attr-defined]  # see PEP 362
        return cast("Callable[_P, _R]", wrapper)

    def _around_function(self, plan: Plan, function: Callable[..., Any]) -> Callable[..., Any]:
        def call_locked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            call = plan.call(args, kwargs, **self._seconds())
            client = self._given_client() or default_client(heartbeats=call.needs_heartbeats)
            call = self._entering(client, call, is_async=False)
            lock: Lock | None = None
            try:
                with self._block(client, call) as lock:
                    if plan.passes_lock:
                        kwargs[LOCK_PARAMETER] = lock
                    shorter = call.shorter_lease(lock.lease)
                    if shorter is not None:
                        with suppress(LockStoreUnavailable, InvalidRequest):  # Then it is too long.
                            lock.heartbeat(lease=shorter)
                    result = function(*args, **kwargs)
                    refuse_coroutine(result)
                    return result
            except LockWaitTimeout:
                if lock is not None or self.if_taken != "skip":
                    raise
                return self.otherwise

        return call_locked

    def _around_coroutine(self, plan: Plan, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call_locked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            call = plan.call(args, kwargs, **self._seconds())
            client = self._given_client()
            client = client or await default_async_client(heartbeats=call.needs_heartbeats)
            call = self._entering(client, call, is_async=True)
            lock: AsyncLock | None = None
            try:
                async with self._block(client, call) as lock:
                    if plan.passes_lock:
                        kwargs[LOCK_PARAMETER] = lock
                    shorter = call.shorter_lease(lock.lease)
                    if shorter is not None:
                        with suppress(LockStoreUnavailable, InvalidRequest):  # Then it is too long.
                            await lock.heartbeat(lease=shorter)
                    return await function(*args, **kwargs)
            except LockWaitTimeout:
                if lock is not None or self.if_taken != "skip":
                    raise
                return self.otherwise

        return call_locked

    def _entering(self, client: AnyClient, call: Call, *, is_async: bool) -> Call:
        """The call by this client; inside a block of its lock, it asks for the lease of that."""
        _require_kind(client, is_async=is_async)
        if not self.reentrant or call.lease is not None:
            return call
        # Less of the invocation is left by now, and the outer block keeps its lease.
        held = client._services.entered.held(call.name)  # noqa: SLF001 - as `hold` asks
        return replace(call, lease=held[-1].lease) if held else call

    def _block(self, client: AnyClient, call: Call) -> Any:  # noqa: ANN401 - of either client
        """The block of `hold`: a lock from `acquire` would be renewed after an interrupt."""
        lease = call.lease_to_the_end() or call.lease
        waits = self.if_taken == "wait"
        return client.hold(
            call.name,
            lease=lease,
            max_wait=call.max_wait_with(client.longest_wait(lease)) if waits else 0,
            limit=self.limit,
            reentrant=self.reentrant,
            shared=self.shared,
            max_hold=self.max_hold,
            only_newest=self.only_newest,
        )

    def _seconds(self) -> dict[str, float | None]:
        return {"lease": self.lease, "max_wait": self.max_wait, "max_hold": self.max_hold}

    def _given_client(self) -> AnyClient | None:
        return self.client() if callable(self.client) else self.client
