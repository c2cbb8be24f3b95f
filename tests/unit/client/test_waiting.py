"""Waiting: by reads, exact to the wait, and nothing is left behind."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

import pytest

from fairlock import Lock, LockClient, LockStoreUnavailable, LockWaitTimeout
from fairlock.clock import FRONT_END_MS
from fairlock.protocol.model import ForceReleaseRequest
from fairlock.protocol.schema import holder_attribute, token_attribute
from fairlock.testing import ManualClock
from tests.support import Operations, acquire, release, store_over
from tests.support.faulty_table import READS, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import Table


@pytest.fixture
def held(make_client: MakeClient) -> Lock:
    """Anna's, for ten minutes."""
    return make_client("anna", lease=600).acquire("a")


@pytest.fixture
def store(table: Table, clock: ManualClock) -> Operations:
    return store_over(table, clock)


def test_the_last_look_at_the_deadline_finds_the_lock(
    make_client: MakeClient, clock: ManualClock, held: Lock
) -> None:
    clock.at(60, held.release)
    make_client("ben").acquire("a", max_wait=60).check()


@pytest.mark.parametrize("waiter", ["of another client", "of the holder's client"])
def test_a_grant_between_the_last_look_and_leaving_goes_to_the_next_waiter(
    make_client: MakeClient, table: Table, clock: ManualClock, waiter: str
) -> None:
    holder = make_client("anna", lease=600)
    lock = holder.acquire("a")
    locks = holder if waiter == "of the holder's client" else make_client("ben")

    def release_after_the_last_look(name: str, _arguments: object) -> None:
        if name == "update_item" and clock.monotonic() == 10:
            table.before = None
            lock.release()

    table.before = release_after_the_last_look
    with pytest.raises(LockWaitTimeout):
        locks.acquire("a", max_wait=10)
    assert table.before is None
    assert table.traces("a") == []
    make_client("carl").acquire("a", max_wait=0).check()


def test_a_waiter_that_was_dropped_from_the_queue_enters_it_again_at_its_end(
    make_client: MakeClient, table: Table, clock: ManualClock, held: Lock
) -> None:
    seen = []

    def drop() -> None:
        for key in [key for key in table.memory.items if key[1].startswith("WAITER#")]:
            seen.append(key)
            del table.memory.items[key]

    clock.at(10, drop)
    clock.at(40, lambda: seen.extend(key for key in table.memory.items if key[1] != "STATE"))
    clock.at(50, held.release)
    make_client("ben").acquire("a", max_wait=60).check()
    assert len(seen) == 2
    assert seen[0] < seen[1]


def test_a_read_that_fails_costs_no_place(
    make_client: MakeClient, table: Table, clock: ManualClock, held: Lock
) -> None:
    for seconds, is_down in ((10, True), (30, False)):
        clock.at(seconds, lambda is_down=is_down: setattr(table, "is_down", is_down))  # type: ignore[misc]  # a default
    clock.at(40, held.release)
    make_client("ben").acquire("a", max_wait=60).check()
    assert table.requests.count("transact_write_items") == 2  # ben joined, anna handed over.


@pytest.mark.usefixtures("held")
def test_a_waiter_whose_first_request_was_lost_joins_behind_those_that_wait(
    make_client: MakeClient, table: Table, clock: ManualClock, store: Operations
) -> None:
    """A read would show it that others wait, and nothing of the place that it does not have."""
    store.acquire(acquire("carl", lock_name="a", waits=True, waiter_timeout_ms=600_000))
    table.is_down = True
    clock.at(3, lambda: setattr(table, "is_down", False))
    waiting: list[str] = []
    clock.at(15, lambda: waiting.extend(table.waiters("a")))
    with pytest.raises(LockWaitTimeout):
        make_client("ben").acquire("a", max_wait=20)
    assert waiting == ["carl", "ben"]


def test_a_permit_that_became_free_by_a_higher_limit_is_taken(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    """No one leaves, so no one hands over: the waiter sees it and asks."""
    make_client("anna", lease=600).acquire("a", limit=2)
    second = make_client("ben", lease=600).acquire("a", limit=2)

    def leave_without_a_successor() -> None:
        state = table.memory.items["LOCK#a", "STATE"]
        state.pop(holder_attribute(second.owner_id))
        state.pop(token_attribute(second.owner_id))
        state["held"] = {"N": "1"}

    clock.at(20, leave_without_a_successor)
    make_client("carl").acquire("a", limit=2, max_wait=60).check()
    assert clock.monotonic() < 31  # Two polls, one of which only looks for its place.


def test_a_holder_relies_on_a_lock_that_was_handed_over_no_longer_than_is_stored(
    make_client: MakeClient, table: Table, clock: ManualClock, held: Lock
) -> None:
    """It begins to count at its own look, which comes after the hand-over."""
    clock.at(100, held.release)
    got = make_client("ben").acquire("a", max_wait=200, lease=30)
    assert clock.monotonic() > 100
    [holder] = table.state("a").holders
    # The Date tells no fractions of a second; beyond them stays what front ends may differ by.
    assert clock.wall_ms() + got.remaining * 1000 <= holder.expires_at_ms - FRONT_END_MS


FOUND: Final = ("by a read", "by the loss of the place")
"""Until a waiter has waited for 15 s, it does not look whether it still has its place."""
IS_RENEWAL: Final = "#h_revision = #mine.#h_revision + :one"


@pytest.mark.parametrize("times", [(1, 12, 10), (100, 25, 30)], ids=FOUND)
def test_a_hand_over_that_was_found_late_is_renewed_before_it_is_returned(
    make_client: MakeClient,
    table: Table,
    clock: ManualClock,
    held: Lock,
    times: tuple[int, int, int],
) -> None:
    released, stall, lease = times

    def release_and_stall() -> None:
        held.release()
        clock.stall(stall)

    clock.at(released, release_and_stall)
    got = make_client("ben").acquire("a", max_wait=200, lease=lease)
    assert got.remaining == pytest.approx(lease * 0.98)
    assert table.state("a").holders[0].revision > 1


@pytest.mark.parametrize("times", [(1, 12, 10), (100, 100, 30)], ids=FOUND)
def test_a_hand_over_that_was_found_too_late_is_waited_for_again(
    make_client: MakeClient,
    table: Table,
    clock: ManualClock,
    held: Lock,
    store: Operations,
    *,
    times: tuple[int, int, int],
) -> None:
    released, stall, lease = times

    def release_and_stall_while_somebody_else_takes_it() -> None:
        held.release()
        clock.stall(stall)
        table.before = take_it

    def take_it(_name: str, arguments: dict[str, Any]) -> None:
        if IS_RENEWAL in arguments.get("UpdateExpression", ""):
            table.before = None
            by_force = {"requested_by": "olga", "reason": "it has stalled"}
            token = table.state("a").fencing_token
            store.force_release(ForceReleaseRequest(lock_name="a", fencing_token=token, **by_force))
            store.acquire(acquire("carl", lock_name="a", lease_ms=600_000))
            clock.at(20, lambda: store.release(release("carl", lock_name="a")))

    clock.at(released, release_and_stall_while_somebody_else_takes_it)
    got = make_client("ben").acquire("a", max_wait=300, lease=lease)
    got.check()
    assert got.fencing_token == held.fencing_token + 3


def test_a_late_hand_over_that_cannot_be_renewed_is_asked_for_until_it_can(
    make_client: MakeClient, table: Table, clock: ManualClock, held: Lock
) -> None:
    def renewals_fail(_name: str, arguments: dict[str, Any]) -> None:
        if IS_RENEWAL in arguments.get("UpdateExpression", ""):
            raise lost_reply()

    def release_and_stall() -> None:
        held.release()
        clock.stall(25)
        table.before = renewals_fail
        clock.at(3, lambda: setattr(table, "before", None))

    clock.at(100, release_and_stall)
    got = make_client("ben").acquire("a", max_wait=200, lease=30)
    assert got.remaining == pytest.approx(30 * 0.98)


# Ctrl-C while a client waits: if it is pressed again, the end of the client leaves the queue.


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


def interrupted_wait(table: Table, store: Operations, locks: LockClient, presses: int) -> None:
    store.acquire(acquire("holder", lock_name="a"))
    table.before = Impatient(presses)
    with pytest.raises(KeyboardInterrupt):
        locks.acquire("a", max_wait=30)
    table.before = None


def test_one_interrupt_leaves_the_queue_at_once_and_the_end_of_the_client_sends_nothing(
    make_client: MakeClient, table: Table, store: Operations
) -> None:
    locks = make_client("anna")
    interrupted_wait(table, store, locks, 1)
    assert (table.waiters("a"), table.state("a").contended) == ([], False)
    table.requests.clear()
    locks.close(release=True)
    assert table.requests == []


@pytest.mark.parametrize("presses", [2, 3])
def test_a_place_that_an_interrupt_kept_from_being_left_is_left_by_the_end_of_the_client(
    make_client: MakeClient, table: Table, store: Operations, presses: int
) -> None:
    """A client that did not remember it would be handed the lock."""
    locks = make_client("anna")
    interrupted_wait(table, store, locks, presses)
    assert table.waiters("a") == ["anna"]
    locks.close(release=True)
    assert table.waiters("a") == []
    store.release(release("holder", lock_name="a"))
    assert table.state("a").held == 0


def test_a_wait_that_failed_is_not_tried_again_at_the_end_of_the_client(
    make_client: MakeClient, table: Table
) -> None:
    """All was tried to undo it, and an outage should not delay the end of a program."""
    locks = make_client("anna")
    table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        locks.acquire("a", max_wait=0)
    table.is_down = False
    locks.close(release=True)
    assert table.requests == []


@pytest.mark.usefixtures("held")
def test_a_wait_in_another_thread_is_left_to_that_thread(
    make_client: MakeClient, table: Table
) -> None:
    locks = make_client("anna")
    found: list[list[object]] = []

    def look(name: str, _request: dict[str, Any]) -> None:
        if name == "transact_write_items" and not found:
            remembered = locks._services.unreleased  # noqa: SLF001 - what is remembered is the point
            asking = threading.Thread(target=lambda: found.append([*remembered.unsettled()]))
            asking.start()
            asking.join(30)

    table.before = look
    with suppress(LockWaitTimeout):
        locks.acquire("a", max_wait=0.2)
    assert found == [[]]
