"""The bridge: synchronous code that waits, in a coroutine."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from fairlock.aio.bridge import BridgedMutex, run, wait_for
from tests.unit.aio.virtual_time import in_virtual_time, virtual_loop

_who: ContextVar[str] = ContextVar("who")


def nap(seconds: float, answer: str) -> str:
    wait_for(asyncio.sleep(seconds))
    return answer


def nest(depth: int) -> int:
    return depth if depth == 0 else 1 + nest(depth - 1) * wait_for(asyncio.sleep(0, 1))


@in_virtual_time
async def test_code_that_waits_returns_its_result_and_holds_no_one_up() -> None:
    answers = await asyncio.gather(*(run(nap, 3, answer=str(n)) for n in range(100)))
    assert answers == [str(n) for n in range(100)]
    assert virtual_loop().time() == pytest.approx(3)


@in_virtual_time
async def test_code_that_does_not_wait_is_simply_called() -> None:
    assert await run(len, "four") == 4
    assert await run(nest, 50) == 50


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
async def test_the_code_sees_the_context_variables_of_its_task() -> None:
    async def tell(name: str) -> str:
        _who.set(name)
        return await run(lambda: nap(1, "") + _who.get())

    assert [*await asyncio.gather(tell("anna"), tell("berta"))] == ["anna", "berta"]


@in_virtual_time
async def test_a_lock_on_the_bridge_lets_one_in_at_a_time() -> None:
    lock, inside = BridgedMutex(), []

    def work() -> None:
        with lock:
            inside.append("in")
            nap(1, "")
            inside.append("out")

    await asyncio.gather(run(work), run(work), run(work))
    assert inside == ["in", "out"] * 3


def test_waiting_off_the_bridge_is_a_defect_that_says_so() -> None:
    with pytest.raises(RuntimeError, match="only code that the bridge"):
        wait_for(asyncio.Event())  # type: ignore[arg-type]  # never looked at
