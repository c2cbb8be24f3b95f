"""Waiters that are dead delay no hand-off and fail no release, however many a caller invents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.protocol.items import new_waiter
from fairlock.protocol.model import Grant, Holder, Waiter
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason, Released
from fairlock.store import keep_alive, seen_queue
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import acquire_answer
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faulty_table import (
    TRANSACTIONS,
    FaultyTable,
    Killed,
    client_error,
    fault,
    kill,
    meanwhile,
)
from tests.support.store_bench import OTHER_RUN, RUN, Bench, FakeWorkflows, workflow_heartbeat

MANY = 10_000
PAGE = 2_500
"""Waiters of about 400 bytes that fit into a page of 1 MB."""


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """Anna holds the lock."""
    bench = Bench(MemoryTable(page_size=PAGE), clock)
    bench.store().acquire(acquire("anna", lease_ms=600_000))
    return bench


def invent(bench: Bench, number: int, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
    """As many waiters as if each had joined at once, and never asked again."""
    assert bench.store().acquire(acquire("dead", waits=True, waiter_timeout_ms=1_000))
    for i in range(number - 1):
        put(bench, f"dead-{i}", seconds=600 if fields else 1, **fields)


def put(bench: Bench, name: str, *, seconds: int, **fields: Any) -> None:  # noqa: ANN401 - same
    """One waiter that has just joined, and keeps its place for so long."""
    waiter = Waiter(
        request=acquire(name, waits=True, **fields),
        entered_at_ms=bench.clock.now_ms,
        asked_at_ms=bench.clock.now_ms,
        expires_at_ms=bench.clock.now_ms + seconds * 1_000,
    )
    item = new_waiter(waiter)
    bench.client.items[item["pk"]["S"], item["sk"]["S"]] = item


def left(bench: Bench) -> int:
    return len(bench.client.waiters(LOCK))


def test_ten_thousand_waiters_that_stopped_asking_delay_a_hand_off_by_four_requests(
    bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    invent(bench, MANY)
    bench.clock.advance(10)
    put(bench, "ben", seconds=60)
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
    bench.store().release(release("anna"))
    bench.grant("ben")


def test_a_few_dead_waiters_are_removed_before_the_lock_is_opened(bench: Bench) -> None:
    invent(bench, 30)
    bench.clock.advance(10)
    client, store = bench.counting()
    store.release(release("anna"))
    assert client.calls == ["update_item", "query", "query", "transact_write_items", "update_item"]
    assert left(bench) == 0


def test_a_waiter_that_asks_again_while_the_dead_are_removed_stays_and_is_served(
    bench: Bench,
) -> None:
    invent(bench, 30)
    ticket = int(bench.client.waiters(LOCK)[7]["entered_at_ms"]["N"])
    late = acquire("dead-3", waits=True, ticket=ticket)
    bench.clock.advance(10)
    asked: list[object] = []

    asks = meanwhile(1, lambda: asked.append(bench.store().acquire(late)), of=TRANSACTIONS)
    client = FaultyTable(bench.client, asks)
    assert isinstance(bench.store(client).release(release("anna")), Released)
    assert isinstance(asked[0], Queued)
    assert bench.holders() == ["dead-3"]
    assert left(bench) == 0


@pytest.mark.parametrize("code", ["InternalServerError", "ServiceUnavailable"])
def test_a_removal_that_fails_fails_no_release(bench: Bench, code: str) -> None:
    invent(bench, 30)
    bench.clock.advance(10)
    broken = FaultyTable(bench.client, fault(client_error(code, 500), 2))
    assert isinstance(bench.store(broken).release(release("anna")), Released)
    bench.grant("ben")


def test_of_an_execution_that_is_over_one_push_is_enough(bench: Bench) -> None:
    invent(bench, 9, execution_arn=RUN, task_token="invented")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end(RUN)

    def wakes(task_token: str, _grant: Grant) -> Delivery:
        return Delivery.DELIVERED if task_token == "ben" else Delivery.GONE

    bench.clock.advance(5)
    workflows = FakeWorkflows(wakes=wakes, runs=bench.describe)
    client, _ = bench.counting()
    bench.store(client, workflows=workflows).release(release("anna"))
    assert [token for token, _ in workflows.woken] == ["invented", "ben"]
    assert (bench.holders(), left(bench)) == (["ben"], 0)


def test_without_remembering_that_it_is_over_each_of_its_waiters_is_pushed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_queue.SeenQueue, "drop_execution", lambda _self, _arn: None)
    invent(bench, 9, execution_arn=RUN, task_token="invented")
    bench.wait("ben", execution_arn=OTHER_RUN)
    workflows = FakeWorkflows(wakes=Delivery.GONE, runs=Liveness.OVER)
    bench.clock.advance(5)
    bench.store(workflows=workflows).release(release("anna"))
    assert len(workflows.woken) > 2


def test_a_waiter_without_an_execution_that_cannot_be_told_is_out_with_its_permit(
    bench: Bench,
) -> None:
    bench.wait("gone", execution_arn=None)
    bench.wait("ben")

    def wakes(task_token: str, _grant: Grant) -> Delivery:
        return Delivery.GONE if task_token == "gone" else Delivery.DELIVERED

    workflows = FakeWorkflows(wakes=wakes, runs=lambda _: Execution(Liveness.RUNNING))
    bench.store(workflows=workflows).release(release("anna"))
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
    bench.store().acquire(acquire("ben", waits=True, **fields))
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
    answer = bench.store().acquire(acquire("~last", waits=True))
    assert isinstance(answer, Queued)
    assert answer.position == 1_000


def test_who_waits_already_is_not_refused_by_a_full_queue(bench: Bench) -> None:
    first = bench.store().acquire(acquire("ben", waits=True, waiter_timeout_ms=60_000))
    assert isinstance(first, Queued)
    bench.clock.advance(1)
    invent(bench, 1_000)
    for ticket in (first.entered_at_ms, None):
        again = bench.store().acquire(acquire("ben", waits=True, ticket=ticket))
        assert isinstance(again, Queued)
        assert again.position == 1


def test_dead_waiters_fill_no_queue_and_count_in_no_position(bench: Bench) -> None:
    invent(bench, 2_000)
    bench.clock.advance(10)
    answer = bench.store().acquire(acquire("ben", waits=True))
    assert isinstance(answer, Queued)
    assert answer.position == 1
    assert owner("ben") == answer.owner_id


# A contender that meets a lease that is over reads the claim, extends the lease, and asks last.
#
# DescribeExecution answers 10 to 15 times a second in an account, however many contenders there
# are.

CONTENDERS = 5
LEASE_MS = 60_000
LEASE_OVER_SECONDS = 70
EXTENSION_OVER_SECONDS = 13
UNANSWERED_OVER_SECONDS = 33


@pytest.fixture
def workflow_bench(clock: FakeClock) -> Bench:
    """Anna's workflow holds the lock, and her lease is over."""
    workflow_bench = Bench(MemoryTable(), clock)
    workflow_bench.store().acquire(acquire("anna", execution_arn=RUN, lease_ms=LEASE_MS))
    clock.advance(LEASE_OVER_SECONDS)
    return workflow_bench


def ask_first(_context: LockContext, _name: str, holder: Holder, *, lease_ms: int) -> Holder:
    """For the controls: as if the lease was extended only after the answer."""
    assert lease_ms
    return holder


def contenders_that_ask(bench: Bench) -> int:
    """While Step Functions is asked by one contender, the next one comes."""

    def come(_execution_arn: str) -> Execution:
        if len(bench.workflows.described) < CONTENDERS:
            another = acquire(f"contender {len(bench.workflows.described)}")
            assert isinstance(bench.store().acquire(another), Refusal)
        return Execution(Liveness.RUNNING)

    bench.workflows.runs = come
    assert isinstance(bench.store().acquire(acquire("ben")), Refusal)
    return len(bench.workflows.described)


def test_of_contenders_that_come_together_one_asks(workflow_bench: Bench) -> None:
    assert contenders_that_ask(workflow_bench) == 1


def test_each_asks_if_the_lease_is_extended_only_after_the_answer(
    workflow_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "_extend", ask_first)
    assert contenders_that_ask(workflow_bench) == CONTENDERS


def times_asked_without_an_answer(bench: Bench) -> int:
    bench.workflows.runs = Liveness.UNKNOWN
    for number in range(CONTENDERS):
        assert isinstance(bench.store().acquire(acquire(f"contender {number}")), Refusal)
    return len(bench.workflows.described)


def test_while_step_functions_does_not_say_it_is_asked_once_in_half_a_minute(
    workflow_bench: Bench,
) -> None:
    assert times_asked_without_an_answer(workflow_bench) == 1
    workflow_bench.clock.advance(EXTENSION_OVER_SECONDS)
    assert times_asked_without_an_answer(workflow_bench) == 1
    workflow_bench.clock.advance(UNANSWERED_OVER_SECONDS - EXTENSION_OVER_SECONDS)
    assert times_asked_without_an_answer(workflow_bench) == 2


def test_each_contender_would_ask_if_none_extended_the_lease_before(
    workflow_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "_extend", ask_first)
    assert times_asked_without_an_answer(workflow_bench) == CONTENDERS


def is_taken_without_asking(bench: Bench) -> bool:
    """The reaper has fenced the claim, and died before it freed the lock."""
    bench.end()
    with pytest.raises(Killed):
        bench.reap(client=FaultyTable(bench.client, kill(3)))
    assert bench.holders() == ["anna"]
    bench.workflows.described.clear()
    bench.grant("ben")
    return bench.workflows.described == []


def test_a_fenced_claim_says_that_the_holder_is_over(workflow_bench: Bench) -> None:
    assert is_taken_without_asking(workflow_bench)


def test_without_a_look_at_the_claim_step_functions_is_asked(
    workflow_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "work_is_over", lambda _item: False)
    assert not is_taken_without_asking(workflow_bench)


def test_a_redriven_holder_that_takes_the_fence_away_in_that_moment_keeps_its_lock(
    workflow_bench: Bench,
) -> None:
    """The claim is read as fenced; then a heartbeat renews, and only then the contender writes."""
    workflow_bench.end()
    with pytest.raises(Killed):
        workflow_bench.reap(client=FaultyTable(workflow_bench.client, kill(3)))
    workflow_bench.redrive()

    def renew() -> None:
        outcome = workflow_bench.store().keep_alive(workflow_heartbeat("anna", redrives=1))
        assert outcome is KeepAliveOutcome.RENEWED

    contender = workflow_bench.store(FaultyTable(workflow_bench.client, meanwhile(3, renew)))
    assert isinstance(contender.acquire(acquire("ben")), Refusal)
    assert workflow_bench.holders() == ["anna"]


def test_a_contender_that_dies_while_it_asks_delays_the_next_by_ten_seconds(
    workflow_bench: Bench,
) -> None:
    def dies(_execution_arn: str) -> Execution:
        raise Killed

    workflow_bench.workflows.runs = dies
    with pytest.raises(Killed):
        workflow_bench.store().acquire(acquire("ben"))
    workflow_bench.workflows.runs = Liveness.OVER
    assert isinstance(workflow_bench.store().acquire(acquire("carl")), Refusal)
    workflow_bench.clock.advance(EXTENSION_OVER_SECONDS)
    workflow_bench.grant("carl")


def test_a_workflow_that_runs_gets_a_whole_lease(workflow_bench: Bench) -> None:
    assert isinstance(workflow_bench.store().acquire(acquire("ben")), Refusal)
    workflow_bench.clock.advance(LEASE_MS / 1000 - 1)
    assert isinstance(workflow_bench.store().acquire(acquire("ben")), Refusal)
    assert workflow_bench.workflows.described == [RUN]


@pytest.mark.parametrize(
    ("prepare", "requests"),
    [
        # The first write, the claim, the extension, the takeover.
        (lambda bench: bench.end(), 4),
        # Two extensions: while Step Functions is asked, and for a lease.
        (lambda bench: bench.redrive(redrives=0), 4),
    ],
    ids=["over", "runs"],
)
def test_a_contender_sends_so_many_requests(
    workflow_bench: Bench, prepare: Callable[[Bench], None], requests: int
) -> None:
    prepare(workflow_bench)
    client, store = workflow_bench.counting()
    store.acquire(acquire("ben"))
    assert len(client.calls) == requests


def test_a_lease_that_is_not_over_costs_the_contender_one_request(workflow_bench: Bench) -> None:
    workflow_bench.store().acquire(acquire("ben"))
    client, store = workflow_bench.counting()
    assert isinstance(store.acquire(acquire("carl")), Refusal)
    workflow_bench.store().release(release("anna", execution_arn=RUN))
    assert isinstance(store.acquire(acquire("carl")), Grant)
    assert len(client.calls) == 2
