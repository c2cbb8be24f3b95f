"""Releasing and joining by what a caller has seen: fewer requests, and wrong about nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairlock.aws.aws_clock import AwsClock
from fairlock.protocol.model import LockState, SeenLock
from fairlock.protocol.outcomes import Grant, NotHeld, Queued, Released
from fairlock.store import seen_queue
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, owner, release, store_over
from tests.support.faulty_table import FaultyTable
from tests.support.operations import Operations

HAND_OFF = ["transact_write_items"]
ASKING_FIRST = ["query", *HAND_OFF]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table() -> FaultyTable:
    return FaultyTable(MemoryTable())


@pytest.fixture
def store(table: FaultyTable, clock: FakeClock) -> Operations:
    return store_over(table, clock)


def in_queue(store: Operations, clock: FakeClock, *names: str) -> None:
    """The first holds, the others wait in this order."""
    for name in names:
        store.acquire(acquire(name, waits=True))
        clock.advance(0.001)


def state(store: Operations) -> LockState:
    return store.read_state(LOCK)


def test_a_holder_that_knows_the_next_waiter_hands_over_with_one_request(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben", "carl")
    seen = store.read_lock(LOCK)
    assert [waiter.request.owner_id for waiter in seen.waiters] == [owner("ben"), owner("carl")]
    table.calls.clear()
    assert isinstance(store.release(release("anna"), seen=seen), Released)
    assert table.calls == HAND_OFF
    assert [holder.owner_id for holder in state(store).holders] == [owner("ben")]
    assert state(store).last_released == owner("anna")


def test_a_holder_that_knows_that_others_wait_asks_for_them_at_once(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben")
    seen = SeenLock(state=state(store), date_ms=clock.now_ms)
    table.calls.clear()
    assert isinstance(store.release(release("anna"), seen=seen), Released)
    assert table.calls == ASKING_FIRST


def test_without_knowing_anything_it_takes_three(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben")
    table.calls.clear()
    store.release(release("anna"))
    assert table.calls == ["update_item", *ASKING_FIRST]


def test_a_waiter_that_has_given_up_since_is_passed_over(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben", "carl")
    seen = store.read_lock(LOCK)
    ticket = seen.waiters[0].entered_at_ms
    store.release(release("ben", waits=True, ticket=ticket))
    table.calls.clear()
    assert isinstance(store.release(release("anna"), seen=seen), Released)
    assert table.calls == [*HAND_OFF, *ASKING_FIRST]
    assert [holder.owner_id for holder in state(store).holders] == [owner("carl")]


@pytest.mark.parametrize(("judged", "next_one"), [(True, "carl"), (False, "ben")])
def test_a_waiter_that_was_seen_dead_is_handed_nothing(
    store: Operations,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    judged: bool,
    next_one: str,
) -> None:
    """It would hold for its whole lease."""
    if not judged:
        monkeypatch.setattr(seen_queue, "is_dead", lambda *_, **__: False)
    store.acquire(acquire("anna", lease_ms=3_600_000))
    for name in ("ben", "carl"):
        store.acquire(acquire(name, waits=True, poll_interval_ms=500, waiter_timeout_ms=300_000))
        clock.advance(400 if name == "ben" else 0)
    store.release(release("anna"), seen=store.read_lock(LOCK))
    assert [holder.owner_name for holder in state(store).holders] == [next_one]


def test_a_newcomer_that_no_one_had_seen_is_served_by_the_next_holder(
    store: Operations, clock: FakeClock
) -> None:
    """The hand-off needs no look at the queue, because no one else may come in beside its owner."""
    in_queue(store, clock, "anna", "ben")
    seen = store.read_lock(LOCK)
    store.acquire(acquire("carl", waits=True))
    store.release(release("anna"), seen=seen)
    assert [holder.owner_id for holder in state(store).holders] == [owner("ben")]
    store.release(release("ben"))
    assert [holder.owner_id for holder in state(store).holders] == [owner("carl")]


def test_a_holder_that_was_evicted_hands_over_nothing(store: Operations, clock: FakeClock) -> None:
    in_queue(store, clock, "anna", "ben", "carl")
    seen = store.read_lock(LOCK)
    clock.advance(70)
    assert isinstance(store.acquire(acquire("ben", waits=True)), Grant)
    assert isinstance(store.release(release("anna"), seen=seen), NotHeld)
    assert [holder.owner_id for holder in state(store).holders] == [owner("ben")]


def test_beside_other_holders_nothing_is_supposed(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    for name in ("anna", "ben", "carl"):
        store.acquire(acquire(name, limit=2, waits=True))
        clock.advance(0.001)
    seen = store.read_lock(LOCK)
    table.calls.clear()
    store.release(release("anna"), seen=seen)
    assert table.calls == ["update_item", *ASKING_FIRST]


def test_a_caller_that_knows_that_it_must_wait_joins_at_once(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben")
    seen = SeenLock(state=state(store), date_ms=clock.now_ms)
    table.calls.clear()
    assert isinstance(store.acquire(acquire("carl", waits=True), seen=seen), Queued)
    assert table.calls == ["query", "transact_write_items", "update_item"]


@pytest.mark.parametrize(
    ("edges", "first"), [(None, "update_item"), ((0, 0), "transact_write_items")]
)
def test_a_caller_whose_clock_was_set_learns_the_time_before_it_joins(
    store: Operations,
    table: FaultyTable,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    edges: tuple[int, int] | None,
    first: str,
) -> None:
    """By a clock that is ahead its place would come after all who join in the next minutes."""
    in_queue(store, clock, "anna", "ben")
    seen = store.read_lock(LOCK)
    monkeypatch.setattr(AwsClock, "edges_ms", lambda _: edges)
    table.calls.clear()
    assert isinstance(store.acquire(acquire("carl", waits=True), seen=seen), Queued)
    assert table.calls[0] == first


def test_a_caller_that_knows_the_whole_queue_does_not_count_it(
    store: Operations, table: FaultyTable, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben")
    seen = store.read_lock(LOCK)
    table.calls.clear()
    answer = store.acquire(acquire("carl", waits=True), seen=seen)
    assert isinstance(answer, Queued)
    assert answer.position == 2
    assert table.calls == ["transact_write_items", "update_item"]
    assert answer.seen is not None
    known = [waiter.request.owner_id for waiter in answer.seen.waiters]
    assert known == [owner("ben"), owner("carl")]
    stored = store.read_lock(LOCK).waiters
    assert [(w.key, w.expires_at_ms) for w in answer.seen.waiters] == [
        (w.key, w.expires_at_ms) for w in stored
    ]


def test_two_oldest_waiters_are_not_known_to_be_all(store: Operations, clock: FakeClock) -> None:
    in_queue(store, clock, "anna", "ben")
    assert store.read_lock(LOCK).is_whole
    in_queue(store, clock, "carl")
    assert not store.read_lock(LOCK).is_whole


def test_a_lock_that_has_become_free_since_is_granted_all_the_same(
    store: Operations, clock: FakeClock
) -> None:
    in_queue(store, clock, "anna", "ben")
    seen = store.read_lock(LOCK)
    for name in ("anna", "ben"):
        store.release(release(name))
    assert isinstance(store.acquire(acquire("carl", waits=True), seen=seen), Grant)


@pytest.mark.parametrize("change", [{"contended": False}, {"held": 0, "holders": ()}])
def test_what_was_seen_of_a_lock_without_a_queue_saves_nothing(
    store: Operations, table: FaultyTable, clock: FakeClock, change: dict[str, object]
) -> None:
    in_queue(store, clock, "anna", "ben")
    before = replace(state(store), **change)  # type: ignore[arg-type]  # fields of a state
    seen = SeenLock(state=before, is_whole=True)
    table.calls.clear()
    store.acquire(acquire("carl", waits=True), seen=seen)
    assert table.calls[0] == "update_item"
