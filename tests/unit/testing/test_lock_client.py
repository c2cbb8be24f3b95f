"""A fake client does what a `LockClient` does, in no time and without threads."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import fairlock.testing
from fairlock import ClientUnusable, InvalidRequest, Lock, LockStoreUnavailable, locked
from fairlock.testing import (
    FakeAsyncLockClient,
    FakeLockClient,
    ManualClock,
    run_in_virtual_time,
    used_by_locked_functions,
)
from tests.support import LambdaContextStub


@pytest.fixture
def locks() -> FakeLockClient:
    return FakeLockClient(lease=30)


def test_a_callback_is_called_while_time_passes_and_may_use_the_lock(locks: FakeLockClient) -> None:
    told: list[bool] = []
    lock = locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost.release()))
    locks.another().force_release("a", fencing_token=lock.fencing_token, reason="it hangs")
    lock.check()
    locks.clock.advance(30)
    assert told == [False]


def test_there_is_no_thread_and_the_end_of_the_client_releases_all_locks() -> None:
    before = set(threading.enumerate())
    with FakeLockClient() as locks:
        for name in "abc":
            locks.acquire(name)
        other = locks.another()
    assert [other.try_acquire(name) is not None for name in "abc"] == [True] * 3
    assert set(threading.enumerate()) <= before


def test_the_same_test_happens_in_the_same_way_each_time() -> None:
    def run() -> list[float]:
        locks = FakeLockClient(lease=30)
        lock = locks.acquire("a")
        moments = []
        for _ in range(5):
            locks.clock.advance(17)
            moments.append(lock.remaining)
        return moments

    assert run() == run()


def test_what_was_planned_happens_in_order_even_if_it_takes_time() -> None:
    clock, happened = ManualClock(), list[tuple[str, float]]()

    def note(name: str, seconds: float = 0) -> None:
        clock.wait(seconds)
        happened.append((name, clock.monotonic()))

    clock.at(20, lambda: note("second"))
    clock.at(10, lambda: note("first", 5))
    clock.advance(12)
    assert happened == [("first", 15)]
    clock.advance(5)
    assert happened == [("first", 15), ("second", 20)]


def test_a_transaction_that_writes_other_items_says_what_to_use(locks: FakeLockClient) -> None:
    item: Any = {"Put": {"TableName": "bills", "Item": {"id": {"S": "a"}}}}
    with locks.hold("a") as lock, locks.hold("b") as second:
        with pytest.raises(NotImplementedError, match="fairlock_table"):
            lock.transact_write([item])
        lock.transact_write([second.condition_check()])


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, None, "5"])
@pytest.mark.parametrize("pass_time", ["advance", "stall", "at"])
def test_time_does_not_go_back_and_is_always_a_number(pass_time: str, seconds: Any) -> None:  # noqa: ANN401 - anything
    """After a stall of NaN seconds no lease would ever be over, and each test of a loss in vain."""
    clock = ManualClock()
    plan = [lambda: None] if pass_time == "at" else []
    with pytest.raises(InvalidRequest, match="seconds: must be a number of seconds from 0"):
        getattr(clock, pass_time)(seconds, *plan)
    assert clock.monotonic() == 0


async def test_a_stall_of_the_event_loop_is_checked_too() -> None:
    with pytest.raises(InvalidRequest, match="seconds"):
        FakeAsyncLockClient().clock.stall(-1)


@pytest.mark.parametrize(
    ("environment", "refused"),
    [("AWS_Lambda_python3.13", True), ("", False), ("AWS_ECS_FARGATE", False)],
)
def test_a_fake_client_that_was_deployed_by_mistake_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch, environment: str, *, refused: bool
) -> None:
    """Two environments of a function would both hold the lock. Tests may name a function."""
    monkeypatch.setenv("AWS_EXECUTION_ENV", environment)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "billing")
    if refused:
        with pytest.raises(ClientUnusable, match="is for tests"):
            FakeLockClient()
    else:
        FakeLockClient().close()


# A fake asyncio client, in virtual time and in real time.


def test_in_a_real_loop_a_stall_loses_the_lock_at_once() -> None:
    async def scene() -> None:
        async with FakeAsyncLockClient() as locks:
            lock = await locks.acquire("a", lease=30)
            for seconds, is_lost in ((29, False), (2, True)):
                locks.clock.stall(seconds)
                assert lock.lost.is_set() is is_lost

    asyncio.run(scene())


def test_a_sleep_that_is_shorter_than_a_step_of_a_float_moves_the_time_too() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1_000_000)
        begun = loop.time()
        await asyncio.sleep(1e-12)
        assert loop.time() > begun

    run_in_virtual_time(scene(), longest=2_000_000)


def test_tasks_that_wait_for_nothing_are_an_error_and_do_not_hang() -> None:
    async def scene() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        run_in_virtual_time(scene())


def test_a_wait_for_nothing_under_a_lock_is_an_error_and_the_lock_is_released() -> None:
    """Its heartbeats are timers, and would go on for ever."""
    locks = FakeAsyncLockClient()

    async def scene() -> None:
        async with locks.hold("a") as lock:
            await lock.lost.wait()

    with pytest.raises(RuntimeError, match=r"^600 s of virtual time have passed, .* longest=…"):
        run_in_virtual_time(scene(), longest=600)
    run_in_virtual_time(locks.another().acquire("a", max_wait=0))


def test_virtual_time_ends_after_a_day_unless_told_otherwise() -> None:
    with pytest.raises(RuntimeError, match=r"^86400 s of virtual time have passed"):
        run_in_virtual_time(asyncio.sleep(86_401))
    run_in_virtual_time(asyncio.sleep(86_401), longest=timedelta(days=2))
    with pytest.raises(InvalidRequest, match=r"^longest: must be a number of seconds"):
        run_in_virtual_time(asyncio.sleep(1), longest=0)


@pytest.mark.parametrize("name", ["is_down", "loses_replies"])
def test_a_table_that_is_down_does_nothing_and_one_that_loses_replies_does_what_is_asked(
    locks: FakeLockClient, name: str
) -> None:
    lock = locks.acquire("a")
    setattr(locks.table, name, True)
    for call in (lock.release, partial(locks.describe, "a")):
        with pytest.raises(LockStoreUnavailable):
            call()
    setattr(locks.table, name, False)
    assert (locks.another().try_acquire("a") is not None) is (name == "loses_replies")


@pytest.mark.parametrize("name", ["is_donw", "lose_replies"])
def test_a_misspelled_attribute_of_the_table_is_refused(locks: FakeLockClient, name: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'; it has is_down, loses_replies, requests"):
        setattr(locks.table, name, True)
    with pytest.raises(AttributeError):
        _ = locks.table.describe_table


def test_what_is_planned_is_a_function_and_not_its_answer(locks: FakeLockClient) -> None:
    with pytest.raises(
        InvalidRequest, match=r"^action: must be a function without arguments: pass"
    ):
        locks.clock.at(60, locks.acquire("a").release())  # type: ignore[arg-type]  # the mistake


def test_a_class_is_no_client_for_locked_functions() -> None:
    with pytest.raises(InvalidRequest, match=r"^client: must be .*, such as FakeLockClient\(\)"):
        used_by_locked_functions(FakeLockClient)  # type: ignore[arg-type]  # the mistake


def test_a_block_of_locked_functions_that_never_begins_is_warned_of(locks: FakeLockClient) -> None:
    with pytest.warns(RuntimeWarning, match="write `with used_by_locked_functions"):
        used_by_locked_functions(locks)


@locked("report", if_taken="skip", otherwise="skipped")
async def report() -> str:
    return "written"


async def test_a_locked_coroutine_function_uses_the_table() -> None:
    async with FakeAsyncLockClient() as locks:
        with used_by_locked_functions(locks):
            async with locks.hold("report"):
                assert await report() == "skipped"
            assert await report() == "written"


def test_a_handler_that_runs_a_loop_of_its_own_each_time_is_called_twice_with_one_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the block a locked function has no client any more."""
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    locks = FakeAsyncLockClient()
    with used_by_locked_functions(locks):
        assert [asyncio.run(report()), asyncio.run(report())] == ["written", "written"]
    with pytest.raises(InvalidRequest, match="FAIRLOCK_TABLE_NAME"):
        asyncio.run(report())
    assert locks.table.requests.count("update_item") == 2 * 2


# The fixtures, and what `@locked` functions use beside them.


@locked("handler")
def handler(_event: object, _context: object, *, lock: Lock | None = None) -> float:
    assert lock is not None
    return lock.remaining


@locked("report")
def report_of_plugin(clock: ManualClock) -> str:
    clock.advance(600)
    return "written"


def test_a_locked_function_is_renewed_and_a_handler_has_the_lease_of_its_invocation(
    fairlock_locks: FakeLockClient, fairlock_clock: ManualClock
) -> None:
    assert handler({}, LambdaContextStub()) == pytest.approx(11, abs=0.01)
    assert report_of_plugin(fairlock_clock) == "written"
    assert fairlock_locks.table.requests.count("update_item") > 2 + 2


def test_an_asyncio_client_is_made_off_a_loop(fairlock_async_locks: FakeAsyncLockClient) -> None:
    assert fairlock_async_locks.table.requests == []


def test_without_moto_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)
    with pytest.raises(ImportError, match="from its repository with the extra 'testing'"):
        request.getfixturevalue("fairlock_table")


def test_names_are_imported_when_they_are_asked_for() -> None:
    assert all(hasattr(fairlock.testing, name) for name in fairlock.testing.__all__)
    with pytest.raises(AttributeError, match="FakeSemaphore"):
        _ = fairlock.testing.FakeSemaphore
