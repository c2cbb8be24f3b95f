"""What other libraries' own tests ask of the same things, in our words: what holds, what differs.

| library, class | what its tests ask | here |
|---|---|---|
| Redisson, RReadWriteLock | readers together, a writer alone, in order | `test_shared.py` |
| | a writer that reads under its lock keeps it until its last unlock | below |
| | a reader that locks for writing hangs | differs: it is told at once |
| | unlock by another thread raises | differs: `release` returns False |
| Redisson, RRateLimiter | no more than the rate in any period, by any number of threads | below |
| | a try that is refused takes nothing; so does a wait that would be too long | below |
| | permits that were not used do not add up beyond the burst | below |
| | the rate is stored once for all | differs: each caller names it |
| | several permits in one call | not offered |
| Curator, LeaderLatch | one leads; when it closes or dies another one does, in order | below |
| | who waits may leave, and leaves nothing behind | below |
| | who lost its session does not lead, and may lead again | `test_leader.py` |
| | all participants are known, and which of them leads | below |
| ShedLock | one node runs the job, the others skip it and do not wait | below |
| | lockAtMostFor: the job of a dead node runs elsewhere after that | below |
| | lockAtLeastFor: a job that was short is not run again by a clock that is behind | below |
| | an exception of the job frees the lock | below |
| | KeepAlive extends the lock of a long job | below |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from fairlock import LockWaitTimeout, SlotTooLate
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, run_in_virtual_time

PERIOD = 60


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


def runs(locks: FakeLockClient, *, every: float = 3600) -> bool:
    """Whether this node runs the job of this period."""
    try:
        locks.pace("job", rate=(1, every), max_wait=0)
    except SlotTooLate:
        return False
    return True


# --- RReadWriteLock


def test_a_writer_that_reads_under_its_own_lock_keeps_it_until_its_outer_block_ends(
    locks: FakeLockClient,
) -> None:
    other = locks.another()
    with locks.hold("a"):
        with locks.hold("a", shared=True, reentrant=True):
            assert other.try_acquire("a", shared=True) is None
        assert other.try_acquire("a", shared=True) is None
    assert other.try_acquire("a", shared=True) is not None


def test_a_writer_that_leaves_lets_in_all_readers_in_front_of_the_next_writer(
    locks: FakeLockClient,
) -> None:
    writer = locks.acquire("a")
    writer.release()
    readers = [locks.another(f"{n}").acquire("a", shared=True, max_wait=0) for n in range(3)]
    assert locks.try_acquire("a") is None
    for reader in readers:
        assert reader.release()
        assert not locks.release("a", "an-owner-id-of-another")
    assert locks.try_acquire("a") is not None


# --- RRateLimiter


@pytest.mark.parametrize(("count_", "burst"), [(10, 1), (12, 3)])
def test_no_period_has_more_than_the_rate_and_the_burst_no_matter_who_asks(
    locks: FakeLockClient, count_: int, burst: int
) -> None:
    callers = [locks.another(f"{number}") for number in range(4)]
    begun: list[float] = []
    for number in range(40):
        callers[number % 4].pace("api", rate=(count_, PERIOD), burst=burst, max_wait=600)
        begun.append(locks.clock.monotonic())
    for at in begun:
        assert sum(at <= one < at + PERIOD for one in begun) <= count_ + burst


def test_a_try_that_is_refused_takes_nothing_and_neither_does_a_wait_that_is_too_long(
    locks: FakeLockClient,
) -> None:
    locks.pace("api", rate=(1, PERIOD))
    for max_wait in (0, 10) * 20:
        with pytest.raises(SlotTooLate):
            locks.pace("api", rate=(1, PERIOD), max_wait=max_wait)
    locks.clock.advance(PERIOD + 3)
    locks.pace("api", rate=(1, PERIOD), max_wait=0)


def test_slots_of_a_quiet_day_do_not_add_up(locks: FakeLockClient) -> None:
    locks.pace("api", rate=(1, PERIOD))
    locks.clock.advance(24 * 3600)
    assert [runs(locks, every=PERIOD) for _ in range(5)] == [True, False, False, False, False]


# --- LeaderLatch


def test_of_many_one_leads_and_each_gets_its_turn_when_the_one_before_has_closed() -> None:
    led: list[str] = []

    async def main() -> int:
        first = FakeAsyncLockClient(owner_name="0")
        fleet = [first, *(first.another(f"{number}") for number in range(1, 4))]
        leading, most = count(), [0]

        async def lead(locks: FakeAsyncLockClient, name: str) -> None:
            async def work(_lock: object, _stop: object) -> None:
                most[0] = max(most[0], next(leading) - len(led) + 1)
                seen = await locks.describe("latch")
                assert seen is not None
                assert [holder.owner_name for holder in seen.holders] == [name]
                await asyncio.sleep(30)
                led.append(name)

            await locks.lead("latch", work)

        tasks = []
        for number, locks in enumerate(fleet):
            tasks.append(asyncio.create_task(lead(locks, f"{number}")))
            await asyncio.sleep(1)
        seen = await first.describe("latch")
        assert seen is not None
        assert seen.waiters.count == 3
        await asyncio.gather(*tasks)
        return most[0]

    assert run_in_virtual_time(main()) == 1
    assert led == ["0", "1", "2", "3"]


def test_who_stops_waiting_for_the_lead_leaves_no_place_behind() -> None:
    async def main() -> int:
        first = FakeAsyncLockClient()
        second = first.another("second")
        leader = await first.acquire("latch")
        waits = asyncio.create_task(second.lead("latch", work))
        await asyncio.sleep(20)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        seen = await first.describe("latch")
        assert seen is not None
        await leader.release()
        return seen.waiters.count

    async def work(_lock: object, _stop: object) -> None:
        pytest.fail("it leads although it was cancelled")

    assert run_in_virtual_time(main()) == 0


# --- ShedLock


def test_one_node_runs_the_job_and_the_others_skip_it_without_waiting(
    locks: FakeLockClient,
) -> None:
    with locks.hold("job", max_wait=0):
        for _ in range(3):
            with pytest.raises(LockWaitTimeout):
                locks.another().acquire("job", max_wait=0)
    assert locks.clock.monotonic() == 0


def test_the_job_of_a_dead_node_runs_elsewhere_after_its_lease(locks: FakeLockClient) -> None:
    locks.another("dead", heartbeat_every=float("inf")).acquire("job", lease=60)
    locks.clock.advance(59)
    assert locks.try_acquire("job") is None
    locks.clock.advance(6)
    assert locks.try_acquire("job") is not None


def test_a_short_job_is_not_run_again_within_the_hour_by_a_node_whose_clock_is_behind(
    locks: FakeLockClient,
) -> None:
    """ShedLock keeps the lock for that long. A pace does it by AWS's time, without a lock."""
    assert runs(locks)
    for minutes in (1, 20, 38):
        locks.clock.advance(60 * minutes)
        assert not runs(locks.another(f"after {minutes} more"))
    locks.clock.advance(63)
    assert runs(locks.another("next hour"))


def test_an_error_of_the_job_frees_the_lock_at_once(locks: FakeLockClient) -> None:
    with pytest.raises(ZeroDivisionError), locks.hold("job"):
        1 / 0  # noqa: B018 - to fail
    assert locks.another().try_acquire("job") is not None


def test_a_long_job_keeps_its_lock_for_as_long_as_its_node_lives(locks: FakeLockClient) -> None:
    with locks.hold("job", lease=60) as lock:
        locks.clock.advance(6 * 3600)
        assert locks.another().try_acquire("job") is None
        lock.check()
