"""Holders whose lease is over: a contender reads the claim, extends the lease, and asks last.

DescribeExecution answers 10 to 15 times a second in an account, however many contenders there are.
"""

from __future__ import annotations

import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued, Refusal
from fairlock.store.context import Evicted
from fairlock.testing import ManualClock
from tests.support import acquire
from tests.support.faulty_table import Killed, kill, meanwhile
from tests.support.store_bench import RUN, Bench

CONTENDERS = 5
LEASE_MS = 60_000
MOST_CHECKS = 5


@pytest.fixture
def bench(dynamodb: object, clock: ManualClock) -> Bench:
    """Anna's workflow holds the lock, and her lease is over."""
    bench = Bench(dynamodb, clock)
    bench.ask("anna", execution_arn=RUN, lease_ms=LEASE_MS)
    clock.advance(70)
    return bench


def test_while_step_functions_does_not_say_it_is_asked_once_in_half_a_minute(
    bench: Bench,
) -> None:
    bench.workflows.runs = Liveness.UNKNOWN
    for seconds, asked in ((0, 1), (13, 1), (20, 2)):
        bench.clock.advance(seconds)
        for number in range(CONTENDERS):
            bench.refuse(f"contender {number}")
        assert len(bench.workflows.described) == asked


@pytest.fixture
def fenced(bench: Bench) -> Bench:
    """The reaper has fenced her claim, and died before it freed the lock."""
    bench.end()
    with pytest.raises(Killed):
        bench.reap(client=kill(3))
    assert bench.holders() == ["anna"]
    bench.workflows.described.clear()
    return bench


def test_a_fenced_claim_says_that_the_holder_is_over(fenced: Bench) -> None:
    fenced.grant("ben")
    assert fenced.workflows.described == []


def test_a_redriven_holder_that_takes_the_fence_away_in_that_moment_keeps_its_lock(
    fenced: Bench,
) -> None:
    """The claim is read as fenced; then a heartbeat renews, and only then the contender writes."""
    fenced.redrive()
    fenced.refuse("ben", over=meanwhile(3, lambda: fenced.beat("anna", redrives=1)))
    assert fenced.holders() == ["anna"]


def test_a_contender_that_dies_while_it_asks_delays_the_next_by_ten_seconds(
    bench: Bench,
) -> None:
    def dies(_execution_arn: str) -> Execution:
        raise Killed

    bench.workflows.runs = dies
    with pytest.raises(Killed):
        bench.ask("ben")
    bench.workflows.runs = Liveness.OVER
    bench.refuse("carl")
    bench.clock.advance(13)
    bench.grant("carl")


def test_a_workflow_that_runs_gets_a_whole_lease(bench: Bench) -> None:
    bench.refuse("ben")
    bench.clock.advance(LEASE_MS / 1000 - 1)
    bench.refuse("ben")
    assert bench.workflows.described == [RUN]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_contender_sends_four_requests(bench: Bench, *, is_over: bool) -> None:
    """The first write, the claim, the extension; then the takeover, or an extension for a lease."""
    if is_over:
        bench.end()
    assert len(bench.requests(lambda store: store.acquire(acquire("ben")))) == 4


def test_a_lease_that_is_not_over_costs_the_contender_one_request(bench: Bench) -> None:
    bench.ask("ben")
    client, store = bench.counting()
    assert isinstance(store.acquire(acquire("carl")), Refusal)
    bench.release("anna", execution_arn=RUN)
    assert isinstance(store.acquire(acquire("carl")), Grant)
    assert len(client.calls) == 2


def test_of_two_contenders_that_have_read_the_claim_one_asks(bench: Bench) -> None:
    bench.ask("carl", over=meanwhile(3, lambda: bench.ask("ben")))
    assert bench.workflows.described == [RUN]


def test_a_heartbeat_between_the_question_and_the_eviction_wins(bench: Bench) -> None:
    def renews(_execution_arn: str) -> Execution:
        bench.renew("anna")
        return Execution(Liveness.OVER)

    bench.workflows.runs = renews
    assert isinstance(bench.ask("carl", waits=True), Queued)
    assert bench.holders() == ["anna"]


# Of many holders whose leases are over, a few are asked about, and those that cost nothing first.


def with_workflows(dynamodb: object, clock: ManualClock, number: int, *, limit: int) -> Bench:
    """All permits are out, so many to workflows of their own, and all leases are over."""
    bench = Bench(dynamodb, clock)
    for each in range(limit):
        arn = f"{RUN}{each}" if each < number else None
        bench.ask(f"w{each}", execution_arn=arn, limit=limit, lease_ms=1_000)
    clock.advance(100)
    return bench


def test_a_holder_without_a_workflow_is_evicted_without_a_question(
    dynamodb: object, clock: ManualClock
) -> None:
    bench = with_workflows(dynamodb, clock, 3, limit=4)
    assert bench.grant("anna", limit=4).taken_over == 1
    assert (bench.workflows.described, len(bench.holders())) == ([], 4)


def test_an_acquire_asks_about_five_workflows_and_leaves_the_rest_to_the_next(
    dynamodb: object, clock: ManualClock
) -> None:
    bench = with_workflows(dynamodb, clock, 12, limit=12)
    for asked in (MOST_CHECKS, 2 * MOST_CHECKS, 12):
        bench.refuse("anna", limit=12)
        assert len(set(bench.workflows.described)) == len(bench.workflows.described) == asked


def test_an_acquire_does_not_ask_about_one_workflow_after_another_while_no_one_answers(
    dynamodb: object, clock: ManualClock
) -> None:
    """Each answer takes 4.5 s."""
    bench = with_workflows(dynamodb, clock, 5, limit=5)

    def hang(_execution_arn: str) -> Execution:
        clock.advance(4.5)
        return Execution(Liveness.UNKNOWN)

    bench.workflows.runs = hang
    began = clock.monotonic()
    assert bench.refuse("anna", limit=5).liveness_unknown
    assert clock.monotonic() - began < 10


def test_many_dead_workflows_give_way_to_a_lower_limit(
    dynamodb: object, clock: ManualClock
) -> None:
    bench = with_workflows(dynamodb, clock, 20, limit=20)
    for number in range(20):
        bench.end(f"{RUN}{number}")
    answer = bench.grant("ben", limit=10)
    evicted = sum(event.holders for event in bench.events if isinstance(event, Evicted))
    assert evicted + answer.taken_over == 11
    assert bench.state.held == 10
