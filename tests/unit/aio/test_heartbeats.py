"""Heartbeats in the event loop, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from itertools import pairwise
from typing import Any, NoReturn

import pytest

from fairlock.aio.tasks import BackgroundTasks
from fairlock.client.heartbeats import HeartbeatSchedule
from fairlock.testing import run_in_virtual_time
from tests.support import logged_here
from tests.support.faulty_table import show
from tests.unit.aio.conftest import Far
from tests.unit.client.doubles import virtual_loop


async def test_a_loss_that_another_thread_finds_out_is_told_in_the_loop(far: Far) -> None:
    told: list[threading.Thread] = []
    async with far.client() as locks:
        lock = await locks.acquire("a", on_lost=lambda *_: told.append(threading.current_thread()))
        virtual_loop().block(31)
        clock = virtual_loop().time()
        lock._handle.lease._clock.monotonic = lambda: clock  # type: ignore[method-assign]  # noqa: SLF001 - off the loop
        finder = threading.Thread(target=lock.lost.is_set)
        finder.start()
        finder.join(30)
        assert told == []
        await asyncio.sleep(0.1)
        assert told == [threading.current_thread()]


async def test_a_release_waits_for_the_heartbeat_that_is_on_its_way(far: Far) -> None:
    async with far.client() as locks:
        lock = await locks.acquire("a")
        far.table.ways = [1.0]
        beat = asyncio.create_task(lock.heartbeat())
        await asyncio.sleep(0.1)
        await lock.release()
        await asyncio.gather(beat, return_exceptions=True)
        *_, (_, first), (_, second) = far.table.sent
        assert "h_revision" in first["UpdateExpression"]
        assert "REMOVE" in second["UpdateExpression"]


async def test_one_task_plans_for_all_locks_and_none_is_left_after_the_end(
    far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "asyncio")
    before = asyncio.all_tasks()
    async with far.client() as locks:
        held = [await locks.acquire(f"lock-{n}") for n in range(100)]
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks() - before) == 1
        for lock in held:
            await lock.release()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        await locks.acquire("again")
        await asyncio.sleep(100)
    assert asyncio.all_tasks() == before
    assert logged_here(caplog) == []


def cancel_all_others() -> None:
    """As programs do when they are to end, some of which go on under their locks for a while."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.parametrize("begun", [True, False], ids=["in a pause", "before the first"])
async def test_a_program_that_cancels_all_tasks_keeps_its_locks_and_is_warned(
    begun: bool,  # noqa: FBT001 - a parameter of the test
    far: Far,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with far.client() as locks, locks.hold("a") as lock:
        await asyncio.sleep(45 if begun else 0)
        cancel_all_others()
        await asyncio.sleep(300)
        lock.check()
    assert caplog.text.count("the task of the heartbeats was cancelled with locks held (1)") == 1


async def test_a_heartbeat_that_is_cancelled_before_it_begins_is_sent_later(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin: Any = BackgroundTasks.start

    def begin_and_cancel(tasks: BackgroundTasks, work: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - any coroutine
        task: asyncio.Task[Any] = begin(tasks, work)
        task.cancel()
        return task

    async with far.client() as locks, locks.hold("a") as lock:
        with monkeypatch.context() as patches:
            patches.setattr(BackgroundTasks, "start", begin_and_cancel)
            await asyncio.sleep(16)
        await asyncio.sleep(300)
        lock.check()


async def test_a_program_that_cancels_all_tasks_and_releases_its_locks_is_not_warned(
    far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    async with far.client() as locks:
        async with locks.hold("a"):
            await asyncio.sleep(45)
            cancel_all_others()
        await asyncio.sleep(300)
        assert "cancelled" not in caplog.text


@pytest.mark.parametrize("seconds", [0, 100])
def test_the_end_of_a_loop_waits_for_no_heartbeats(far: Far, seconds: float) -> None:
    """`asyncio.run` cancels all tasks, and waits for each of these, though not for later ones."""

    async def main() -> None:
        await far.client().acquire("a")
        await asyncio.sleep(seconds)
        cancelled = asyncio.all_tasks() - {asyncio.current_task()}
        cancel_all_others()
        async with asyncio.timeout(1):
            await asyncio.gather(*cancelled, return_exceptions=True)

    run_in_virtual_time(main())


@pytest.mark.usefixtures("broken_log")
async def test_a_defect_in_the_planning_itself_is_survived(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the log raises, which would tell it."""

    def fail_once(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(HeartbeatSchedule, "due", fail_once)
    async with far.client() as locks, locks.hold("a") as lock:
        await asyncio.sleep(300)
        lock.check()
    assert HeartbeatSchedule.due is not fail_once, "it has failed"


# Hundreds of locks of one client at 50 ms a request: in virtual time.

LOCKS = 400
LEASE_SECONDS = 10


async def hold_hundreds(far: Far, *, most_at_once: int) -> tuple[float, int]:
    """Returns the largest gap between two renewals, as shares of a lease, and how many overlap."""
    random.seed(7)
    far.table.latency_seconds = 0.05
    writes: dict[str, list[float]] = {}
    under_way: list[int] = []

    def note(_name: str, request: dict[str, Any]) -> None:
        writes.setdefault(request["Key"]["pk"]["S"], []).append(virtual_loop().time())
        under_way.append(far.table.under_way)

    far.table.will(show(note))
    locks = far.client(lease=LEASE_SECONDS, max_workers=most_at_once)
    await asyncio.gather(*(locks.acquire(f"lock-{n}") for n in range(LOCKS)))
    under_way.clear()
    await asyncio.sleep(1.5 * LEASE_SECONDS)
    now = virtual_loop().time()
    await locks.close()
    gaps = [b - a for each in writes.values() for a, b in pairwise([*each, now])]
    return max(gaps) / LEASE_SECONDS, max(under_way)


@pytest.mark.parametrize(("most_at_once", "is_in_time"), [(32, True), (1, False)])
async def test_hundreds_of_locks_are_renewed_in_time_and_not_one_after_the_other(
    most_at_once: int, far: Far, *, is_in_time: bool
) -> None:
    largest_gap, under_way = await hold_hundreds(far, most_at_once=most_at_once)
    assert (largest_gap < 0.5) is is_in_time
    assert under_way <= most_at_once
