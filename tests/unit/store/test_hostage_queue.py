"""One execution, or a caller that names one, cannot block a name for long."""

from __future__ import annotations

import pytest

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.retry import RetryBudget
from fairlock.protocol import grants
from fairlock.protocol.items import new_waiter
from fairlock.protocol.model import Grant, Waiter
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.protocol.waiters import MOST_PAGES_READ, MOST_PLACES_OF_AN_EXECUTION
from fairlock.store import queue
from fairlock.store.administration import empty_queue
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire import rules
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.memory_tables import item_bytes
from tests.support.store_bench import OTHER_RUN, RUN, Bench, FakeWorkflows

LONGEST_LEASE_MS = 12 * 3_600_000
SOON_SECONDS = 70


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("holder", lease_ms=LONGEST_LEASE_MS))
    return bench


def test_an_execution_has_a_hundred_places_in_a_queue_at_most(bench: Bench) -> None:
    answers = [bench.wait(f"ghost-{n}") for n in range(MOST_PLACES_OF_AN_EXECUTION + 1)]
    assert all(isinstance(answer, Queued) for answer in answers[:-1])
    assert isinstance(answers[-1], Refusal)
    assert answers[-1].reason is RefusalReason.QUEUE_FULL
    assert isinstance(bench.wait("ben", execution_arn=OTHER_RUN), Queued)
    assert isinstance(bench.store().acquire(acquire("carl", waits=True)), Queued)


def test_who_keeps_its_place_is_not_counted_against_itself(bench: Bench) -> None:
    for number in range(MOST_PLACES_OF_AN_EXECUTION):
        bench.wait(f"ghost-{number}")
    assert isinstance(bench.wait("ghost-7"), Queued)


def taken_after_a_while(bench: Bench) -> bool:
    """A ghost with the longest lease is handed the lock; its execution runs, and no one is told."""
    bench.wait("ghost", lease_ms=LONGEST_LEASE_MS)
    gone = FakeWorkflows(wakes=Delivery.GONE, runs=bench.describe)
    bench.store(workflows=gone).release(release("holder"))
    assert bench.holders() == ["ghost"]
    bench.clock.advance(SOON_SECONDS)
    return not isinstance(bench.store().acquire(acquire("ben")), Grant)


def test_a_grant_of_which_no_one_was_told_ends_soon_whatever_its_lease(bench: Bench) -> None:
    assert not taken_after_a_while(bench)


def test_with_its_own_lease_it_would_last_for_twelve_hours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "UNDELIVERED_MS", LONGEST_LEASE_MS)
    assert taken_after_a_while(bench)


PAGE_BYTES = 1_000_000
UNITS_OF_A_PAGE = 256


def fat_waiter(number: int, *, now_ms: int) -> Waiter:
    """As large as a caller can make one."""
    request = acquire(
        f"fat-{number}",
        waits=True,
        owner_name="o" * rules.LONGEST_OWNER_NAME,
        data=f'{{"fat":"{"d" * (rules.LARGEST_DATA_BYTES - 10)}"}}',
        execution_arn="a" * rules.LONGEST_EXECUTION_ARN_BYTES,
        task_token="t" * rules.LONGEST_TASK_TOKEN,
    )
    times = {"entered_at_ms": now_ms, "asked_at_ms": now_ms, "expires_at_ms": now_ms + 60_000}
    return Waiter(request=request, **times)


def fill(bench: Bench, number: int = 1_000) -> None:
    """The largest waiters, and as many in a page as DynamoDB would read."""
    bench.wait("first")
    for each in range(number):
        item = new_waiter(fat_waiter(each, now_ms=bench.clock.now_ms))
        bench.client.items[item["pk"]["S"], item["sk"]["S"]] = item
    bench.client.page_size = PAGE_BYTES // item_bytes(item)


def read_units_of_a_call(bench: Bench) -> int:
    client, store = bench.counting()
    answer = store.acquire(acquire("ben", waits=True))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.QUEUE_FULL
    return client.calls.count("query") * UNITS_OF_A_PAGE


def test_however_large_its_waiters_are_a_queue_costs_a_caller_two_pages(bench: Bench) -> None:
    fill(bench)
    assert read_units_of_a_call(bench) == MOST_PAGES_READ * UNITS_OF_A_PAGE == 512


def test_if_all_pages_were_read_each_call_would_cost_three_times_as_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bench)
    monkeypatch.setattr(queue, "MOST_PAGES_READ", 1_000)
    assert read_units_of_a_call(bench) > 1_400


def test_a_queue_too_long_to_be_read_becomes_shorter_with_each_call_once_they_are_dead(
    bench: Bench,
) -> None:
    fill(bench, 500)
    bench.clock.advance(120)
    answers = [bench.store().acquire(acquire("ben", waits=True)) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Refusal, Refusal, Queued]


def hostage(bench: Bench, number: int = 30) -> None:
    """So many ghosts wait behind the holder; their execution runs, and none is there to be told."""
    bench.workflows.wakes = Delivery.GONE
    for each in range(number):
        bench.wait(f"ghost-{each}", lease_ms=LONGEST_LEASE_MS)


def next_holders(bench: Bench) -> list[str]:
    bench.store().release(release("holder"))
    return bench.holders()


def test_an_emptied_queue_hands_the_lock_to_no_ghost(bench: Bench) -> None:
    hostage(bench)
    assert empty_queue(bench.store().context, LOCK) == 30
    assert bench.holders() == ["holder"]
    assert next_holders(bench) == []
    bench.grant("ben")


def test_without_emptying_it_the_lock_goes_from_ghost_to_ghost(bench: Bench) -> None:
    hostage(bench)
    assert next_holders(bench) == ["ghost-0"]
    bench.clock.advance(SOON_SECONDS)
    assert isinstance(bench.store().acquire(acquire("ben")), Refusal)
    assert bench.holders() == ["ghost-1"]


def test_who_lives_comes_back_a_workflow_to_its_own_place(bench: Bench) -> None:
    bench.wait("workflow", execution_arn=OTHER_RUN)
    ticket = bench.store().acquire(acquire("poller", waits=True))
    assert isinstance(ticket, Queued)
    hostage(bench)
    assert empty_queue(bench.store().context, LOCK) == 32
    again = acquire("poller", waits=True, ticket=ticket.entered_at_ms)
    assert isinstance(bench.store().acquire(again), Queued)
    bench.wait("workflow", execution_arn=OTHER_RUN)
    assert bench.waiters() == ["poller", "workflow"]
    bench.workflows.wakes = Delivery.DELIVERED
    assert next_holders(bench) == ["workflow"]


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
        bench.store().release(release("holder"))
        bench.store().acquire(acquire("late", waits=True))

    between = FaultyTable(bench.client, meanwhile(number + 1, others))
    empty_queue(bench.store(between).context, LOCK)
    state = bench.store().read_state(LOCK)
    assert len(state.holders) == state.held == 1
    assert (bench.holders(), bench.waiters()) == ([holds], waits)
    assert state.contended == bool(bench.waiters())
    assert owner("holder") not in [holder.owner_id for holder in state.holders]


def test_a_full_queue_is_emptied_by_a_transaction_for_each_hundred(bench: Bench) -> None:
    for number in range(2):
        for each in range(MOST_PLACES_OF_AN_EXECUTION):
            run = f"{RUN}-{number}"
            bench.wait(f"ghost-{number}-{each}", execution_arn=run)
    client, store = bench.counting()
    assert empty_queue(store.context, LOCK) == 200
    assert client.calls == [
        "query",
        *["transact_write_items"] * 2,
        "get_item",
        "query",
        "update_item",
    ]


# Step Functions may be slow: an acquire comes to its end nevertheless.

PERMITS = 5
SECONDS_AN_ANSWER = 4.5
"""Three tries of 1.5 s each."""
MOST_SECONDS = 10.0


@pytest.fixture
def full_bench(clock: FakeClock) -> Bench:
    """All permits are out to workflows whose leases are over."""
    full_bench = Bench(MemoryTable(), clock)
    for number in range(PERMITS):
        store = full_bench.store()
        store.acquire(acquire(f"w{number}", execution_arn=f"{RUN}{number}", limit=PERMITS))
    clock.advance(100)
    return full_bench


def seconds_to_refuse(bench: Bench) -> float:
    def hang(_execution_arn: str) -> Execution:
        bench.clock.advance(SECONDS_AN_ANSWER)
        return Execution(Liveness.UNKNOWN)

    began = bench.clock.monotonic()
    answer = bench.store(workflows=FakeWorkflows(runs=hang)).acquire(acquire("anna", limit=PERMITS))
    assert isinstance(answer, Refusal)
    assert answer.liveness_unknown
    return bench.clock.monotonic() - began


def test_an_acquire_does_not_ask_about_one_workflow_after_another_while_no_one_answers(
    full_bench: Bench,
) -> None:
    assert seconds_to_refuse(full_bench) < MOST_SECONDS


def test_without_a_check_of_the_clock_it_would_outlast_its_function(
    full_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryBudget, "is_spent", lambda _self, *, since: False)  # noqa: ARG005 - as the real one
    assert seconds_to_refuse(full_bench) > 20
