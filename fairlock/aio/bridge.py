"""Runs synchronous code in a coroutine, so that its waiting does not block the event loop.

The protocol is written once, as plain functions that call a client and wait on a clock. Here such a
function runs in a greenlet. When it calls `wait_for`, the greenlet stands still and the coroutine
around it awaits; then the greenlet goes on with the result, or with the error, cancellation
included. (SQLAlchemy's asyncio extension made the technique known.) Its clients are aiobotocore's.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AsyncExitStack, suppress
from contextvars import copy_context
from functools import cache, wraps
from types import CoroutineType
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast

from aiobotocore.client import AioBaseClient
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.client import BaseClient
from greenlet import getcurrent, greenlet

from fairlock.client.arguments import NotThere
from fairlock.client.connection import Connection, is_of_another_service
from fairlock.clock import Alarm, BootClock
from fairlock.errors import InvalidRequest

_P = ParamSpec("_P")
_T = TypeVar("_T")
_NO_OPERATIONS: Final = frozenset({"exceptions", "meta"})


class _BridgedGreenlet(greenlet):  # type: ignore[misc]  # greenlet ships no types
    """A greenlet of `run`: its parent is a coroutine that awaits on its behalf."""


async def run(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Calls a function, which may call `wait_for`, and raises a cancellation where it waits."""
    running = _BridgedGreenlet(function)
    running.gr_context = copy_context()
    switched = running.switch(*args, **kwargs)
    while not running.dead:
        # The function is not at its end: the value is what it waits for.
        # While this coroutine awaits, the greenlet stands where it called `wait_for`. Cancellation
        # is an error like any other there: the protocol's own cleanup runs, and may wait again.
        try:
            result = await switched
        except BaseException:  # noqa: BLE001 - the function decides what to do, not we
            switched = running.throw(*sys.exc_info())
        else:
            switched = running.switch(result)
    return cast("_T", switched)


async def iterate(found: Iterator[_T]) -> AsyncIterator[_T]:
    """Yields what an iterator finds, each after a `run` of its own."""
    end = object()
    while (each := await run(next, found, end)) is not end:
        yield cast("_T", each)


def wait_for(awaitable: Awaitable[_T]) -> _T:
    """Lets the coroutine around this code await, and returns the result.

    Raises:
        RuntimeError: the caller does not run within `run`.
    """
    running = getcurrent()
    if not isinstance(running, _BridgedGreenlet) or running.parent is None:
        message = "only code that the bridge of fairlock.aio runs can wait for a coroutine"
        raise RuntimeError(message)
    # Back to `run`, out of the middle of synchronous code. It returns once `run` has the result.
    result: Any = running.parent.switch(awaitable)
    return cast("_T", result)


class _Unawaited(Coroutine[Any, Any, Any]):
    """The coroutine of a call, which tells a caller who forgot `await` what to write.

    Python takes every coroutine for true, so that `if locks.try_acquire(…):` would run its body
    without the lock. To all that runs coroutines it is the one inside.
    """

    def __init__(self, coroutine: CoroutineType[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    @property  # type: ignore[misc]  # it cannot be set
    def __class__(self) -> type:
        """What `inspect.iscoroutine` looks at: a caller that awaits exactly coroutines awaits."""
        return CoroutineType

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as a coroutine
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - same
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __bool__(self) -> NoReturn:  # noqa: PLE0304 - it never answers
        self._refuse()

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __aenter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *_error: object) -> None:
        """Python asks for it before it enters."""

    async def __aexit__(self, *_error: object) -> None:
        """The same."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as a coroutine
        try:
            return getattr(self._coroutine, name)
        except AttributeError:
            if name.startswith("_"):
                raise
            raise NotThere(field="await", rule=self._rule, missing=True) from None

    @property
    def _rule(self) -> str:
        called = f"{self._coroutine.__name__}(…)"
        return f"must stand before {called}, which has not run yet: write `await` before it"

    def _refuse(self) -> NoReturn:
        self._coroutine.close()  # Python need not warn of it as well.
        raise InvalidRequest(field="await", rule=self._rule, missing=True)


_Class = TypeVar("_Class", bound=type)


def with_awaited_calls(kind: _Class) -> _Class:
    """Has each public coroutine function of a class tell who calls it without `await`."""
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        function = getattr(method, "__func__", method)
        if inspect.iscoroutinefunction(function) and not name.startswith("_"):
            awaited = _awaited(function)
            setattr(kind, name, awaited if method is function else type(method)(awaited))
    return kind


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **named: Any) -> _Unawaited:  # noqa: ANN401 - as the function
        return _Unawaited(function(*args, **named))

    # Frameworks and mocks ask this before they call: they would run it in a thread, and await none.
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is None:  # Python 3.11 has no public way. This is what `asyncio` and mocks ask for.
        call.__dict__["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
        return call
    return cast("Callable[..., Any]", mark(call))


class BridgedClient:
    """An aiobotocore client, to be called like one of boto3's.

    A request that was sent is never abandoned: it might reach DynamoDB after the cleanup behind a
    cancelled task, and take a lock that no one knows of. So a cancellation waits for the answer;
    time-outs bound that.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - aiobotocore makes its classes at run time
        self._client = client

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - same
        """An operation, as a function that waits for the answer on the bridge."""
        attribute = getattr(self._client, name)
        if name in _NO_OPERATIONS:
            return attribute
        return lambda **arguments: wait_for(_finish(attribute(**arguments)))


class BridgedClock(BootClock):
    """The clock of this machine; waiting leaves the event loop to others."""

    def wait(self, seconds: float) -> None:
        """Lets that much time pass for the code on the bridge."""
        wait_for(asyncio.sleep(seconds))

    def alarm(self) -> Alarm:
        """An alarm for code on the bridge."""
        return BridgedAlarm()


class BridgedAlarm:
    """A wait of code on the bridge that other code in the same event loop may end."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def wait(self, seconds: float) -> None:
        """See `Alarm`."""
        wait_for(self._wait(seconds))

    def ring(self) -> None:
        """See `Alarm`."""
        self._rung.set()

    async def _wait(self, seconds: float) -> None:
        # Not by `asyncio.timeout`, which cancels the task: a cancellation by the caller in that
        # moment would find the task cancelled already, and the wait would go on after it.
        timer = asyncio.get_running_loop().call_later(seconds, self._rung.set)
        try:
            # A ring that came before the wait ends it at once: the news is older than the pause,
            # and no less true.
            await self._rung.wait()
        finally:
            timer.cancel()
        self._rung.clear()


class BridgedMutex:
    """Mutual exclusion of pieces of code on the bridge that wait within."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def __enter__(self) -> None:
        """Waits until no other code is inside."""
        wait_for(self._lock.acquire())

    def __exit__(self, *_raised: object) -> None:
        """Lets the next one in."""
        self._lock.release()


async def _finish(operation: Awaitable[_T]) -> _T:
    request = asyncio.ensure_future(operation)
    try:
        return await asyncio.shield(request)
    except asyncio.CancelledError:
        # The answer is awaited, then dropped: DynamoDB may have written, and what the cleanup sends
        # must come after it.
        with suppress(Exception):
            await request
        raise


_DESCRIPTIONS: Final = "data_loader"


class AsyncConnection(Connection):
    """DynamoDB, and Step Functions if a workflow is met in a queue, for code on the bridge."""

    def __init__(
        self,
        *,
        session: AioSession | None,
        dynamodb: Any = None,  # noqa: ANN401 - aiobotocore makes its classes at run time
        stepfunctions: Any = None,  # noqa: ANN401 - same
        most_at_once: int = 1,
    ) -> None:
        _check_session(session)
        _check_client("client", dynamodb, service="dynamodb")
        _check_client("stepfunctions", stepfunctions, service="stepfunctions")
        super().__init__(
            session=None,
            dynamodb=_bridged(dynamodb),
            stepfunctions=_bridged(stepfunctions),
            most_at_once=most_at_once,
        )
        self._aio_session = session
        self._mutex = BridgedMutex()
        self._open = AsyncExitStack()

    async def aclose(self) -> None:
        """Closes the clients made here."""
        self._made.clear()
        await self._open.aclose()

    def _one_at_a_time(self) -> BridgedMutex:
        return self._mutex

    def _make(self, service: str) -> Any:  # noqa: ANN401 - one client or the other
        session = self._aio_session or _default_session()
        config = AioConfig().merge(self._config)
        context = session.create_client(service, config=config, **self._region())
        return BridgedClient(wait_for(self._open.enter_async_context(context)))


def _check_session(session: object) -> None:
    if session is not None and not callable(getattr(session, "create_client", None)):
        rule = "must be a session of aiobotocore, as aiobotocore.session.get_session() makes it"
        raise InvalidRequest(field="session", rule=rule, value=session)


def _check_client(field: str, client: object, *, service: str) -> None:
    """Refuses a client of another service, or of boto3, whose answers cannot be awaited."""
    is_sync = isinstance(client, BaseClient) and not isinstance(client, AioBaseClient)
    if is_sync or is_of_another_service(client, service):
        rule = f"must be a client of aiobotocore for {service}; LockClient takes one of boto3"
        raise InvalidRequest(field=field, rule=rule, value=client)


def _default_session() -> AioSession:
    """A new session, because its credentials may be bound to an event loop.

    It shares the descriptions of AWS's services, which take long to read.
    """
    session = get_session()
    session.register_component(_DESCRIPTIONS, _descriptions())
    return session


@cache
def _descriptions() -> Any:  # noqa: ANN401 - a loader of botocore's
    return get_session().get_component(_DESCRIPTIONS)


def _bridged(client: Any) -> Any:  # noqa: ANN401 - one client or the other
    return None if client is None else BridgedClient(client)
