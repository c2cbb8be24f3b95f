"""`shared=True` of the clients: who is beside whom, and what a reader may not do."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import InvalidRequest, LockWaitTimeout, locked
from fairlock.client.base_lock import BaseLock
from fairlock.guarded import GuardedWrites
from fairlock.store import acquire, hand_off
from fairlock.testing import FakeAsyncLockClient, FakeLockClient
from tests.support import TABLE
from tests.unit.client.conftest import MakeClient

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PUT: Any = {"Put": {"TableName": TABLE, "Item": {"pk": {"S": "report"}, "sk": {"S": "7"}}}}
ALONE = r"^shared: must be False for guarded writes: others hold this lock as well"


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


def test_readers_hold_together_and_a_writer_waits_for_all_of_them(locks: FakeLockClient) -> None:
    first, second = locks.acquire("a", shared=True), locks.another().acquire("a", shared=True)
    assert (first.shared, second.shared) == (True, True)
    assert locks.try_acquire("a") is None
    locks.clock.at(5, first.release)
    locks.clock.at(10, second.release)
    began = locks.clock.monotonic()
    with locks.hold("a", max_wait=60) as writer:
        assert not writer.shared
        assert locks.clock.monotonic() - began >= 10
        assert locks.another().try_acquire("a", shared=True) is None


def test_a_reader_that_comes_while_a_writer_waits_does_not_overtake_it(
    locks: FakeLockClient,
) -> None:
    inside, newcomer, told = locks.acquire("a", shared=True), locks.another(), list[Any]()
    locks.clock.at(3, lambda: told.append(newcomer.try_acquire("a", shared=True)))
    locks.clock.at(6, inside.release)
    with locks.another("writer").hold("a", max_wait=60):
        assert told == [None]


READERS = 20


def seconds_behind_dead_readers(locks: FakeLockClient) -> float:
    for number in range(READERS):
        reader = locks.another(f"reader {number}", heartbeat_every=math.inf)
        reader.acquire("a", shared=True, lease=30)
    died = locks.clock.monotonic()
    locks.another("writer").acquire("a", max_wait=120, lease=30)
    return locks.clock.monotonic() - died


def test_a_writer_behind_dead_readers_has_the_lock_as_soon_as_behind_one(
    locks: FakeLockClient,
) -> None:
    assert seconds_behind_dead_readers(locks) <= 30 + 5


def test_with_a_pause_after_each_eviction_it_would_wait_longer(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hand_over(*args: Any, **more: Any) -> bool:  # noqa: ANN401 - as the real one
        hand_off.hand_over(*args, **more)
        return False

    monkeypatch.setattr(acquire, "hand_over", hand_over)
    assert seconds_behind_dead_readers(locks) > 30 + 5


UPGRADE = r"inside a `with` that shares it, and a shared lock cannot become exclusive; end that"
AGAIN = r"inside a `with` that shares it, and would wait behind a writer that waits for it; go on"
WAYS: dict[str, Callable[..., object]] = {
    "hold": lambda locks, **how: locks.hold("a", **how).__enter__(),
    "acquire": lambda locks, **how: locks.acquire("a", **how),
    "locked": lambda locks, **how: locked("a", client=locks, **how)(print)(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("shared", "told"), [(False, UPGRADE), (True, AGAIN)])
def test_a_wait_inside_a_shared_block_is_refused_at_once_and_nothing_is_sent(
    locks: FakeLockClient, way: str, told: str, *, shared: bool
) -> None:
    with locks.hold("a", shared=True):
        before = (locks.clock.monotonic(), len(locks.table.requests))
        with pytest.raises(InvalidRequest, match=told):
            WAYS[way](locks, shared=shared)
        assert (locks.clock.monotonic(), len(locks.table.requests)) == before


def test_without_that_rule_a_reader_that_reads_again_waits_for_a_writer_that_waits_for_it(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    rule = "fairlock.client.entered_locks.EnteredLocks.require_that_others_can_release"
    monkeypatch.setattr(rule, lambda *_: None)
    writer = locks.another("writer")
    with locks.hold("a", shared=True):
        # A waiter that is in the queue for as long as the reader asks.
        monkeypatch.setattr("fairlock.client.acquisition.Acquisition.leave", lambda _: None)
        with pytest.raises(LockWaitTimeout):
            writer.acquire("a", max_wait=1)
        began = locks.clock.monotonic()
        locks.acquire("a", shared=True, max_wait=60).release()
        assert locks.clock.monotonic() - began > 5, "until the waiter counts as dead"


def test_a_reader_goes_on_under_its_lock_if_that_is_reentrant(locks: FakeLockClient) -> None:
    with (
        locks.hold("a", shared=True) as outer,
        locks.hold("a", shared=True, reentrant=True) as inner,
    ):
        assert inner is outer


def test_a_writer_may_read_under_its_own_lock_and_a_reader_may_not_write(
    locks: FakeLockClient,
) -> None:
    with locks.hold("a") as outer, locks.hold("a", shared=True, reentrant=True) as inner:
        assert inner is outer
    with (
        locks.hold("a", shared=True),
        pytest.raises(InvalidRequest, match=r"^shared: must be True here: the outer block shares"),
        locks.hold("a", reentrant=True),
    ):
        pass


GUARDED: dict[str, Callable[[Any], object]] = {
    "transact_write": lambda lock: lock.transact_write([PUT]),
    "transact_write and release": lambda lock: lock.transact_write([PUT], release=True),
    "condition_check": lambda lock: lock.condition_check(),
    "fence_condition": lambda lock: lock.fence_condition(),
}


@pytest.mark.parametrize("way", GUARDED)
def test_a_reader_makes_no_guarded_writes(locks: FakeLockClient, way: str) -> None:
    with locks.hold("a", shared=True) as lock:
        sent = len(locks.table.requests)
        with pytest.raises(InvalidRequest, match=ALONE):
            GUARDED[way](lock)
        assert len(locks.table.requests) == sent
        lock.check()


def test_without_that_rule_it_writes_beside_other_readers(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr(BaseLock, "shared", False)
    with locks.hold("a", shared=True) as lock, locks.another().hold("a", shared=True):
        assert lock.fence_condition().fencing_token == lock.fencing_token


@pytest.mark.parametrize("release", [False, True])
def test_what_a_reader_passes_on_makes_no_guarded_writes_either(
    dynamodb: DynamoDBClient,
    make_client: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    release: bool,
) -> None:
    """Another function has its owner_id and its token, and no lock object that knows."""
    lock = make_client(client=dynamodb).acquire("a", shared=True)
    writes = GuardedWrites(
        dynamodb,
        table_name=TABLE,
        lock_name="a",
        owner_id=lock.owner_id,
        fencing_token=lock.fencing_token,
    )
    with pytest.raises(InvalidRequest, match=ALONE):
        writes.transact_write([PUT], release=release)
    assert "Item" not in dynamodb.get_item(TableName=TABLE, Key=PUT["Put"]["Item"])
    # The control: a condition that is always true.
    always = "(attribute_exists(#guarded.#h_shared) OR attribute_not_exists(#guarded.#h_shared))"
    for module in ("conditions", "guarded_table"):
        monkeypatch.setattr(f"fairlock.guarded.{module}.HOLDS_ALONE", always)
    writes.transact_write([PUT], release=release)
    assert "Item" in dynamodb.get_item(TableName=TABLE, Key=PUT["Put"]["Item"])
    lock.release()


def test_an_adopted_lock_is_shared_as_it_was_acquired(locks: FakeLockClient) -> None:
    lock = locks.acquire("a", shared=True)
    adopted = locks.another().adopt("a", lock.owner_id)
    assert adopted.shared
    with pytest.raises(InvalidRequest, match=ALONE):
        adopted.condition_check()


def test_shared_is_true_or_false(locks: FakeLockClient) -> None:
    with pytest.raises(InvalidRequest, match=r"^shared: must be True or False"):
        locks.acquire("a", shared="yes")  # type: ignore[arg-type]  # the mistake
    assert locks.table.requests == []


def test_a_locked_function_may_share(locks: FakeLockClient) -> None:
    @locked("a", client=locks, shared=True, if_taken="skip")
    def read() -> str:
        return "read"

    with locks.another().hold("a", shared=True):
        assert read() == "read"
    with locks.another().hold("a"):
        assert read() is None


def test_tasks_share_and_one_of_them_may_not_upgrade() -> None:
    async def use() -> None:
        async with FakeAsyncLockClient() as locks, locks.hold("a", shared=True) as lock:
            other = await locks.another().acquire("a", shared=True)
            assert (lock.shared, other.shared) == (True, True)
            assert await locks.another().try_acquire("a") is None
            with pytest.raises(InvalidRequest, match=UPGRADE):
                await locks.acquire("a")
            with pytest.raises(InvalidRequest, match=ALONE):
                lock.condition_check()
            with pytest.raises(InvalidRequest, match=ALONE):
                await lock.transact_write([PUT])
            await other.release()

    asyncio.run(use())


def test_the_limit_of_readers_is_twenty_or_what_they_say(locks: FakeLockClient) -> None:
    for shared, limit, most in ((True, 1, 20), (True, 3, 3), (False, 1, 1)):
        name = f"{shared} {limit}"
        others = [locks.another() for _ in range(21)]
        taken = [other.try_acquire(name, shared=shared, limit=limit) for other in others]
        assert len([lock for lock in taken if lock]) == most
    assert math.isfinite(locks.clock.monotonic())


def abandoned(locks: FakeLockClient, **options: Any) -> FakeLockClient:  # noqa: ANN401 - of `acquire`
    """A client that holds the lock, sends no heartbeats, and is never heard of again."""
    gone = locks.another("gone", heartbeat_every=math.inf)
    gone.kept = gone.acquire("a", lease=30, **options)  # type: ignore[attr-defined]  # lest it is dropped
    return gone


def test_readers_come_in_after_the_lease_of_a_writer_that_died(locks: FakeLockClient) -> None:
    writer = abandoned(locks)
    began = locks.clock.monotonic()
    with locks.hold("a", shared=True), locks.another().hold("a", shared=True):
        assert 30 < locks.clock.monotonic() - began <= 35
    writer.close()


def test_a_writer_comes_in_after_the_lease_of_a_reader_that_died(locks: FakeLockClient) -> None:
    """Another reader came and went meanwhile: that made the lease of the dead one no longer."""
    reader = abandoned(locks, shared=True)
    began = locks.clock.monotonic()
    locks.clock.advance(20)
    with locks.hold("a", shared=True):
        locks.clock.advance(5)
    with locks.hold("a"):
        assert 30 < locks.clock.monotonic() - began <= 35
    reader.close()


def test_readers_are_renewed_for_as_long_as_they_read(locks: FakeLockClient) -> None:
    readers = [locks.another().acquire("a", shared=True, lease=30) for _ in range(20)]
    locks.clock.advance(300)
    for reader in readers:
        reader.check()
    assert locks.try_acquire("a") is None


def test_a_reader_that_is_released_by_force_leaves_the_others(locks: FakeLockClient) -> None:
    stays, goes = (locks.another().acquire("a", shared=True) for _ in range(2))
    locks.force_release("a", fencing_token=goes.fencing_token, reason="it hangs")
    locks.clock.advance(25)
    assert goes.lost.is_set()
    stays.check()
    assert locks.try_acquire("a") is None
