"""Ctrl-C pressed twice while a client waits: the end of the client leaves the queue."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from fairlock import LockClient, LockStoreUnavailable
from fairlock.client.acquisition import Acquisition
from fairlock.client.lease_handle import LeaseHandle, Unreleased
from tests.support import FakeClock, acquire, release, store_over
from tests.support.faults import lost_reply
from tests.support.operations import Operations
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import Table

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
