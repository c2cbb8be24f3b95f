"""The surface of `AsyncLockClient` is that of `LockClient`, to be awaited."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from fairlock import AsyncLock, AsyncLockClient, Lock, LockClient, LockEvent
from fairlock.aio.bridge import run, wait_for
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time
from fairlock.testing.fake_async_client import _Awaitable
from fairlock.testing.fake_table import FakeTable
from tests.unit.client.doubles import virtual_loop


def parameters_of(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(("kind", "namesake"), [(AsyncLockClient, LockClient), (AsyncLock, Lock)])
def test_a_client_and_a_lock_have_the_methods_of_their_namesakes_which_take_the_same(
    kind: type, namesake: type
) -> None:
    public = {name for name in dir(namesake) if not name.startswith("_")}
    assert {name for name in dir(kind) if not name.startswith("_")} == public
    for name in public - {"adopt"}:
        if callable(method := getattr(namesake, name)):
            assert parameters_of(getattr(kind, name)) == parameters_of(method), name


# The bridge: synchronous code that waits, in a coroutine.

_who: ContextVar[str] = ContextVar("who")


def nap(seconds: float, answer: str) -> str:
    wait_for(asyncio.sleep(seconds))
    return answer


def nest(depth: int) -> int:
    return depth if depth == 0 else 1 + nest(depth - 1) * wait_for(asyncio.sleep(0, 1))


async def test_code_that_waits_returns_its_result_and_holds_no_one_up() -> None:
    answers = await asyncio.gather(*(run(nap, 3, answer=str(n)) for n in range(100)))
    assert answers == [str(n) for n in range(100)]
    assert virtual_loop().time() == pytest.approx(3)


async def test_code_that_does_not_wait_is_simply_called() -> None:
    assert await run(len, "four") == 4
    assert await run(nest, 50) == 50


async def test_what_the_code_raises_leaves_and_what_it_waits_for_raises_into_it() -> None:
    def fail() -> None:
        wait_for(asyncio.sleep(0))
        raise KeyError("mine")

    async def refuse() -> None:
        raise ValueError("theirs")

    def recover() -> str:
        try:
            wait_for(refuse())
        except ValueError as error:
            return nap(1, f"{error}, and went on")
        return "nothing"

    with pytest.raises(KeyError, match="mine"):
        await run(fail)
    assert await run(recover) == "theirs, and went on"


async def test_a_cancellation_is_raised_where_the_code_waits_and_it_may_clean_up() -> None:
    log = []

    def work() -> None:
        try:
            nap(60, "never")
        except asyncio.CancelledError:
            log.append(nap(1, "cleaned up"))
            raise

    task = asyncio.create_task(run(work))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["cleaned up"]
    assert virtual_loop().time() == pytest.approx(2)


async def test_the_code_sees_the_context_variables_of_its_task() -> None:
    async def tell(name: str) -> str:
        _who.set(name)
        return await run(lambda: nap(1, "") + _who.get())

    assert [*await asyncio.gather(tell("anna"), tell("berta"))] == ["anna", "berta"]


def test_waiting_off_the_bridge_is_a_defect_that_says_so() -> None:
    with pytest.raises(RuntimeError, match="only code that the bridge"):
        wait_for(asyncio.Event())  # type: ignore[arg-type]  # never looked at


# The hook for metrics of the asyncio client: a thread calls it, and no task waits for it.


def test_a_cancelled_acquisition_is_no_event() -> None:
    told: list[LockEvent] = []

    async def scene() -> None:
        locks = FakeAsyncLockClient(on_event=told.append)
        async with locks, locks.another().hold("a"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await locks.acquire("a")

    run_in_virtual_time(scene())
    assert told == []


def test_the_end_of_the_client_waits_for_the_hook_and_lets_the_loop_run() -> None:
    told: list[str] = []
    first, goes_on = threading.Event(), threading.Event()

    def hook(event: LockEvent) -> None:
        first.set()
        goes_on.wait(30)
        told.append(event.kind.value)

    async def let_go_on() -> None:
        await asyncio.to_thread(first.wait, 30)
        goes_on.set()

    async def scene() -> None:
        client = _Awaitable(FakeTable())
        async with AsyncLockClient("locks", client=client, on_event=hook) as locks:
            releasing = asyncio.create_task(let_go_on())
            async with locks.hold("a"):
                pass
        await releasing

    asyncio.run(scene())
    assert told == ["Granted", "Released"]
