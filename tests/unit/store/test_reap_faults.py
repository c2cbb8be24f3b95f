"""What goes wrong around the end of an execution: late calls, passes that die, redrives."""

from __future__ import annotations

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import Grant, Queued, Reaped, Refusal
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release
from tests.support.faults import lost_reply
from tests.support.faulty_table import FaultyTable, fault, meanwhile, repeat
from tests.support.store_bench import OTHER_RUN, RUN, Bench, workflow_heartbeat


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def stopped_and_reaped(bench: Bench) -> None:
    """The first pass finds what there is; after it another caller uses the lock."""
    bench.end()
    bench.reap()
    bench.pass_through()


@pytest.mark.parametrize("number", range(3))
def test_an_acquire_under_way_is_freed_by_the_second_pass_whenever_the_first_one_came(
    bench: Bench, number: int
) -> None:
    """The stop and the first pass come before the nth request of acquire; 2 is after the last."""
    late = FaultyTable(bench.client, meanwhile(number + 1, lambda: stopped_and_reaped(bench)))
    bench.store(late).acquire(acquire("anna", execution_arn=RUN))
    late.end_plan()
    bench.reap(second=True)
    assert bench.holders() == []
    assert isinstance(bench.store().acquire(acquire("ben")), Grant)


def test_without_the_second_pass_that_acquire_keeps_the_lock(bench: Bench) -> None:
    """The negative control of the test above."""
    late = FaultyTable(bench.client, meanwhile(2, lambda: stopped_and_reaped(bench)))
    bench.store(late).acquire(acquire("anna", execution_arn=RUN))
    assert bench.holders() == ["anna"]


@pytest.mark.parametrize("number", range(5))
def test_a_late_acquire_that_joins_the_queue_is_taken_out_by_the_second_pass(
    bench: Bench, number: int
) -> None:
    bench.wait("ben", execution_arn=OTHER_RUN)

    def die() -> None:
        bench.end()
        bench.reap()

    late = FaultyTable(bench.client, meanwhile(number + 1, die))
    place = {"task_token": "anna"}
    request = acquire("anna", execution_arn=RUN, waits=True, **place)
    assert isinstance(bench.store(late).acquire(request), Queued | Refusal)
    late.end_plan()
    bench.reap(second=True)
    assert bench.waiters() == []
    bench.store().release(release("ben", execution_arn=OTHER_RUN))
    assert bench.pushed == []
    assert isinstance(bench.store().acquire(acquire("carl")), Grant)


@pytest.mark.parametrize("number", range(1, 12))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pass_that_dies_anywhere_is_taken_up_by_its_repetition(
    bench: Bench, number: int, when: str
) -> None:
    bench.wait("anna")
    bench.wait("zita")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    dying = FaultyTable(bench.client, fault(lost_reply(), number, when=when))  # type: ignore[arg-type]  # one of two
    try:
        bench.reap(client=dying)
    except LockStoreUnavailable:
        bench.reap()
    bench.reap(second=True)
    assert (bench.holders(), bench.waiters()) == (["ben"], [])


def test_a_pass_whose_writes_boto3_sends_twice_frees_the_same(bench: Bench) -> None:
    bench.wait("anna")
    bench.wait("zita")
    bench.end()
    bench.reap(client=FaultyTable(bench.client, repeat()))
    bench.reap(second=True, client=FaultyTable(bench.client, repeat()))
    assert (bench.holders(), bench.waiters()) == ([], [])


def test_a_redriven_acquire_between_the_question_and_the_bar_is_not_robbed(bench: Bench) -> None:
    bench.wait("anna")
    bench.store().release(release("anna"))
    place = {"execution_arn": RUN}
    acquiring = acquire("zita", **place)
    half = FaultyTable(bench.client, fault(lost_reply(), 2))
    with pytest.raises(LockStoreUnavailable):
        bench.store(half).acquire(acquiring)
    bench.end()

    def redriven() -> None:
        bench.redrive()
        assert isinstance(bench.store().acquire(acquiring), Grant)

    redriven_between = FaultyTable(bench.client, meanwhile(2, redriven))
    assert bench.reap(client=redriven_between) == Reaped(complete=False)
    assert bench.reap() == Reaped()
    assert bench.holders() == ["zita"]


def test_what_a_pass_has_fenced_is_freed_though_the_execution_was_redriven(bench: Bench) -> None:
    """Else the redriven acquisition would wait for one of its own that landed late."""
    late = FaultyTable(bench.client, meanwhile(2, lambda: stopped_and_reaped(bench)))
    bench.store(late).acquire(acquire("anna", execution_arn=RUN))
    bench.redrive()
    bench.wait("zita")
    assert bench.reap(second=True) == Reaped(holders=1)
    assert (bench.holders(), bench.pushed) == (["zita"], ["zita"])


def test_an_outdated_second_pass_leaves_the_rest_to_that_of_the_next_event(bench: Bench) -> None:
    """The execution was redriven and has ended again, with an acquire under way."""

    def ended_again() -> None:
        bench.end(redrives=1)
        bench.reap(second=True, redrives=0)
        bench.pass_through()

    late = FaultyTable(bench.client, meanwhile(2, ended_again))
    bench.store(late).acquire(acquire("anna", execution_arn=RUN))
    assert bench.holders() == ["anna"]
    bench.reap(redrives=1)
    bench.reap(redrives=1, second=True)
    assert bench.holders() == []


def test_a_release_that_died_after_its_mark_is_made_up_for(bench: Bench) -> None:
    bench.wait("anna")
    bench.store().keep_alive(workflow_heartbeat("anna"))
    dying = FaultyTable(bench.client, fault(lost_reply(), 2))
    with pytest.raises(LockStoreUnavailable):
        bench.store(dying).release(release("anna", execution_arn=RUN, keep_alive=True))
    assert bench.holders() == ["anna"]
    bench.end()
    assert bench.reap() == Reaped(holders=1)
    assert bench.holders() == []
