"""A repeated release gives the first answer again, and a stranger's release changes no answer."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import Grant, NotHeld, Refusal, Released
from fairlock.protocol.waiters import mark_given_up
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faults import lost_reply
from tests.support.faulty_table import FaultyTable, fault
from tests.support.store_bench import RUN, Bench, workflow_heartbeat

HOURS_OF_A_CLAIM_AND_MORE_SECONDS = 3_700
both_guards = pytest.mark.parametrize("keep_alive", [False, True])


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def after_others(bench: Bench, **fields: Any) -> Released | NotHeld:  # noqa: ANN401 - of a release
    """Anna, a workflow, has released; three others came and went; her release comes again."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    if fields.get("keep_alive"):
        bench.store().keep_alive(workflow_heartbeat("anna"))
    assert isinstance(bench.store().release(release("anna", execution_arn=RUN, **fields)), Released)
    for name in ("ben", "carl", "dora"):
        bench.clock.advance(1)
        bench.store().acquire(acquire(name))
        bench.store().release(release(name))
    return bench.store().release(release("anna", execution_arn=RUN, **fields))


@both_guards
def test_a_workflows_release_is_answered_as_before_no_matter_who_came_and_went_since(
    bench: Bench,
    *,
    keep_alive: bool,
) -> None:
    assert isinstance(after_others(bench, keep_alive=keep_alive), Released)


@both_guards
def test_without_the_mark_in_its_claim_the_repeat_would_count_as_a_loss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, keep_alive: bool
) -> None:
    monkeypatch.setattr("fairlock.store.release.gave_back_before", lambda _: False)
    assert isinstance(after_others(bench, keep_alive=keep_alive), NotHeld)


@both_guards
def test_a_workflow_that_lost_its_lock_is_told_so_by_every_repeat(
    bench: Bench, *, keep_alive: bool
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    bench.clock.advance(HOURS_OF_A_CLAIM_AND_MORE_SECONDS)
    assert isinstance(bench.store().acquire(acquire("ben")), Grant)
    lost = NotHeld(lock_name=LOCK, owner_id=owner("anna"))
    again = release("anna", execution_arn=RUN, keep_alive=keep_alive)
    assert [bench.store().release(again) for _ in range(2)] == [lost, lost]


def test_a_release_with_keep_alive_that_died_half_way_is_finished_by_its_repeat(
    bench: Bench,
) -> None:
    """It has marked its work as ended, and freed nothing."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    half = FaultyTable(bench.client, fault(lost_reply(), range(2, 99)))
    request = release("anna", execution_arn=RUN, keep_alive=True)
    with pytest.raises(LockStoreUnavailable):
        bench.store(half).release(request)
    assert isinstance(bench.store().release(request), Released)
    assert bench.holders() == []


def test_a_claim_that_kept_alive_is_done_once_its_lock_is_free_so_the_reaper_passes_over_it(
    bench: Bench,
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.store().release(release("anna", execution_arn=RUN, keep_alive=True))
    assert (bench.claims(), len(bench.claims(done=True))) == ([], 1)


def test_the_mark_of_a_workflows_release_costs_no_request(bench: Bench) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    client, store = bench.counting()
    store.release(release("anna", execution_arn=RUN))
    assert client.calls == ["update_item", "update_item"]


def stranger_after_anna(bench: Bench) -> None:
    """Anna releases; then a stranger releases what it never had, by a ticket that it made up."""
    bench.store().acquire(acquire("anna"))
    bench.store().release(release("anna"))
    bench.clock.advance(1)
    bench.store().release(release("stranger", waits=True, ticket=0))


def test_a_strangers_release_leaves_the_answer_to_a_repeat_alone(bench: Bench) -> None:
    stranger_after_anna(bench)
    assert isinstance(bench.store().release(release("anna")), Released)


def test_a_strangers_release_opens_the_lock_to_no_late_acquire(bench: Bench) -> None:
    stranger_after_anna(bench)
    assert isinstance(bench.store().acquire(acquire("anna")), Refusal)


def test_if_it_left_the_mark_of_a_release_a_late_acquire_would_be_granted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_released(*arguments: object, **fields: object) -> object:
        update = mark_given_up(*arguments, **fields)  # type: ignore[arg-type]  # passed through
        names = {"#last_given_up": "last_released"}
        return type(update)(
            **{
                **{name: getattr(update, name) for name in update.__slots__},
                "names": {**update.names, **names},
            }
        )

    monkeypatch.setattr("fairlock.store.release.mark_given_up", as_released)
    stranger_after_anna(bench)
    assert isinstance(bench.store().acquire(acquire("anna")), Grant)


def test_who_gave_up_before_its_acquire_landed_is_refused_all_the_same(bench: Bench) -> None:
    bench.store().release(release("anna", waits=True))
    assert isinstance(bench.store().acquire(acquire("anna")), Refusal)
