"""`@locked("orders/{order_id}")`: a function that runs only while it holds a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from leasehold.client.arguments import require, require_wait
from leasehold.client.lock_client import LockClient
from leasehold.decorator.call import LOCK_PARAMETER, Call, IfTaken, Plan, plan_for, refuse_coroutine
from leasehold.decorator.default_clients import default_async_client, default_client
from leasehold.decorator.lock_name import NameOf
from leasehold.errors import InvalidRequest, LockStoreUnavailable
from leasehold.wire import rules

if TYPE_CHECKING:
    from leasehold.aio import AsyncLock, AsyncLockClient
    from leasehold.client.lock import Lock

    AnyClient = LockClient | AsyncLockClient

_P = ParamSpec("_P")
_R = TypeVar("_R")
_D = TypeVar("_D")


@overload
def locked(
    name: str | NameOf,
    *,
    if_taken: Literal["wait", "raise"] = "wait",
    wait: float | None = None,
    lease: float | None = None,
    limit: int = 1,
    client: AnyClient | Callable[[], AnyClient] | None = None,
) -> Locked: ...


@overload
def locked(
    name: str | NameOf,
    *,
    if_taken: Literal["skip"],
    lease: float | None = None,
    limit: int = 1,
    client: AnyClient | Callable[[], AnyClient] | None = None,
) -> LockedOrSkipped[None]: ...


@overload
def locked(
    name: str | NameOf,
    *,
    if_taken: Literal["skip"],
    otherwise: _D,
    lease: float | None = None,
    limit: int = 1,
    client: AnyClient | Callable[[], AnyClient] | None = None,
) -> LockedOrSkipped[_D]: ...


def locked(
    name: str | NameOf,
    *,
    if_taken: IfTaken = "wait",
    otherwise: Any = None,
    wait: float | None = None,
    lease: float | None = None,
    limit: int = 1,
    client: AnyClient | Callable[[], AnyClient] | None = None,
) -> Any:
    """Lets a function, a coroutine function or a Lambda handler run only while it holds a lock.

        @locked("orders/{order_id}")
        def charge(order_id: str, *, lock: Lock | None = None) -> Receipt: ...

        @locked("orders/{event[detail][id]}", if_taken="skip")
        def handler(event, context): ...

    The lock is released when the function ends, whatever way; the rest is as with
    `LockClient.hold`, or `AsyncLockClient.hold` for a coroutine function. A function with a
    parameter `lock` gets the lock there. It is not re-entrant: a locked function that calls itself
    for the same name waits for itself.

    If the second argument is the context of a Lambda function and no `lease` is given, the lease
    lasts until the invocation must have ended: no heartbeat is needed, and the lock of an
    invocation that died is free soon after. (If the lock had to be waited for, one heartbeat
    shortens the lease by as much.) And no wait is longer than the invocation has left.

    Args:
        name: of the lock; fields in braces are filled with the arguments of the call, as
            `str.format` does. Or a function that makes the name from the same arguments.
        if_taken: "wait" waits in the queue, at most `wait` seconds. "raise" raises at once. "skip"
            does not call the function, and returns `otherwise`.
        otherwise: what a call that was skipped returns.
        wait: seconds; None takes the client's.
        lease: seconds; None takes the client's, or that of the invocation.
        limit: number of permits of this lock.
        client: a `LockClient` for functions, an `AsyncLockClient` for coroutine functions, or a
            function that returns it; None makes one when it is first needed, for the table that
            LEASEHOLD_TABLE_NAME names, with `takeover="stored_expiry"` if this call looks only once
            ("skip", "raise") or runs in Lambda. One that is given should send no heartbeats in
            Lambda (`heartbeat_every=math.inf`), or have a period that suits short leases.

    Raises:
        InvalidRequest: when it decorates, for a rule broken by the arguments here; when it is
            called, for a name that cannot be formed, or no client.
        LockWaitTimeout: by the call, if the lock is taken ("wait", "raise"). The function did not
            run.
        LockStoreUnavailable: by the call; as of `acquire`. The function did not run.
        LockLost: by the call: the function has run to its end, but was not alone.
    """
    if if_taken not in {"wait", "skip", "raise"}:
        rule = 'must be "wait", "skip" or "raise"'
        raise InvalidRequest(field="if_taken", rule=rule, value=if_taken)
    if wait is not None:
        require_wait(wait)
        if if_taken != "wait":
            rule = f'must be left out with if_taken="{if_taken}", which does not wait'
            raise InvalidRequest(field="wait", rule=rule, value=wait)
    if lease is not None:
        require("lease", rules.LEASE_SECONDS, lease)
    require("limit", rules.LIMIT, limit)
    if otherwise is not None and if_taken != "skip":
        raise InvalidRequest(
            field="otherwise", rule='goes with if_taken="skip" only', value=otherwise
        )
    kind = LockedOrSkipped if if_taken == "skip" else Locked
    return kind(
        _Wish(
            name=name,
            if_taken=if_taken,
            otherwise=otherwise,
            wait=wait,
            lease=lease,
            limit=limit,
            client=client,
        )
    )


class Locked:
    """A decorator of functions: the result has the same signature."""

    def __init__(self, wish: _Wish) -> None:
        self._wish = wish

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """The function that takes the lock first."""
        return self._wish.around(function)


class LockedOrSkipped(Generic[_D]):
    """A decorator of functions: the result may also return what stands for a skipped call."""

    def __init__(self, wish: _Wish) -> None:
        self._wish = wish

    @overload
    def __call__(
        self, function: Callable[_P, Coroutine[Any, Any, _R]]
    ) -> Callable[_P, Coroutine[Any, Any, _R | _D]]: ...

    @overload
    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R | _D]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function that takes the lock first, or does nothing."""
        return self._wish.around(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """The arguments of `locked`."""

    name: str | NameOf
    if_taken: IfTaken
    otherwise: Any
    wait: float | None
    lease: float | None
    limit: int
    client: AnyClient | Callable[[], AnyClient] | None

    def around(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        plan = plan_for(function, self.name, lease=self.lease, wait=self.wait)
        is_async = inspect.iscoroutinefunction(function)
        wrap = self._around_coroutine if is_async else self._around_function
        wrapper = functools.wraps(function)(wrap(plan, function))
        wrapper.__signature__ = plan.signature  # type: ignore[attr-defined]  # see PEP 362
        return cast("Callable[_P, _R]", wrapper)

    def _around_function(self, plan: Plan, function: Callable[..., Any]) -> Callable[..., Any]:
        def call_locked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            call = plan.call(args, kwargs)
            lock = self._take(call)
            if lock is None:
                return self.otherwise
            if plan.passes_lock:
                kwargs[LOCK_PARAMETER] = lock
            with lock:
                shorter = call.shorter_lease(lock.lease)
                if shorter is not None:
                    with suppress(LockStoreUnavailable, InvalidRequest):  # Then it is too long.
                        lock.heartbeat(lease=shorter)
                result = function(*args, **kwargs)
                refuse_coroutine(result)
                return result

        return call_locked

    def _around_coroutine(self, plan: Plan, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call_locked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            call = plan.call(args, kwargs)
            lock = await self._take_async(call)
            if lock is None:
                return self.otherwise
            if plan.passes_lock:
                kwargs[LOCK_PARAMETER] = lock
            async with lock:
                shorter = call.shorter_lease(lock.lease)
                if shorter is not None:
                    with suppress(LockStoreUnavailable, InvalidRequest):  # Same.
                        await lock.heartbeat(lease=shorter)
                return await function(*args, **kwargs)

        return call_locked

    def _take(self, call: Call) -> Lock | None:
        client = self._given() or default_client(
            heartbeats=call.heartbeats, watches=self._watches(call)
        )
        if not isinstance(client, LockClient):
            raise _wrong_client(client, wanted="a LockClient, as it is no coroutine function")
        if self.if_taken == "skip":
            return client.try_acquire(call.name, lease=call.lease, limit=self.limit)
        wait = call.wait_with(client.longest_wait(call.lease)) if self.if_taken == "wait" else 0
        return client.acquire(call.name, lease=call.lease, wait=wait, limit=self.limit)

    async def _take_async(self, call: Call) -> AsyncLock | None:
        client = self._given() or await default_async_client(
            heartbeats=call.heartbeats, watches=self._watches(call)
        )
        if isinstance(client, LockClient):
            raise _wrong_client(client, wanted="an AsyncLockClient, as it is a coroutine function")
        if self.if_taken == "skip":
            return await client.try_acquire(call.name, lease=call.lease, limit=self.limit)
        wait = call.wait_with(client.longest_wait(call.lease)) if self.if_taken == "wait" else 0
        return await client.acquire(call.name, lease=call.lease, wait=wait, limit=self.limit)

    def _watches(self, call: Call) -> bool:
        return call.lives_on and self.if_taken == "wait"

    def _given(self) -> AnyClient | None:
        return self.client() if callable(self.client) else self.client


def _wrong_client(client: object, *, wanted: str) -> InvalidRequest:
    return InvalidRequest(field="client", rule=f"must be {wanted}", value=client)
