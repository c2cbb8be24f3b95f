"""`with locks.hold(…)` of both clients: what the body raises leaves it, a bad end is not hidden.

And blocks that never begin, locks that are dropped while they are renewed, clients that are closed.
"""

from __future__ import annotations

import gc
import logging
import math
import re
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from fairlock import InvalidRequest, LockLost, LockStoreUnavailable
from tests.contracts.client.drivers import OWN, World, done, inside
from tests.support import logged_here
from tests.support.faulty_table import down


class WorkFailedError(Exception):
    """What the body raises."""


async def fail_in(block: Any, before: Callable[[], object] = lambda: None) -> None:  # noqa: ANN401 - a block of either client
    async with inside(block):
        before()
        raise WorkFailedError


async def test_what_the_body_raises_leaves_it_after_the_release(world: World) -> None:
    for block in (world.locks.hold("a"), await done(world.locks.acquire("b"))):
        with pytest.raises(WorkFailedError):
            await fail_in(block)
    assert [world.table.state(name).held for name in "ab"] == [0, 0]


@pytest.mark.parametrize("is_released", [False, True])
async def test_a_lock_is_entered_once_while_it_is_held(world: World, *, is_released: bool) -> None:
    lock, bodies = await done(world.locks.acquire("a")), []
    if is_released:
        await done(lock.release())
    with suppress(LockLost):
        async with inside(lock):
            bodies.append("alone")
            with pytest.raises(InvalidRequest, match="whose inner end would release it"):
                async with inside(lock):
                    bodies.append("not alone")
            lock.check()
    with pytest.raises(LockLost, match="acquire it again"):
        async with inside(lock):
            bodies.append("not alone")
    assert bodies == ([] if is_released else ["alone"])


async def test_a_release_that_fails_is_a_note_on_the_bodys_exception(world: World) -> None:
    with pytest.raises(WorkFailedError) as raised:
        await fail_in(world.locks.hold("a"), lambda: world.table.will(down()))
    (note,) = raised.value.__notes__
    assert note.startswith("At the end of the lock: the lock table did not answer")


@pytest.mark.parametrize("best_effort", [True, False])
async def test_a_release_that_fails_leaves_the_works_result_or_raises_if_that_is_wanted(
    world: World, caplog: pytest.LogCaptureFixture, *, best_effort: bool
) -> None:
    caplog.set_level(logging.WARNING, "fairlock")
    raised = []
    try:
        async with inside(world.client(best_effort_release=best_effort).hold("a")):
            world.table.will(down())
    except LockStoreUnavailable as error:
        raised.append(error)
    assert (raised == []) is best_effort
    told = "lock 'a': release failed, its lease ends it"
    assert (told in caplog.text) is best_effort
    assert world.table.state("a").held == 1


@pytest.mark.parametrize("best_effort", [True, False])
async def test_a_body_that_succeeds_unlocked_is_told(world: World, *, best_effort: bool) -> None:
    """In an outage that outlasts its lease, too."""
    locks = world.client(best_effort_release=best_effort)

    async def work() -> None:
        async with inside(locks.hold("a")):
            world.stall(OWN)
            world.table.will(down())

    with pytest.raises(LockLost, match="its lease is over") as raised:
        await work()
    assert isinstance(raised.value.__cause__, LockStoreUnavailable)
    world.table.will()
    with pytest.raises(LockLost, match="its lease is over"):
        async with inside(locks.hold("b")):
            world.stall(OWN)


async def test_a_body_that_fails_without_its_lock_keeps_its_exception(world: World) -> None:
    with pytest.raises(WorkFailedError) as raised:
        await fail_in(world.client().hold("a"), lambda: world.stall(OWN))
    assert raised.value.__notes__ == ["At the end of the lock: lock 'a': its lease is over"]


# Clients that are closed.


async def test_closing_a_client_gives_back_its_locks_only_if_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    keeps, gives, fails = (world.client(name) for name in ("keeps", "gives", "fails"))
    for name in "abcd":
        await done((keeps if name == "a" else gives).acquire(name))
    await done(keeps.close())
    await done(gives.close(release=True))
    assert [world.table.state(name).held for name in "abcd"] == [1, 0, 0, 0]
    sent = len(world.table.requests)
    await world.sleep(100)
    assert len(world.table.requests) == sent
    await done(fails.acquire("e"))
    world.table.will(down())
    await done(fails.close(release=True))
    assert "lock 'e': release at close failed; the lease ends it" in caplog.text


async def test_a_lock_may_be_renewed_and_released_after_its_client_was_closed(world: World) -> None:
    lock = await done(world.locks.acquire("a"))
    await done(world.locks.close())
    lock.check()
    await done(lock.heartbeat())
    assert world.table.state("a").holders[0].revision == 2
    assert lock.condition_check()["ConditionCheck"]["TableName"] == "fake-locks"
    assert await done(lock.release()) is True
    assert world.table.state("a").held == 0


async def test_the_loss_of_a_lock_of_a_closed_client_is_noticed(world: World) -> None:
    lock = await done(world.client().acquire("a"))
    await done(world.clients[0].close())
    assert await done(lock.lost.wait())
    assert OWN <= world.now() < OWN + 1


async def test_a_safe_period_of_the_other_meaning_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """20 of 30 seconds are what python_dynamodb_lock suggests; there they count from a renewal."""
    world.client(heartbeat_every=5, safe_period=20)
    assert "danger is reported 10 s after a renewal" in caplog.text
    assert "give safe_period=10" in caplog.text
    caplog.clear()
    world.client(heartbeat_every=5, safe_period=10)
    world.client()
    assert logged_here(caplog) == []


# Blocks that never begin, and locks that are dropped while they go on being renewed.

NEVER = r"lock 'a' was never acquired: write `(async )?with locks\.hold\('a'\) as lock:`"
DROPPED = r"lock 'a' was dropped, and its client goes on renewing it: write `(async )?with"


async def warned(work: Callable[[], Awaitable[object]]) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        await work()
        gc.collect()
    ours = {ResourceWarning, RuntimeWarning}
    return [str(one.message) for one in seen if one.category in ours]


async def test_a_block_that_never_begins_is_pointed_out(world: World) -> None:
    with pytest.warns(RuntimeWarning, match=NEVER):
        world.locks.hold("a")
    with pytest.warns(RuntimeWarning, match=r"with locks.hold_all\(\['ben', 'anna'\]\) as"):
        world.locks.hold_all(["ben", "anna"])
    assert world.table.requests == []


async def test_a_block_that_has_begun_is_not(world: World) -> None:
    async def work() -> None:
        async with inside(world.locks.hold("a")), inside(world.locks.hold("b")) as lock:
            lock.check()
        async with inside(world.locks.hold("c", reentrant=True)) as outer:
            async with inside(world.locks.hold("c", reentrant=True)) as inner:
                assert inner is outer
            outer.check()

    assert await warned(work) == []


async def test_a_block_taken_for_the_lock_says_what_to_write(world: World) -> None:
    block = world.locks.hold("a")
    for name in ("fencing_token", "check", "transact_write"):
        with pytest.raises(InvalidRequest, match=rf"no lock yet; write .* use `lock\.{name}`"):
            getattr(block, name)
    async with inside(block) as lock:
        lock.check()
    with pytest.raises(InvalidRequest, match="entered once; call `hold` again"):
        async with inside(block):
            pass


async def test_a_dropped_lock_that_is_renewed_is_pointed_out_once_and_goes_on(world: World) -> None:
    told: list[Any] = []

    async def stall() -> None:
        world.stall(61)

    with pytest.warns(ResourceWarning, match=DROPPED):
        await done(
            world.locks.acquire("a", on_lost=lambda lock, why: told.append((lock.name, why)))
        )
    await world.sleep(300)
    assert await done(world.another().try_acquire("a")) is None
    assert await warned(stall) == []
    await world.sleep(1)
    assert told == [("a", "its lease is over")]


async def test_the_next_heartbeat_logs_a_dropped_lock_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """In production logs are read, and a ResourceWarning is hidden."""
    with caplog.at_level(logging.WARNING, "fairlock"):
        with pytest.warns(ResourceWarning, match=DROPPED):
            await done(world.locks.acquire("a"))
        # Not when it is dropped: the garbage collector may come while a handler is locked.
        assert logged_here(caplog) == []
        await world.sleep(300)
    [logged] = logged_here(caplog)
    assert re.match(DROPPED, logged)


@pytest.mark.parametrize("how", ["released", "not renewed", "closed"])
async def test_a_lock_that_no_one_renews_is_not(world: World, how: str) -> None:
    settings = {"heartbeat_every": math.inf, "safe_period": 1} if how == "not renewed" else {}

    async def work() -> None:
        locks = world.another(**settings)
        lock = await done(locks.acquire("a"))
        if how == "released":
            await done(lock.release())
        elif how == "closed":
            await done(locks.close())

    assert await warned(work) == []


async def test_a_lock_in_a_circle_is_pointed_out_by_the_garbage_collector(world: World) -> None:
    async def work() -> None:
        circle: list[Any] = [await done(world.locks.acquire("a"))]
        circle.append(circle)

    [told] = await warned(work)
    assert told.startswith("lock 'a' was dropped")
