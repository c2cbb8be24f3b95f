"""keep_alive through the store: a heartbeat tells a loss from an end of the work."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from fairlock.aws.executions import Delivery
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import NotHeld, Released
from fairlock.store.keep_alive import KeepAliveOutcome, why_lost
from fairlock.testing import ManualClock
from tests.support import LOCK, owner, release
from tests.support.faulty_table import READS, fault, lost_reply, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench, workflow_heartbeat

OWN_RELEASE = release("anna", execution_arn=RUN, keep_alive=True)
AFTER_ERROR = release("anna", execution_arn=RUN)
RELEASE_OF_PASS = 4
"""Requests of a pass: query, fence_claim, leave_queue, release_permit, advance_claim."""


@pytest.fixture
def bench(dynamodb: object, clock: ManualClock) -> Bench:
    bench = Bench(dynamodb, clock)
    bench.wait("anna")
    return bench


def test_a_heartbeat_is_two_requests_and_renews_the_lease(bench: Bench) -> None:
    bench.clock.advance(50)
    beat = workflow_heartbeat("anna")
    assert bench.requests(lambda store: store.keep_alive(beat)) == ["update_item", "update_item"]
    (holder,) = bench.state.holders
    assert holder.expires_at_ms == bench.clock.wall_ms() + 61_500


def test_the_release_ends_the_last_heartbeat_and_only_that_once_the_lock_is_free(
    bench: Bench,
) -> None:
    def end_heartbeat(_task_token: str, _lost: object) -> Delivery:
        assert bench.holders() == []
        return Delivery.DELIVERED

    bench.workflows.ends = end_heartbeat
    for task_token in ("first", "second"):
        bench.beat("anna", task_token)
    assert isinstance(bench.store().release(OWN_RELEASE), Released)
    assert bench.workflows.ended == [("second", None)]


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("waiting", [[], ["ben"]], ids=str)
def test_its_own_release_in_the_middle_of_a_heartbeat_is_no_loss(
    bench: Bench, number: int, waiting: list[str]
) -> None:
    for name in waiting:
        bench.wait(name, execution_arn=OTHER_RUN)
    between = meanwhile(number + 1, lambda: bench.store().release(OWN_RELEASE))
    assert bench.beat("anna", over=between) is KeepAliveOutcome.DONE
    assert bench.beat("anna", "late") is KeepAliveOutcome.DONE
    bench.store().release(OWN_RELEASE)
    assert bench.holders() == waiting


@pytest.mark.parametrize("beats_before", [0, 1])
@pytest.mark.parametrize("by_force", [True, False], ids=["by force", "with its owner_id alone"])
def test_a_lock_that_others_have_released_is_lost_at_the_next_heartbeat_and_stays_free(
    bench: Bench, beats_before: int, *, by_force: bool
) -> None:
    """The workflow has not said that its work is over: its heartbeats must report the loss."""
    for _ in range(beats_before):
        bench.beat("anna")
    if by_force:
        bench.force(bench.state.holders[0])
    else:
        bench.release("anna")
    assert bench.beat("anna") is KeepAliveOutcome.LOST
    assert bench.holders() == []


@pytest.mark.parametrize("passes", [1, 2])
def test_a_redriven_execution_takes_its_free_lock_again_with_a_new_token(
    bench: Bench, passes: int
) -> None:
    (before,) = bench.state.holders
    bench.end()
    for second in (False, True)[:passes]:
        bench.reap(second=second)
    bench.redrive()
    assert bench.beat("anna") is KeepAliveOutcome.REACQUIRED
    (holder,) = bench.state.holders
    assert holder.owner_name == "anna"
    assert holder.fencing_token == before.fencing_token + 1
    assert bench.beat("anna") is KeepAliveOutcome.RENEWED
    assert bench.reap(second=True).holders == 0
    bench.store().release(OWN_RELEASE)
    assert bench.holders() == []


@pytest.mark.parametrize("reaped_first", [True, False])
def test_a_redriven_execution_whose_lock_others_want_has_lost_it(
    bench: Bench, *, reaped_first: bool
) -> None:
    bench.end()
    if reaped_first:
        bench.reap()
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.reap()
    bench.redrive()
    assert bench.beat("anna") is KeepAliveOutcome.LOST
    assert bench.holders() == ["ben"]


def test_while_the_reaper_is_at_work_no_one_knows_and_the_next_heartbeat_does(bench: Bench) -> None:
    bench.end()
    with pytest.raises(LockStoreUnavailable):
        bench.reap(client=fault(lost_reply(), RELEASE_OF_PASS))
    goes_on = meanwhile(2, bench.reap)
    with pytest.raises(LockStoreUnavailable, match="repeat the call"):
        bench.beat("anna", over=goes_on)
    bench.redrive()
    assert bench.beat("anna") is KeepAliveOutcome.REACQUIRED


def redriven_and_renewed(bench: Bench, **fields: Any) -> None:  # noqa: ANN401 - of the request
    bench.redrive()
    assert bench.beat("anna", **fields) is KeepAliveOutcome.RENEWED


def test_a_heartbeat_that_takes_the_fence_away_keeps_its_lock_from_the_pass_under_way(
    bench: Bench,
) -> None:
    bench.end()
    answer = bench.reap(client=meanwhile(RELEASE_OF_PASS, lambda: redriven_and_renewed(bench)))
    assert (answer.holders, bench.holders()) == (0, ["anna"])


@pytest.mark.parametrize("permits", [1, 2])
def test_the_pass_that_hands_over_leaves_the_lock_to_a_heartbeat_too(
    bench: Bench, permits: int
) -> None:
    """Ben waits, so the pass reads the queue; with two permits he has no room after it, either."""
    fields: dict[str, Any] = {}
    if permits == 2:
        fields = {"owner_id": owner("anna2"), "limit": 2}
        bench.store().release(AFTER_ERROR)
        bench.pass_through()
        bench.wait("carl", execution_arn=OTHER_RUN, limit=2)
        bench.wait("anna", **fields)
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    bench.reap(client=meanwhile(RELEASE_OF_PASS + 2, lambda: redriven_and_renewed(bench, **fields)))
    assert "anna" in bench.holders()


def test_a_late_heartbeat_of_the_dead_that_takes_the_lock_is_freed_by_the_second_pass(
    bench: Bench,
) -> None:
    bench.end()
    bench.reap()
    assert bench.beat("anna") is KeepAliveOutcome.REACQUIRED
    assert bench.reap(second=True).holders == 1
    assert bench.holders() == []


@pytest.mark.parametrize("beats_before", [0, 1])
def test_a_heartbeat_that_lands_after_the_work_has_failed_takes_nothing(
    bench: Bench, beats_before: int
) -> None:
    """The function starts cold; the work fails meanwhile, and its release ends the claim."""
    for _ in range(beats_before):
        bench.beat("anna")
    bench.store().release(AFTER_ERROR)
    assert (bench.holders(), bench.claims()) == ([], [])
    assert bench.beat("anna") is KeepAliveOutcome.DONE
    assert (bench.holders(), bench.claims()) == ([], [])


def test_a_release_after_an_error_that_follows_the_own_one_keeps_its_mark(bench: Bench) -> None:
    bench.store().release(OWN_RELEASE)
    bench.store().release(AFTER_ERROR)
    assert bench.beat("anna") is KeepAliveOutcome.DONE


def test_a_release_that_is_not_held_still_ends_the_heartbeat(bench: Bench) -> None:
    bench.beat("anna")
    bench.release("anna")
    bench.ask("ben")
    bench.release("ben")
    assert isinstance(bench.store().release(OWN_RELEASE), NotHeld)
    assert bench.beat("anna") is KeepAliveOutcome.DONE


def test_a_loss_is_a_loss_even_if_the_table_does_not_say_why(bench: Bench) -> None:
    assert why_lost(bench.store(fault(lost_reply(), of=READS)).context, LOCK) == ""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lock_taken_again_whose_reply_was_lost_is_held(
    bench: Bench, when: Literal["before", "after"]
) -> None:
    bench.come_back()
    broken = fault(lost_reply(), 2, when=when)
    with pytest.raises(LockStoreUnavailable):
        bench.beat("anna", over=broken)
    outcome = bench.beat("anna")
    assert outcome is (KeepAliveOutcome.RENEWED if when == "after" else KeepAliveOutcome.REACQUIRED)
    assert bench.holders() == ["anna"]
