"""Who gave up is not granted a lock later, and who cannot hear of a grant does not keep it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.aws.executions import Delivery
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Liveness
from fairlock.protocol.outcomes import Grant, Refusal, RefusalReason
from fairlock.store.release import EndedClaim
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faulty_table import FaultyTable, lose, meanwhile
from tests.support.store_bench import RUN, Bench
from tests.support.workflows import FakeWorkflows

LEASE_AND_TOLERANCE_SECONDS = 63
MOST_WRITES = 4


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """Another caller holds the lock, and anna, a workflow, waits for it."""
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("holder"))
    bench.wait("anna")
    return bench


def place_of(bench: Bench) -> dict[str, Any]:
    return {"ticket": bench.clock.now_ms, "execution_arn": RUN}


def late_acquire(bench: Bench) -> Any:  # noqa: ANN401 - any of the answers
    """Anna has given up; others have used the lock; then a call of hers lands, of long ago."""
    place = place_of(bench)
    bench.store().release(release("anna", **place))
    bench.store().release(release("holder"))
    bench.pass_through()
    return bench.store().acquire(acquire("anna", waits=True, task_token="late", **place))


def test_an_acquire_that_lands_after_its_workflow_gave_up_is_refused(bench: Bench) -> None:
    answer = late_acquire(bench)
    assert isinstance(answer, Refusal)
    assert (answer.reason, bench.holders()) == (RefusalReason.ALREADY_RELEASED, [])


def test_without_the_mark_in_its_claim_it_would_be_granted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = EndedClaim(task_token=None, entered_at_ms=bench.clock.now_ms)
    monkeypatch.setattr("fairlock.store.release.end_claim", lambda *_: place)
    assert isinstance(late_acquire(bench), Grant)


@pytest.mark.parametrize("killed_at", range(1, MOST_WRITES + 1))
def test_giving_up_marks_and_leaves_in_one_write_wherever_it_is_killed(
    bench: Bench, killed_at: int
) -> None:
    """Else the lock would be handed to a caller that is marked, and never asks again."""
    dying = FaultyTable(bench.client, lose(killed_at))
    with pytest.raises(LockStoreUnavailable):
        bench.store(dying).release(release("anna", **place_of(bench)))
    is_marked = bench.store().read_state(LOCK).last_released == owner("anna")
    assert is_marked is (bench.waiters() == [])


def gone(bench: Bench) -> FakeWorkflows:
    """Its executions run on, but their tasks are over."""
    return FakeWorkflows(wakes=Delivery.GONE, runs=bench.describe)


def asks(bench: Bench) -> bool:
    """Whether a direct caller is granted the lock when the lease is over."""
    bench.clock.advance(LEASE_AND_TOLERANCE_SECONDS)
    return isinstance(bench.store().acquire(acquire("ben")), Grant)


def test_a_lock_handed_to_a_branch_that_was_stopped_is_free_after_its_lease(bench: Bench) -> None:
    """Its execution goes on, so neither the reaper nor the question to Step Functions helps."""
    bench.store(workflows=gone(bench)).release(release("holder"))
    assert bench.holders() == ["anna"]
    assert bench.describe(RUN).liveness is Liveness.RUNNING
    assert asks(bench)
    assert bench.holders() == ["ben"]


def test_if_that_were_not_noted_it_would_be_taken_as_long_as_its_execution_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.store.hand_off.mark_undelivered", _raise_unavailable)
    bench.store(workflows=gone(bench)).release(release("holder"))
    assert not asks(bench)
    assert not asks(bench)


def _raise_unavailable(_grant: Grant, **_at: int) -> Any:  # noqa: ANN401 - as the real one
    raise LockStoreUnavailable


def test_a_waiter_between_two_questions_keeps_what_it_was_handed(bench: Bench) -> None:
    place = place_of(bench)
    bench.store(workflows=gone(bench)).release(release("holder"))
    answer = bench.store().acquire(acquire("anna", waits=True, task_token="next", **place))
    assert isinstance(answer, Grant)
    assert not asks(bench)


def test_even_if_it_asks_in_the_moment_in_which_that_is_noted(bench: Bench) -> None:
    place = place_of(bench)
    answers: list[object] = []

    def ask() -> None:
        answers.append(
            bench.store().acquire(acquire("anna", waits=True, task_token="next", **place))
        )

    client = FaultyTable(
        bench.client, meanwhile(4, ask)
    )  # After release_permit, query and serve_waiter.
    bench.store(client, workflows=gone(bench)).release(release("holder"))
    assert client.calls == ["update_item", "query", "transact_write_items", "update_item"]
    assert [type(answer) for answer in answers] == [Grant]
    assert not asks(bench)
