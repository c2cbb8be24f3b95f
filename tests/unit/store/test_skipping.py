"""What a guard that skips a busy lock asks the store for: one try, and then to give up."""

from __future__ import annotations

import pytest

from fairlock.protocol.outcomes import Grant, Refusal, RefusalReason
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench

TRY = acquire("ben", execution_arn=RUN)
GIVE_UP = release("ben", execution_arn=RUN, waits=True)


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def test_it_takes_seven_requests_and_leaves_no_waiter(bench: Bench) -> None:
    bench.store().acquire(acquire("ada", execution_arn=OTHER_RUN))
    client, store = bench.counting()
    refused = store.acquire(TRY)
    assert isinstance(refused, Refusal)
    assert (refused.reason, len(client.calls)) == (RefusalReason.HELD, 2)  # its claim, and one try
    store.release(GIVE_UP)
    assert (len(client.calls), bench.waiters(), bench.holders()) == (7, [], ["ada"])


def test_a_lock_that_others_wait_for_is_busy_though_it_has_room(bench: Bench) -> None:
    bench.store().acquire(acquire("ada", limit=2))
    bench.wait("carl", execution_arn=OTHER_RUN)  # a limit of one
    refused = bench.store().acquire(acquire("ben", execution_arn=RUN, limit=2))
    assert isinstance(refused, Refusal)
    assert bench.waiters() == ["carl"]


@pytest.mark.parametrize("given_up", [True, False], ids=["given up", "the control"])
def test_a_call_that_lands_after_its_repetition_was_refused_takes_nothing(
    bench: Bench, *, given_up: bool
) -> None:
    """The first call is delayed between its claim and its try."""
    bench.store().acquire(acquire("ada", execution_arn=OTHER_RUN))

    def others_act() -> None:
        assert isinstance(bench.store().acquire(TRY), Refusal)
        bench.store().release(release("ada", execution_arn=OTHER_RUN))
        if given_up:
            bench.store().release(GIVE_UP)

    delayed = bench.store(FaultyTable(bench.client, meanwhile(2, others_act))).acquire(TRY)
    assert isinstance(delayed, Refusal if given_up else Grant)
    assert bench.holders() == ([] if given_up else ["ben"])
