"""One execution, or a caller that names one, cannot block a name for long."""

from __future__ import annotations

import pytest

from fairlock.aws.executions import Delivery
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.protocol.waiters import MOST_PAGES_READ, MOST_PLACES_OF_AN_EXECUTION
from fairlock.store.administration import empty_queue
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire import rules
from tests.support import LOCK, FakeClock, acquire
from tests.support.faulty_table import meanwhile
from tests.support.memory_tables import item_bytes
from tests.support.store_bench import OTHER_RUN, RUN, Bench

LONGEST_LEASE_MS = 12 * 3_600_000
SOON_SECONDS = 70


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    bench = Bench(MemoryTable(), clock)
    bench.ask("holder", lease_ms=LONGEST_LEASE_MS)
    return bench


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
    bench.release("holder")
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
    """So many ghosts wait behind the holder; their execution runs, and none is there to be told."""
    bench.workflows.wakes = Delivery.GONE
    for each in range(number):
        bench.wait(f"ghost-{each}", lease_ms=LONGEST_LEASE_MS)


@pytest.mark.parametrize("emptied", [True, False])
def test_an_emptied_queue_hands_the_lock_to_no_ghost(bench: Bench, *, emptied: bool) -> None:
    """Else it goes from ghost to ghost."""
    hostage(bench)
    if emptied:
        assert empty_queue(bench.store().context, LOCK) == 30
    assert bench.holders() == ["holder"]
    bench.release("holder")
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
    bench.release("holder")
    assert bench.holders() == ["workflow"]


@pytest.mark.parametrize(
    ("number", "holds", "waits"),
    [(0, "ghost-0", []), (1, "ghost-0", ["late"]), (2, "late", []), (3, "late", [])],
)
def test_who_joins_or_leaves_while_a_queue_is_emptied_is_neither_lost_nor_doubled(
    bench: Bench, number: int, holds: str, waits: list[str]
) -> None:
    """In front of each request the holder releases, and one more joins."""
    hostage(bench, 3)
    bench.workflows.wakes = Delivery.DELIVERED

    def others() -> None:
        bench.release("holder")
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
