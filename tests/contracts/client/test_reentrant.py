"""A caller inside the block of a lock does not wait for itself; it may enter the lock again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from fairlock import InvalidRequest, Lock, LockLost, LockWaitTimeout
from fairlock.testing import FakeLockClient
from tests.contracts.client.drivers import WAYS, Tasks, World, done, enter, inside
from tests.support import in_a_thread

WOULD_WAIT = (
    r"^name: must not be 'a' here: this (thread|task) is inside a `with` that holds the lock"
)


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


def raised_in_a_thread(work: Callable[[], object]) -> BaseException | None:
    return in_a_thread(work).exception(0)


@pytest.mark.parametrize("way", WAYS)
async def test_a_second_wait_of_the_same_caller_is_refused_at_once_and_nothing_is_sent(
    way: str, world: World
) -> None:
    async with inside(world.locks.hold("a")):
        before = (world.now(), len(world.table.requests))
        with pytest.raises(InvalidRequest, match=WOULD_WAIT) as refused:
            await enter(world, way)
        assert "reentrant=True" in str(refused.value)
        assert f"this {world.caller} is" in str(refused.value)
        assert (world.now(), len(world.table.requests)) == before


async def test_a_call_that_does_not_wait_is_refused_as_usual(world: World) -> None:
    async with inside(world.locks.hold("a")):
        assert await done(world.locks.try_acquire("a")) is None
        with pytest.raises(LockWaitTimeout):
            await done(world.locks.acquire("a", max_wait=0))


@pytest.mark.parametrize("reentrant", [False, True])
def test_another_thread_and_another_client_wait(locks: FakeLockClient, *, reentrant: bool) -> None:
    with locks.hold("a", reentrant=reentrant):
        block = partial(locks.hold, "a", reentrant=reentrant, max_wait=1)
        assert isinstance(raised_in_a_thread(block().__enter__), LockWaitTimeout)
        with pytest.raises(LockWaitTimeout):
            locks.another().acquire("a", max_wait=1)


async def test_a_lock_outside_of_a_with_may_be_released_by_others(world: World) -> None:
    lock = await done(world.locks.acquire("a"))
    world.at(10, lock.release)
    async with inside(world.locks.hold("a")) as second:
        assert second.fencing_token > lock.fencing_token


async def test_a_lock_that_is_released_in_its_block_does_not_count(world: World) -> None:
    async with inside(world.locks.hold("a")) as lock:
        await done(lock.release())
        async with inside(world.locks.hold("a")):
            pass
    assert world.table.requests == ["update_item"] * 4, "each is released once"


async def test_a_lock_that_is_known_as_lost_does_not_count(world: World) -> None:
    with pytest.raises(LockLost):  # noqa: PT012 - the whole block
        async with inside(world.locks.hold("a")) as lost:
            world.stall(61)
            assert lost.lost.is_set()
            async with inside(world.locks.hold("a", reentrant=True)) as lock:
                assert lock.fencing_token > lost.fencing_token


async def test_an_adopted_lock_counts_inside_its_block(world: World) -> None:
    lock = await done(world.locks.acquire("a"))
    async with inside(await done(world.locks.adopt("a", lock.owner_id))):
        with pytest.raises(InvalidRequest, match=WOULD_WAIT):
            await done(world.locks.acquire("a"))


@pytest.mark.parametrize(("limits", "is_refused"), [((2,), False), ((2, 2), True), ((1,), True)])
async def test_a_caller_that_has_as_many_permits_as_may_be_out_is_refused(
    limits: tuple[int, ...],
    is_refused: bool,  # noqa: FBT001 - a parameter of the test
    world: World,
) -> None:
    """Of a lock with two permits one may still come from others; beside a limit of 1 none may."""
    async with AsyncExitStack() as blocks:
        for limit in limits:
            lock = await done(world.locks.acquire("a", limit=limit))
            await blocks.enter_async_context(inside(lock))
        if is_refused:
            with pytest.raises(InvalidRequest, match=WOULD_WAIT):
                await done(world.locks.acquire("a", limit=2))
        else:
            third = await done(world.locks.acquire("a", limit=2))
            assert await done(third.release())


def test_a_generator_resumed_in_another_thread_ends_its_own_block(locks: FakeLockClient) -> None:
    def block() -> Iterator[None]:
        with locks.hold("a"):
            yield

    generator = block()
    next(generator)
    with pytest.raises(InvalidRequest, match=WOULD_WAIT):
        locks.acquire("a")
    assert raised_in_a_thread(lambda: next(generator, None)) is None
    assert locks.acquire("a").release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_inside_of_no_block(locks: FakeLockClient) -> None:
    with locks.hold("a"):
        child = os.fork()
        if child == 0:
            os._exit(len(locks._services.entered.held("a")))  # noqa: SLF001 - in the child
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(locks._services.entered.held("a")) == 1  # noqa: SLF001 - in the parent


async def test_reentrant_blocks_get_the_same_lock_and_the_outermost_releases(world: World) -> None:
    async with inside(world.locks.hold("a", reentrant=True)) as outer:
        sent = len(world.table.requests)
        async with (
            inside(world.locks.hold("a", reentrant=True)) as inner,
            inside(world.locks.hold("a", reentrant=True)) as third,
        ):
            assert inner is outer is third
        assert (len(world.table.requests), outer.remaining > 0) == (sent, True)
    assert outer.remaining == 0


def beep(_lock: Lock, _reason: str) -> None: ...


OTHER: dict[str, Any] = {
    "limit": 2,
    "lease": 30,
    "data": {"step": 2},
    "owner_name": "ben",
    "on_lost": print,
    "on_danger": print,
    "max_hold": 600,
}


@pytest.mark.parametrize("field", OTHER)
async def test_the_inner_options_are_the_outer_ones_or_left_out(field: str, world: World) -> None:
    outer: dict[str, Any] = {"lease": 60, "data": {"step": 1}, "owner_name": "anna"}
    outer |= {"on_lost": beep, "on_danger": beep}
    async with inside(world.locks.hold("a", **outer)):
        async with (
            inside(world.locks.hold("a", reentrant=True)),
            inside(world.locks.hold("a", reentrant=True, **outer)),
        ):
            pass
        with pytest.raises(
            InvalidRequest, match=r"must be left out, or be that of the outer"
        ) as no:
            async with inside(world.locks.hold("a", reentrant=True, **{field: OTHER[field]})):
                pass
        assert no.value.field == field


async def test_an_inner_block_tells_of_a_loss_too(world: World) -> None:
    outer = inside(world.locks.hold("a"))
    await outer.__aenter__()
    with pytest.raises(LockLost, match="lease is over"):
        async with inside(world.locks.hold("a", reentrant=True)):
            world.stall(61)
    with pytest.raises(LockLost, match="lease is over"):
        await outer.__aexit__(None, None, None)


@pytest.mark.parametrize("world", [Tasks], indirect=True)
async def test_a_task_that_the_block_starts_waits_for_the_end_of_the_block(world: World) -> None:
    """It has a copy of the block's context variables, and is another task all the same."""
    async with world.locks.hold("a", reentrant=True) as first:
        child = asyncio.create_task(world.locks.acquire("a"))
        with pytest.raises(LockWaitTimeout):
            await asyncio.create_task(world.locks.acquire("a", max_wait=1))
    second = await child
    assert second.fencing_token > first.fencing_token
