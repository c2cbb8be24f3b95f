"""A contender that meets a lease that is over reads the claim, extends the lease, and asks last.

DescribeExecution answers 10 to 15 times a second in an account, however many contenders there are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlock.aws.executions import Execution
from fairlock.protocol.model import Holder, Liveness
from fairlock.protocol.outcomes import Grant, Refusal
from fairlock.store import keep_alive
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import RUN, Bench, workflow_heartbeat

CONTENDERS = 5
LEASE_MS = 60_000
LEASE_OVER_SECONDS = 70
EXTENSION_OVER_SECONDS = 13
UNANSWERED_OVER_SECONDS = 33


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """Anna's workflow holds the lock, and her lease is over."""
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("anna", execution_arn=RUN, lease_ms=LEASE_MS))
    clock.advance(LEASE_OVER_SECONDS)
    return bench


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


def test_of_contenders_that_come_together_one_asks(bench: Bench) -> None:
    assert contenders_that_ask(bench) == 1


def test_each_asks_if_the_lease_is_extended_only_after_the_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "_extend", ask_first)
    assert contenders_that_ask(bench) == CONTENDERS


def times_asked_without_an_answer(bench: Bench) -> int:
    bench.workflows.runs = Liveness.UNKNOWN
    for number in range(CONTENDERS):
        assert isinstance(bench.store().acquire(acquire(f"contender {number}")), Refusal)
    return len(bench.workflows.described)


def test_while_step_functions_does_not_say_it_is_asked_once_in_half_a_minute(bench: Bench) -> None:
    assert times_asked_without_an_answer(bench) == 1
    bench.clock.advance(EXTENSION_OVER_SECONDS)
    assert times_asked_without_an_answer(bench) == 1
    bench.clock.advance(UNANSWERED_OVER_SECONDS - EXTENSION_OVER_SECONDS)
    assert times_asked_without_an_answer(bench) == 2


def test_each_contender_would_ask_if_none_extended_the_lease_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "_extend", ask_first)
    assert times_asked_without_an_answer(bench) == CONTENDERS


def is_taken_without_asking(bench: Bench) -> bool:
    """The reaper has fenced the claim, and died before it freed the lock."""
    bench.end()
    with pytest.raises(_DiesError):
        bench.reap(client=FaultyTable(bench.client, meanwhile(3, _die)))
    assert bench.holders() == ["anna"]
    bench.workflows.described.clear()
    assert isinstance(bench.store().acquire(acquire("ben")), Grant)
    return bench.workflows.described == []


class _DiesError(BaseException):
    """No error that a program may catch."""


def _die() -> None:
    raise _DiesError


def test_a_fenced_claim_says_that_the_holder_is_over(bench: Bench) -> None:
    assert is_taken_without_asking(bench)


def test_without_a_look_at_the_claim_step_functions_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "work_is_over", lambda _item: False)
    assert not is_taken_without_asking(bench)


def test_a_redriven_holder_that_takes_the_fence_away_in_that_moment_keeps_its_lock(
    bench: Bench,
) -> None:
    """The claim is read as fenced; then a heartbeat renews, and only then the contender writes."""
    bench.end()
    with pytest.raises(_DiesError):
        bench.reap(client=FaultyTable(bench.client, meanwhile(3, _die)))
    bench.redrive()

    def renew() -> None:
        outcome = bench.store().keep_alive(workflow_heartbeat("anna", redrives=1))
        assert outcome is KeepAliveOutcome.RENEWED

    contender = bench.store(FaultyTable(bench.client, meanwhile(3, renew)))
    assert isinstance(contender.acquire(acquire("ben")), Refusal)
    assert bench.holders() == ["anna"]


def test_a_contender_that_dies_while_it_asks_delays_the_next_by_ten_seconds(bench: Bench) -> None:
    def dies(_execution_arn: str) -> Execution:
        raise _DiesError

    bench.workflows.runs = dies
    with pytest.raises(_DiesError):
        bench.store().acquire(acquire("ben"))
    bench.workflows.runs = Liveness.OVER
    assert isinstance(bench.store().acquire(acquire("carl")), Refusal)
    bench.clock.advance(EXTENSION_OVER_SECONDS)
    assert isinstance(bench.store().acquire(acquire("carl")), Grant)


def test_a_workflow_that_runs_gets_a_whole_lease(bench: Bench) -> None:
    assert isinstance(bench.store().acquire(acquire("ben")), Refusal)
    bench.clock.advance(LEASE_MS / 1000 - 1)
    assert isinstance(bench.store().acquire(acquire("ben")), Refusal)
    assert bench.workflows.described == [RUN]


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
    bench: Bench, prepare: Callable[[Bench], None], requests: int
) -> None:
    prepare(bench)
    client, store = bench.counting()
    store.acquire(acquire("ben"))
    assert len(client.calls) == requests


def test_a_lease_that_is_not_over_costs_the_contender_one_request(bench: Bench) -> None:
    bench.store().acquire(acquire("ben"))
    client, store = bench.counting()
    assert isinstance(store.acquire(acquire("carl")), Refusal)
    bench.store().release(release("anna", execution_arn=RUN))
    assert isinstance(store.acquire(acquire("carl")), Grant)
    assert len(client.calls) == 2
