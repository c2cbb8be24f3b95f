"""Waiting: one try that writes, then reads only, exact to the wait, and nothing left behind."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from fairlock import LockClient, LockStoreUnavailable, LockWaitTimeout
from fairlock.client import acquisition
from fairlock.client.acquisition import Acquisition
from fairlock.client.lease_handle import LeaseHandle, Unreleased
from fairlock.clock import FRONT_END_MS
from fairlock.protocol.schema import holder_attribute, token_attribute
from tests.support import FakeClock, Operations, acquire, release, store_over
from tests.support.faulty_table import WRITES, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import EventfulClock, Table

JOINING = ["update_item", "query", "transact_write_items", "update_item"]
ASKING_AGAIN = ["update_item", "transact_write_items"]
"""Once in two minutes, to keep the place."""


def test_a_waiter_writes_when_it_joins_and_then_only_reads(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")
    table.log.clear()
    clock.at(300, lock.release)
    make_client("ben").acquire("a", max_wait=400)
    polls = len(clock.waits)
    if table.log[-1] == "update_item":
        table.log.pop()  # The read of its own place found that gone, so it asked, and was granted.
    assert table.log[:4] == JOINING
    written = [name for name in table.log[4:] if name in WRITES]
    handed_over = ["update_item", "transact_write_items"]
    assert written == ASKING_AGAIN * 2 + handed_over
    assert len(table.log) - 4 - len(written) <= polls + 1  # One query is of who hands over.
    assert polls < 140  # 45 for 25 s, until the longest poll of 5 s; then one in 3.75 s.


def test_a_waiter_that_writes_at_each_poll_would_be_noticed(
    make_client: MakeClient,
    table: Table,
    clock: EventfulClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acquisition.Acquisition, "_poll", acquisition.Acquisition._request_permit)  # noqa: SLF001 - the control
    lock = make_client("anna", lease=600).acquire("a")
    clock.at(30, lock.release)
    make_client("ben").acquire("a", max_wait=60)
    assert table.writes() > 20


def test_the_last_look_at_the_deadline_finds_the_lock(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")
    clock.at(60, lock.release)
    make_client("ben").acquire("a", max_wait=60).check()


def test_a_grant_between_the_last_look_and_leaving_goes_to_the_next_waiter(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")
    looks: list[float] = []

    def release_after_the_last_look(name: str, _arguments: object) -> None:
        if name == "update_item" and clock.now_ms == ends_ms and not looks:
            looks.append(1)
            lock.release()

    ends_ms = clock.now_ms + 10_000
    table.before = release_after_the_last_look
    with pytest.raises(LockWaitTimeout):
        make_client("ben").acquire("a", max_wait=10)
    assert looks
    assert (table.state("a").held, table.waiters("a")) == (0, [])
    make_client("carl").acquire("a", max_wait=0).check()


def test_an_interrupted_wait_leaves_nothing_behind(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    make_client("anna", lease=600).acquire("a")
    clock.at(5, interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_client("ben").acquire("a", max_wait=60)
    assert (table.waiters("a"), table.state("a").contended) == ([], False)


def test_a_waiter_that_was_dropped_from_the_queue_enters_it_again_at_its_end(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")
    seen = []

    def drop() -> None:
        for key in [key for key in table.memory.items if key[1].startswith("WAITER#")]:
            seen.append(key)
            del table.memory.items[key]

    clock.at(10, drop)
    clock.at(40, lambda: seen.extend(key for key in table.memory.items if key[1] != "STATE"))
    clock.at(50, lock.release)
    make_client("ben").acquire("a", max_wait=60).check()
    assert len(seen) == 2
    assert seen[0] < seen[1]


def test_a_read_that_fails_costs_no_place(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")

    def outage(error: Exception | None) -> None:
        table.outage = error

    clock.at(10, lambda: outage(lost_reply()))
    clock.at(30, lambda: outage(None))
    clock.at(40, lock.release)
    make_client("ben").acquire("a", max_wait=60).check()
    assert table.log.count("transact_write_items") == 2  # ben joined once, anna handed over once.


def test_a_permit_that_became_free_by_a_higher_limit_is_taken(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    """No one leaves, so no one hands over: the waiter sees it and asks."""
    make_client("anna", lease=600).acquire("a", limit=2)
    second = make_client("ben", lease=600).acquire("a", limit=2)
    began = clock.now_ms

    def leave_without_a_successor() -> None:
        state = table.memory.items["LOCK#a", "STATE"]
        state.pop(holder_attribute(second.owner_id))
        state.pop(token_attribute(second.owner_id))
        state["held"] = {"N": "1"}

    clock.at(20, leave_without_a_successor)
    make_client("carl").acquire("a", limit=2, max_wait=60).check()
    assert clock.now_ms - began < 31_000  # Two polls, one of which only looks for its place.


def test_a_holder_relies_on_a_lock_that_was_handed_over_no_longer_than_is_stored(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    """It begins to count at its own look, which comes after the hand-over."""
    lock = make_client("anna", lease=600).acquire("a")
    handed_over: list[int] = []

    def serve_waiter() -> None:
        lock.release()
        handed_over.append(clock.now_ms)

    clock.at(100, serve_waiter)
    got = make_client("ben").acquire("a", max_wait=200, lease=30)
    ends_ms = clock.now_ms + got.remaining * 1000
    assert clock.now_ms > handed_over[0]
    [holder] = table.state("a").holders
    # The Date tells no fractions of a second; beyond them stays what front ends may differ by.
    assert ends_ms <= holder.expires_at_ms - FRONT_END_MS


def test_a_hand_over_that_was_found_late_is_renewed_before_it_is_returned(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")

    def release_and_stall() -> None:
        lock.release()
        clock.advance(25)

    clock.at(100, release_and_stall)
    got = make_client("ben").acquire("a", max_wait=200, lease=30)
    assert got.remaining == pytest.approx(30 * 0.98)
    assert table.state("a").holders[0].revision > 1


def test_a_hand_over_that_was_found_too_late_is_waited_for_again(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")
    direct = store_over(table, clock)

    def release_and_stall_while_somebody_else_takes_it() -> None:
        lock.release()
        clock.advance(100)
        table.before = take_it

    def take_it(_name: str, arguments: dict[str, Any]) -> None:
        if "#h_revision = #mine.#h_revision + :one" in arguments.get("UpdateExpression", ""):
            table.before = None
            direct.acquire(acquire("carl", lock_name="a", lease_ms=600_000))
            clock.at(20, lambda: direct.release(release("carl", lock_name="a")))

    clock.at(100, release_and_stall_while_somebody_else_takes_it)
    got = make_client("ben").acquire("a", max_wait=300, lease=30)
    got.check()
    assert got.fencing_token == lock.fencing_token + 3


def test_a_late_hand_over_that_cannot_be_renewed_is_asked_for_until_it_can(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")

    def renewals_fail(_name: str, arguments: dict[str, Any]) -> None:
        if "#h_revision = #mine.#h_revision + :one" in arguments.get("UpdateExpression", ""):
            raise lost_reply()

    def release_and_stall() -> None:
        lock.release()
        clock.advance(25)
        table.before = renewals_fail
        clock.at(3, lambda: setattr(table, "before", None))

    clock.at(100, release_and_stall)
    got = make_client("ben").acquire("a", max_wait=200, lease=30)
    assert got.remaining == pytest.approx(30 * 0.98)


# Ctrl-C pressed twice while a client waits: the end of the client leaves the queue.

READS = ("query", "get_item")


@pytest.fixture
def store(table: Table, clock: FakeClock) -> Operations:
    return store_over(table, clock)


class Impatient:
    """Presses Ctrl-C in the first poll, and again before each of the next requests."""

    def __init__(self, presses: int) -> None:
        self.left = presses
        self.is_polling = self.has_joined = False

    def __call__(self, name: str, _request: dict[str, Any]) -> None:
        self.is_polling = self.is_polling or (self.has_joined and name in READS)
        self.has_joined = self.has_joined or name == "transact_write_items"
        if self.is_polling and self.left:
            self.left -= 1
            raise KeyboardInterrupt


def waiters(table: Table, name: str = "a") -> list[str]:
    items = table.memory.items
    return [sk for pk, sk in items if pk == f"LOCK#{name}" and sk.startswith("WAITER#")]


def interrupted_wait(table: Table, store: Operations, locks: LockClient, presses: int) -> None:
    store.acquire(acquire("holder", lock_name="a"))
    table.before = Impatient(presses)
    with suppress(KeyboardInterrupt):
        locks.acquire("a", max_wait=30)
    table.before = None


@pytest.mark.parametrize("presses", [2, 3])
def test_a_place_that_an_interrupt_kept_from_being_left_is_left_by_the_end_of_the_client(
    make_client: MakeClient, table: Table, store: Operations, presses: int
) -> None:
    locks = make_client("anna")
    interrupted_wait(table, store, locks, presses)
    assert len(waiters(table)) == 1
    locks.close(release=True)
    assert waiters(table) == []
    store.release(release("holder", lock_name="a"))
    assert table.state("a").held == 0


def test_a_client_that_does_not_remember_its_acquisitions_would_be_handed_the_lock(
    make_client: MakeClient, table: Table, store: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Unreleased.add

    def locks_only(self: Unreleased, unreleased: LeaseHandle | Acquisition) -> None:
        if isinstance(unreleased, LeaseHandle):
            add(self, unreleased)

    monkeypatch.setattr(Unreleased, "add", locks_only)
    locks = make_client("anna")
    interrupted_wait(table, store, locks, 2)
    locks.close(release=True)
    store.release(release("holder", lock_name="a"))
    assert [holder.owner_name for holder in table.state("a").holders] == ["anna"]


def test_one_interrupt_leaves_the_queue_at_once_and_the_end_of_the_client_sends_nothing(
    make_client: MakeClient, table: Table, store: Operations
) -> None:
    locks = make_client("anna")
    interrupted_wait(table, store, locks, 1)
    assert waiters(table) == []
    table.log.clear()
    locks.close(release=True)
    assert table.log == []


def test_a_wait_that_failed_is_not_tried_again_at_the_end_of_the_client(
    make_client: MakeClient, table: Table
) -> None:
    """All was tried to undo it, and an outage should not delay the end of a program."""
    locks = make_client("anna")
    table.outage = lost_reply()
    with pytest.raises(LockStoreUnavailable):
        locks.acquire("a", max_wait=0)
    table.outage = None
    table.log.clear()
    locks.close(release=True)
    assert table.log == []


def test_a_wait_in_another_thread_is_left_to_that_thread(
    make_client: MakeClient, table: Table, store: Operations
) -> None:
    store.acquire(acquire("holder", lock_name="a"))
    locks = make_client("anna")
    found: list[list[object]] = []

    def look(name: str, _request: dict[str, Any]) -> None:
        if name == "transact_write_items" and not found:
            remembered = locks._services.unreleased  # noqa: SLF001 - what is remembered is the point
            asking = threading.Thread(target=lambda: found.append([*remembered.unsettled()]))
            asking.start()
            asking.join(30)

    table.before = look
    with suppress(KeyboardInterrupt, Exception):
        locks.acquire("a", max_wait=0.2)
    assert found == [[]]
