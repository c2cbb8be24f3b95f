"""Blocks that never begin, and locks that are dropped while they go on being renewed."""

from __future__ import annotations

import gc
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from fairlock import InvalidRequest
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, run_in_virtual_time

NEVER = r"lock 'a' was never acquired: write `with locks\.hold\('a'\) as lock:`"
DROPPED = r"lock 'a' was dropped, and its client goes on renewing it: write `with"


def warned(work: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work()
        gc.collect()
        return [
            str(one.message) for one in seen if one.category in {ResourceWarning, RuntimeWarning}
        ]


def test_a_block_that_never_begins_is_pointed_out() -> None:
    with FakeLockClient() as locks:
        with pytest.warns(RuntimeWarning, match=NEVER):
            locks.hold("a")
        assert locks.table.requests == []


def test_a_block_that_has_begun_is_not() -> None:
    def work() -> None:
        with FakeLockClient() as locks, locks.hold("a"), locks.hold("b") as lock:
            lock.check()

    assert warned(work) == []


def test_a_block_taken_for_the_lock_says_what_to_write() -> None:
    with FakeLockClient() as locks:
        block: Any = locks.hold("a")
        for name in ("fencing_token", "check", "transact_write"):
            with pytest.raises(InvalidRequest, match=rf"no lock yet; write .* use `lock\.{name}`"):
                getattr(block, name)
        with block as lock:
            lock.check()


def test_a_block_begins_once() -> None:
    with FakeLockClient() as locks:
        block = locks.hold("a")
        with block:
            pass
        with pytest.raises(InvalidRequest, match="entered once; call `hold` again"), block:
            pass


def test_a_lock_that_is_dropped_and_renewed_is_pointed_out_once_and_lives_on() -> None:
    told: list[Any] = []
    with FakeLockClient() as locks:
        with pytest.warns(ResourceWarning, match=DROPPED):
            locks.acquire("a", on_lost=lambda lock, reason: told.append((lock.name, reason)))
        locks.clock.advance(300)
        assert locks.another().try_acquire("a") is None
        assert warned(lambda: locks.clock.stall(61)) == []
        locks.clock.advance(1)
    assert told == [("a", "its lease is over")]
    assert warned(told.clear) == []


def test_the_next_heartbeat_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    """In production logs are read, and a ResourceWarning is hidden."""
    with FakeLockClient() as locks, caplog.at_level("WARNING", "fairlock"):
        with pytest.warns(ResourceWarning, match=DROPPED):
            locks.acquire("a")
        assert caplog.messages == []  # The garbage collector may come while a handler is locked.
        locks.clock.advance(300)
    [logged] = caplog.messages
    assert re.match(DROPPED, logged)


def test_a_lock_that_is_kept_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with FakeLockClient() as locks, locks.hold("a"):
        locks.clock.advance(300)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "work",
    [
        lambda locks: locks.acquire("a").release(),
        lambda locks: locks.another(heartbeat_every=math.inf, safe_period=1).acquire("a"),
        lambda locks: [locks.acquire("a"), locks.close()],
    ],
    ids=["released", "not renewed", "closed"],
)
def test_a_lock_that_no_one_renews_is_not(work: Callable[[FakeLockClient], object]) -> None:
    with FakeLockClient() as locks:
        assert warned(lambda: work(locks)) == []


def test_a_lock_in_a_circle_is_pointed_out_by_the_garbage_collector() -> None:
    with FakeLockClient() as locks:

        def work() -> None:
            circle: list[Any] = [locks.acquire("a")]
            circle.append(circle)

        [told] = warned(work)
    assert told.startswith("lock 'a' was dropped")


def test_so_it_is_with_asyncio() -> None:
    async def work() -> None:
        async with FakeAsyncLockClient() as locks:
            with pytest.warns(RuntimeWarning, match=r"never acquired: write `async with locks"):
                locks.hold("a")
            with pytest.warns(ResourceWarning, match=DROPPED):
                await locks.acquire("a")
            async with locks.hold("b", reentrant=True) as lock:
                async with locks.hold("b", reentrant=True) as inner:
                    assert inner is lock
                lock.check()

    run_in_virtual_time(work())
