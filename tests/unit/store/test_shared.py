"""Shared locks: readers hold together, a writer holds alone, and no one overtakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlock.aws.executions import Delivery
from fairlock.errors import InvalidRequest
from fairlock.protocol.model import AcquireRequest, Grant
from fairlock.protocol.outcomes import Queued, Refusal
from fairlock.store.context import MixedLimits
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.wire.rules import DEFAULT_READERS
from tests.support import LOCK, FakeClock, acquire, release
from tests.support.memory_tables import MeteredTable, guard_request, item_bytes
from tests.support.store_bench import OTHER_RUN, RUN, Bench, workflow_heartbeat

READER: dict[str, Any] = {"shared": True, "limit": DEFAULT_READERS}


def take(bench: Bench, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
    return bench.ask(name, **fields)


def readers(bench: Bench, *names: str) -> None:
    for name in names:
        assert isinstance(take(bench, name, **READER), Grant)


def test_readers_hold_together_and_a_writer_does_not_come_in(bench: Bench) -> None:
    readers(bench, "anna", "ben", "carl")
    assert isinstance(take(bench, "writer"), Refusal)
    assert bench.holders() == ["anna", "ben", "carl"]


def test_beside_a_writer_no_one_comes_in(bench: Bench) -> None:
    take(bench, "writer")
    assert isinstance(take(bench, "reader", **READER), Refusal)
    assert isinstance(take(bench, "second", shared=False), Refusal)


def test_a_reader_that_names_no_limit_is_one_of_twenty(bench: Bench) -> None:
    names = [f"reader {number}" for number in range(DEFAULT_READERS)]
    readers(bench, *names)
    assert isinstance(take(bench, "one too many", **READER), Refusal)
    assert len(bench.holders()) == 20


def test_a_writer_that_waits_stops_newcomers_and_holds_when_those_inside_have_left(
    bench: Bench,
) -> None:
    """However many readers keep coming: it waits for those inside, and for no one else."""
    readers(bench, "anna", "ben")
    assert isinstance(bench.wait("writer"), Queued)
    for name in ("carl", "dora", "emil"):
        assert isinstance(bench.wait(name, **READER), Queued)
        assert isinstance(take(bench, f"impatient {name}", **READER), Refusal)
    bench.release("anna")
    assert bench.holders() == ["ben"]
    bench.release("ben")
    assert bench.holders() == ["writer"]


def test_when_the_writer_leaves_all_readers_up_to_the_next_writer_come_in(bench: Bench) -> None:
    take(bench, "writer")
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
    take(bench, "writer")
    for number in range(20):
        bench.wait(f"reader {number}", **READER)
    client, store = bench.counting()
    store.release(release("writer"))
    assert len(bench.holders()) == 20
    assert sorted(set(client.calls)) == ["query", "transact_write_items", "update_item"]
    assert client.calls.count("transact_write_items") == 20
    assert len(client.calls) == 23, "the release that is refused, and two pages of the queue"


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
    client, store = bench.counting()
    store.release(release("anna"))
    assert client.calls == ["update_item", "query", "update_item", "query"]
    client.calls.clear()
    store.release(release("ben"))
    assert client.calls == ["update_item", "query", "transact_write_items"]


def test_readers_and_a_writer_are_no_mixed_limits(bench: Bench) -> None:
    readers(bench, "anna")
    take(bench, "writer")
    bench.release("anna")
    take(bench, "writer")
    take(bench, "ben", **READER)
    assert bench.events == []


def test_a_plain_limit_beside_readers_is_and_so_are_two_limits_of_readers(bench: Bench) -> None:
    """The control: these callers share although they most probably do not mean to."""
    readers(bench, "anna")
    take(bench, "semaphore", limit=5)
    take(bench, "ben", shared=True, limit=50)
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
        take(bench, "anna", waits=waits)
    assert bench.state == before


def test_an_owner_that_holds_the_lock_alone_may_repeat_its_call_in_any_words(bench: Bench) -> None:
    first = take(bench, "anna")
    again = take(bench, "anna", **READER)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert (again.fencing_token, again.repeated) == (first.fencing_token, True)


def test_a_waiter_that_asked_to_share_may_wait_for_the_lock_alone(bench: Bench) -> None:
    """Nothing was granted yet: what its last call asks for counts."""
    take(bench, "writer")
    bench.wait("anna", **READER)
    bench.wait("anna")
    bench.wait("ben", **READER)
    bench.release("writer")
    assert bench.holders() == ["anna"]


def test_a_reader_takes_its_permit_again_after_a_redrive(bench: Bench) -> None:
    request = workflow_heartbeat("anna", **READER)
    assert request.acquisition.shared
    assert isinstance(bench.store().acquire(request.acquisition), Grant)
    bench.end()
    bench.reap()
    bench.reap(second=True)
    bench.redrive()
    readers(bench, "ben")
    assert bench.store().keep_alive(request) is KeepAliveOutcome.REACQUIRED
    assert [holder.shared for holder in bench.state.holders] == [True, True]


@pytest.mark.parametrize(("known", "inside"), [("two of five", 5), ("taken for all", 2)])
def test_a_writer_that_leaves_by_what_it_has_polled_lets_all_readers_in(
    bench: Bench, known: str, inside: int
) -> None:
    """A poll of a client reads the lock and its two oldest waiters."""
    take(bench, "writer")
    for number in range(5):
        bench.wait(f"reader{number}", **READER)
    seen = bench.store().read_lock(LOCK)
    assert (len(seen.waiters), seen.is_whole) == (2, False)
    control = replace(seen, is_whole=True)
    bench.store().release(release("writer"), seen=control if known == "taken for all" else seen)
    assert len(bench.holders()) == inside


def test_a_plain_lock_stores_not_a_byte_of_it(bench: Bench) -> None:
    take(bench, "writer")
    bench.wait("waiter")
    texts = [str(item) for item in bench.items("LOCK#")]
    assert not [text for text in texts if "shared" in text or "'s'" in text]


def test_twenty_readers_cost_three_units_a_write_and_a_hundred_fourteen(clock: FakeClock) -> None:
    units: dict[int, int] = {}
    for limit in (DEFAULT_READERS, 100):
        table = MeteredTable()
        bench = Bench(table, clock)
        for number in range(limit):
            before = table.write_units
            request = guard_request(number, limit)
            bench.client = table
            bench.store().acquire(
                AcquireRequest(
                    lock_name=request.lock_name,
                    owner_id=request.owner_id,
                    owner_name=request.owner_name,
                    execution_arn=request.execution_arn,
                    limit=limit,
                    shared=True,
                )
            )
            units[limit] = table.write_units - before
        item = table.inner.items["LOCK#customer/1234", "STATE"]
        assert item_bytes(item) < 14 * 1024
    assert units == {20: 3 + 1, 100: 14 + 1}, "and its claim"


def test_readers_behind_one_that_seemed_dead_and_renews_get_the_lock_too(bench: Bench) -> None:
    """The message reaches no one, its execution is over, and a late call of it finds the grant."""
    take(bench, "writer")
    for name, run in (("late", OTHER_RUN), ("anna", RUN), ("ben", RUN)):
        bench.wait(name, execution_arn=run, **READER)
    bench.end(OTHER_RUN)

    def wake(task_token: str, _answer: object) -> Delivery:
        if task_token != "late":
            return Delivery.DELIVERED
        assert isinstance(bench.wait("late", execution_arn=OTHER_RUN, **READER), Grant)
        return Delivery.GONE

    bench.workflows.wakes = wake
    bench.release("writer")
    assert (bench.holders(), bench.waiters()) == (["late", "anna", "ben"], [])
