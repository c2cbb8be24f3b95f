"""Shared locks: readers hold together, a writer holds alone, and no one overtakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlock.errors import InvalidRequest
from fairlock.store.context import MixedLimits
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing import ManualClock
from fairlock.wire.rules import DEFAULT_READERS
from tests.support import LOCK, acquire, release
from tests.support.memory_tables import MeteredTable, guard_request, item_bytes
from tests.support.store_bench import OTHER_RUN, RUN, Bench

READER: dict[str, Any] = {"shared": True, "limit": DEFAULT_READERS}


def readers(bench: Bench, *names: str) -> None:
    for name in names:
        bench.grant(name, **READER)


def test_when_the_writer_leaves_all_readers_up_to_the_next_writer_come_in(bench: Bench) -> None:
    bench.ask("writer")
    for name in ("anna", "ben", "carl"):
        bench.wait(name, **READER)
    bench.wait("second writer")
    bench.wait("late", **READER)
    bench.release("writer")
    assert bench.holders() == ["anna", "ben", "carl"]
    assert bench.waiters() == ["late", "second writer"]
    assert bench.pushed == ["anna", "ben", "carl"]
    assert all(holder.shared for holder in bench.state.holders)


def test_twenty_readers_behind_a_writer_are_a_transaction_each_in_its_release(bench: Bench) -> None:
    bench.ask("writer")
    for number in range(20):
        bench.wait(f"reader {number}", **READER)
    calls = bench.requests(lambda store: store.release(release("writer")))
    assert len(bench.holders()) == 20
    # The release that is refused, and two pages of the queue.
    assert sorted(calls) == [*["query"] * 2, *["transact_write_items"] * 20, "update_item"]


def test_each_reader_is_one_request_and_so_is_its_release(bench: Bench) -> None:
    client, store = bench.counting()
    for name in ("anna", "ben"):
        store.acquire(acquire(name, **READER))
    for name in ("anna", "ben"):
        store.release(release(name))
    store.acquire(acquire("writer"))
    store.release(release("writer"))
    assert client.calls == ["update_item"] * 6


def test_while_a_writer_waits_the_release_of_a_reader_is_four_requests(bench: Bench) -> None:
    """The plain release is refused, and the queue is read before the departure and after it."""
    readers(bench, "anna", "ben")
    bench.wait("writer")
    calls = bench.requests(lambda store: store.release(release("anna")))
    assert calls == ["update_item", "query", "update_item", "query"]
    calls = bench.requests(lambda store: store.release(release("ben")))
    assert calls == ["update_item", "query", "transact_write_items"]


def test_readers_and_a_writer_are_no_mixed_limits(bench: Bench) -> None:
    readers(bench, "anna")
    bench.ask("writer")
    bench.release("anna")
    bench.ask("writer")
    bench.ask("ben", **READER)
    assert bench.events == []


def test_a_plain_limit_beside_readers_is_and_so_are_two_limits_of_readers(bench: Bench) -> None:
    """The control: these callers share although they most probably do not mean to."""
    readers(bench, "anna")
    bench.ask("semaphore", limit=5)
    bench.ask("ben", shared=True, limit=50)
    found = [event for event in bench.events if isinstance(event, MixedLimits)]
    assert [(event.limit, event.holders_limits) for event in found] == [(5, (20,)), (50, (5, 20))]


def test_a_description_tells_who_shares(bench: Bench) -> None:
    readers(bench, "anna", "ben")
    bench.wait("writer")
    bench.wait("late", **READER)
    described = bench.store().describe(LOCK)
    assert described is not None
    assert [holder.shared for holder in described.holders] == [True, True]
    assert [waiter.shared for waiter in described.waiters.first] == [False, True]


@pytest.mark.parametrize("waits", [False, True])
def test_an_owner_that_shares_cannot_ask_for_the_lock_alone(bench: Bench, *, waits: bool) -> None:
    readers(bench, "anna", "ben")
    before = bench.state
    with pytest.raises(InvalidRequest, match=r"^shared: must be true: this owner_id shares the"):
        bench.ask("anna", waits=waits)
    assert bench.state == before


def test_an_owner_that_holds_the_lock_alone_may_repeat_its_call_in_any_words(bench: Bench) -> None:
    first = bench.grant("anna")
    assert bench.ask("anna", **READER) == replace(first, repeated=True)


def test_a_waiter_that_asked_to_share_may_wait_for_the_lock_alone(bench: Bench) -> None:
    """Nothing was granted yet: what its last call asks for counts."""
    bench.ask("writer")
    bench.wait("anna", **READER)
    bench.wait("anna")
    bench.wait("ben", **READER)
    bench.release("writer")
    assert bench.holders() == ["anna"]


def test_a_reader_takes_its_permit_again_after_a_redrive(bench: Bench) -> None:
    bench.grant("anna", execution_arn=RUN, **READER)
    bench.bury()
    bench.redrive()
    readers(bench, "ben")
    assert bench.beat("anna", **READER) is KeepAliveOutcome.REACQUIRED
    assert [holder.shared for holder in bench.state.holders] == [True, True]


@pytest.mark.parametrize(("known", "inside"), [("two of five", 5), ("taken for all", 2)])
def test_a_writer_that_leaves_by_what_it_has_polled_lets_all_readers_in(
    bench: Bench, known: str, inside: int
) -> None:
    """A poll of a client reads the lock and its two oldest waiters."""
    bench.ask("writer")
    for number in range(5):
        bench.wait(f"reader{number}", **READER)
    seen = bench.store().read_lock(LOCK)
    assert (len(seen.waiters), seen.is_whole) == (2, False)
    control = replace(seen, is_whole=True)
    bench.store().release(release("writer"), seen=control if known == "taken for all" else seen)
    assert len(bench.holders()) == inside


def test_a_plain_lock_stores_not_a_byte_of_it(bench: Bench) -> None:
    bench.ask("writer")
    bench.wait("waiter")
    texts = [str(item) for item in bench.items("LOCK#")]
    assert not [text for text in texts if "shared" in text or "'s'" in text]


def test_twenty_readers_cost_three_units_a_write_and_a_hundred_fourteen(clock: ManualClock) -> None:
    units: dict[int, int] = {}
    for limit in (DEFAULT_READERS, 100):
        table = MeteredTable()
        bench = Bench(table, clock)
        for number in range(limit):
            before = table.write_units
            bench.store().acquire(replace(guard_request(number, limit), shared=True))
            units[limit] = table.write_units - before
        item = table.inner.items["LOCK#customer/1234", "STATE"]
        assert item_bytes(item) < 14 * 1024
    assert units == {20: 3 + 1, 100: 14 + 1}, "and its claim"


def test_readers_behind_one_that_seemed_dead_and_renews_get_the_lock_too(bench: Bench) -> None:
    """The message reaches no one, its execution is over, and a late call of it finds the grant."""
    bench.ask("writer")
    for name, run in (("late", OTHER_RUN), ("anna", RUN), ("ben", RUN)):
        bench.wait(name, execution_arn=run, **READER)
    bench.end(OTHER_RUN)
    bench.gone("late", then=lambda: bench.wait("late", execution_arn=OTHER_RUN, **READER))
    bench.release("writer")
    assert (bench.holders(), bench.waiters()) == (["late", "anna", "ben"], [])
