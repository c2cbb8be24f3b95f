"""Waiters that are dead or invented delay no hand-off, and block no name for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.aws.executions import Delivery
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason, Released
from fairlock.protocol.waiters import MOST_PAGES_READ, MOST_PLACES_OF_AN_EXECUTION
from fairlock.store.administration import empty_queue
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire import rules
from fairlock.wire.answers import acquire_answer
from tests.support import LOCK, acquire, release
from tests.support.faulty_table import (
    TRANSACTIONS,
    FaultyTable,
    client_error,
    delay,
    fault,
    meanwhile,
)
from tests.support.memory_tables import item_bytes
from tests.support.store_bench import OTHER_RUN, RUN, Bench

LONGEST_LEASE_MS = 12 * 3_600_000
MANY = 10_000
PAGE = 2_500
"""Waiters of about 400 bytes that fit into a page of 1 MB."""


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    """Anna holds the lock."""
    bench = Bench(MemoryTable(page_size=PAGE), clock)
    bench.ask("anna", lease_ms=LONGEST_LEASE_MS)
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
    assert int(item["expires_at_ms"]["N"]) == bench.clock.wall_ms() + seconds * 1000
    assert int(item["expiry_time"]["N"]) == bench.clock.wall_ms() // 1000 + seconds + 3600


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


# One execution, or a caller that names one, cannot block a name for long.

SOON_SECONDS = 70


def test_an_execution_has_a_hundred_places_in_a_queue_at_most(bench: Bench) -> None:
    answers = [bench.wait(f"ghost-{n}") for n in range(MOST_PLACES_OF_AN_EXECUTION + 1)]
    assert all(isinstance(answer, Queued) for answer in answers[:-1])
    assert isinstance(answers[-1], Refusal)
    assert answers[-1].reason is RefusalReason.QUEUE_FULL
    assert isinstance(bench.wait("ben", execution_arn=OTHER_RUN), Queued)
    bench.queue("carl")


def test_who_keeps_its_place_is_not_counted_against_itself(bench: Bench) -> None:
    for number in range(MOST_PLACES_OF_AN_EXECUTION):
        bench.wait(f"ghost-{number}")
    assert isinstance(bench.wait("ghost-7"), Queued)


def test_a_grant_of_which_no_one_was_told_ends_soon_whatever_its_lease(bench: Bench) -> None:
    """Its execution runs."""
    bench.wait("ghost", lease_ms=LONGEST_LEASE_MS)
    bench.gone("ghost")
    bench.release("anna")
    assert bench.holders() == ["ghost"]
    bench.clock.advance(SOON_SECONDS)
    bench.grant("ben")


PAGE_BYTES = 1_000_000


def fill(bench: Bench, number: int = 1_000) -> None:
    """The largest waiters that a caller can make, and as many in a page as DynamoDB would read."""
    bench.wait("first")
    fat = {
        "owner_name": "o" * rules.LONGEST_OWNER_NAME,
        "data": f'{{"fat":"{"d" * (rules.LARGEST_DATA_BYTES - 10)}"}}',
        "execution_arn": "a" * rules.LONGEST_EXECUTION_ARN_BYTES,
        "task_token": "t" * rules.LONGEST_TASK_TOKEN,
    }
    for each in range(number):
        item = bench.put_waiter(f"fat-{each}", **fat)
    bench.client.page_size = PAGE_BYTES // item_bytes(item)


def test_however_large_its_waiters_are_a_queue_costs_a_caller_two_pages(bench: Bench) -> None:
    """Of 256 read units each."""
    fill(bench)
    client, store = bench.counting()
    answer = store.acquire(acquire("ben", waits=True))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.QUEUE_FULL
    assert client.calls.count("query") == MOST_PAGES_READ == 2


def test_a_queue_too_long_to_be_read_becomes_shorter_with_each_call_once_they_are_dead(
    bench: Bench,
) -> None:
    fill(bench, 500)
    bench.clock.advance(120)
    answers = [bench.ask("ben", waits=True) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Refusal, Refusal, Queued]


def hostage(bench: Bench, number: int = 30) -> None:
    """So many ghosts wait behind Anna; their execution runs, and none is there to be told."""
    bench.workflows.wakes = Delivery.GONE
    for each in range(number):
        bench.wait(f"ghost-{each}", lease_ms=LONGEST_LEASE_MS)


@pytest.mark.parametrize("emptied", [True, False])
def test_an_emptied_queue_hands_the_lock_to_no_ghost(bench: Bench, *, emptied: bool) -> None:
    """Else it goes from ghost to ghost."""
    hostage(bench)
    if emptied:
        assert empty_queue(bench.store().context, LOCK) == 30
    assert bench.holders() == ["anna"]
    bench.release("anna")
    assert bench.holders() == ([] if emptied else ["ghost-0"])
    bench.clock.advance(SOON_SECONDS)
    bench.ask("ben")
    assert bench.holders() == (["ben"] if emptied else ["ghost-1"])


def test_who_lives_comes_back_a_workflow_to_its_own_place(bench: Bench) -> None:
    bench.wait("workflow", execution_arn=OTHER_RUN)
    ticket = bench.queue("poller")
    hostage(bench)
    assert empty_queue(bench.store().context, LOCK) == 32
    bench.queue("poller", ticket=ticket.entered_at_ms)
    bench.wait("workflow", execution_arn=OTHER_RUN)
    assert bench.waiters() == ["poller", "workflow"]
    bench.workflows.wakes = Delivery.DELIVERED
    bench.release("anna")
    assert bench.holders() == ["workflow"]


@pytest.mark.parametrize(
    ("number", "holds", "waits"),
    [(0, "ghost-0", []), (1, "ghost-0", ["late"]), (2, "late", []), (3, "late", [])],
)
def test_who_joins_or_leaves_while_a_queue_is_emptied_is_neither_lost_nor_doubled(
    bench: Bench, number: int, holds: str, waits: list[str]
) -> None:
    """In front of each request Anna releases, and one more joins."""
    hostage(bench, 3)
    bench.workflows.wakes = Delivery.DELIVERED

    def others() -> None:
        bench.release("anna")
        bench.ask("late", waits=True)

    empty_queue(bench.store(meanwhile(number + 1, others)).context, LOCK)
    state = bench.state
    assert (bench.holders(), bench.waiters()) == ([holds], waits)
    assert (state.held, state.contended) == (1, bool(waits))


def test_a_full_queue_is_emptied_by_a_transaction_for_each_hundred(bench: Bench) -> None:
    for number in range(2):
        for each in range(MOST_PLACES_OF_AN_EXECUTION):
            run = f"{RUN}-{number}"
            bench.wait(f"ghost-{number}-{each}", execution_arn=run)
    client, store = bench.counting()
    assert empty_queue(store.context, LOCK) == 200
    transactions = ["transact_write_items"] * 2
    assert client.calls == ["query", *transactions, "get_item", "query", "update_item"]
