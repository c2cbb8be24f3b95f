"""Waiters that are dead delay no hand-off and fail no release, however many a caller invents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.protocol.outcomes import Refusal, RefusalReason, Released
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import acquire_answer
from tests.support import LOCK, FakeClock, acquire, release
from tests.support.faulty_table import (
    TRANSACTIONS,
    FaultyTable,
    client_error,
    delay,
    fault,
    meanwhile,
)
from tests.support.store_bench import OTHER_RUN, RUN, Bench

MANY = 10_000
PAGE = 2_500
"""Waiters of about 400 bytes that fit into a page of 1 MB."""


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """Anna holds the lock."""
    bench = Bench(MemoryTable(page_size=PAGE), clock)
    bench.ask("anna", lease_ms=600_000)
    return bench


def invent(bench: Bench, number: int, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
    """As many waiters as if each had joined at once, and never asked again."""
    assert bench.ask("dead", waits=True, waiter_timeout_ms=1_000)
    for i in range(number - 1):
        bench.put_waiter(f"dead-{i}", seconds=600 if fields else 1, **fields)


def left(bench: Bench) -> int:
    return len(bench.client.waiters(LOCK))


def test_ten_thousand_waiters_that_stopped_asking_delay_a_hand_off_by_four_requests(
    bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    invent(bench, MANY)
    bench.clock.advance(10)
    bench.put_waiter("ben", seconds=60)
    client, store = bench.counting()
    assert isinstance(store.release(release("anna")), Released)
    assert bench.holders() == ["ben"]
    handed_over = client.calls.index("transact_write_items") + 1
    record_property(
        "figures",
        f"{MANY:,} dead waiters: handed over at request {handed_over}, "
        f"{len(client.calls)} requests in all, {MANY - left(bench):,} removed",
    )
    assert client.calls[:handed_over] == [
        "update_item",
        *["query"] * (1 + -(-(MANY + 1 - 10) // PAGE)),
        "transact_write_items",
    ]
    assert client.calls[handed_over:] == ["transact_write_items"] * 5
    assert left(bench) == MANY - 500


def test_with_no_one_alive_behind_them_the_lock_is_open_at_once(bench: Bench) -> None:
    invent(bench, MANY)
    bench.clock.advance(10)
    bench.release("anna")
    bench.grant("ben")


def test_a_few_dead_waiters_are_removed_before_the_lock_is_opened(bench: Bench) -> None:
    invent(bench, 30)
    bench.clock.advance(10)
    calls = bench.requests(lambda store: store.release(release("anna")))
    assert calls == ["update_item", "query", "query", "transact_write_items", "update_item"]
    assert left(bench) == 0


def test_a_waiter_that_asks_again_while_the_dead_are_removed_stays_and_is_served(
    bench: Bench,
) -> None:
    invent(bench, 30)
    ticket = int(bench.client.waiters(LOCK)[7]["entered_at_ms"]["N"])
    bench.clock.advance(10)
    asks = meanwhile(1, lambda: bench.queue("dead-3", ticket=ticket), of=TRANSACTIONS)
    client = FaultyTable(bench.client, asks)
    assert isinstance(bench.release("anna", over=client), Released)
    assert client.calls[-2:] == ["query", "transact_write_items"]
    assert client.calls.count("update_item") == 1  # No departure is tried that leaves it behind.
    assert (bench.holders(), left(bench)) == (["dead-3"], 0)


def test_a_waiter_that_was_passed_over_and_asks_again_is_served_first(bench: Bench) -> None:
    invent(bench, 1)
    bench.clock.advance(10)
    bench.put_waiter("ben", seconds=60)
    ticket = int(bench.client.waiters(LOCK)[0]["entered_at_ms"]["N"])
    asks = meanwhile(1, lambda: bench.ask("dead", waits=True, ticket=ticket), of=TRANSACTIONS)
    bench.release("anna", over=asks)
    assert bench.holders() == ["dead"]


def test_a_queue_that_there_was_no_time_to_read_to_its_end_is_not_closed(bench: Bench) -> None:
    invent(bench, 30)
    bench.clock.advance(10)
    bench.put_waiter("ben", seconds=60)
    bench.release("anna", over=delay(6, bench.clock, 1, of=("query",)))
    bench.refuse("carl")
    assert bench.holders() == ["ben"]


def test_a_removal_that_fails_fails_no_release(bench: Bench) -> None:
    invent(bench, 30)
    bench.clock.advance(10)
    broken = fault(client_error("InternalServerError", 500), 2)
    assert isinstance(bench.release("anna", over=broken), Released)
    bench.grant("ben")


def test_of_an_execution_that_is_over_one_push_is_enough(bench: Bench) -> None:
    invent(bench, 9, execution_arn=RUN, task_token="invented")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end(RUN)
    bench.gone("invented")
    bench.clock.advance(5)
    bench.release("anna")
    assert bench.pushed == ["invented", "ben"]
    assert (bench.holders(), left(bench)) == (["ben"], 0)


def test_a_waiter_without_an_execution_that_cannot_be_told_is_out_with_its_permit(
    bench: Bench,
) -> None:
    bench.wait("gone", execution_arn=None)
    bench.wait("ben")
    bench.gone("gone")
    bench.release("anna")
    assert (bench.holders(), left(bench)) == (["ben"], 0)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"task_token": "t", "execution_arn": RUN, "waiter_timeout_ms": 360_000}, 360),
        ({"task_token": "t", "execution_arn": RUN}, 12 * 3600 + 60),
        ({}, 12),
    ],
)
def test_how_long_a_waiter_keeps_its_place_without_asking(
    bench: Bench, fields: dict[str, Any], seconds: int
) -> None:
    bench.ask("ben", waits=True, **fields)
    (item,) = bench.client.waiters(LOCK)
    assert int(item["expires_at_ms"]["N"]) == bench.clock.now_ms + seconds * 1000
    assert int(item["expiry_time"]["N"]) == bench.clock.now_ms // 1000 + seconds + 3600


def test_behind_a_thousand_waiters_no_one_joins_and_nothing_is_written(bench: Bench) -> None:
    invent(bench, 1_000)
    before = dict(bench.client.items)
    client, store = bench.counting()
    answer = store.acquire(acquire("ben", waits=True))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.QUEUE_FULL
    assert acquire_answer(answer)["detail"].startswith("the queue of this lock is full (1,000")
    assert client.calls == ["update_item", "query"]
    assert bench.client.items == before


def test_one_fewer_and_it_joins_at_the_end_with_the_right_position(bench: Bench) -> None:
    invent(bench, 999)
    assert bench.queue("~last").position == 1_000


def test_who_waits_already_is_not_refused_by_a_full_queue(bench: Bench) -> None:
    first = bench.queue("ben", waiter_timeout_ms=60_000)
    bench.clock.advance(1)
    invent(bench, 1_000)
    for ticket in (first.entered_at_ms, None):
        assert bench.queue("ben", ticket=ticket).position == 1


def test_dead_waiters_fill_no_queue_and_count_in_no_position(bench: Bench) -> None:
    invent(bench, 2_000)
    bench.clock.advance(10)
    assert bench.queue("ben").position == 1
