"""A copy of a write that lands after everything else changes nothing, or nothing that matters."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from fairlock.protocol import ceiling, claims, grants, leaving, waiters
from fairlock.protocol.model import AcquireRequest, Grant
from fairlock.protocol.outcomes import Refusal
from fairlock.store import acquire as store_acquire
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import acquire, owner, release
from tests.support import late_copies as scenes
from tests.support.faulty_table import Fault, FaultyTable, meanwhile
from tests.support.late_copies import Scene, Sight
from tests.support.store_bench import RUN, Bench, workflow_heartbeat

OUTDATED: Final = "(attribute_not_exists(#released_at) OR #released_at <= :outdated_at)"
LEFT_LAST: Final = "(attribute_not_exists(#released_at) OR #released_at <= :late_limit)"
LEFT_LAST_OF_ALL: Final = "(attribute_not_exists(#released_at) OR #released_at <= :released_at)"
MY_GRANT: Final = "#my_token = :seen_grant"
NOBODY_CAME_IN: Final = "#fencing_token = :seen_token"
STAGE: Final = "(attribute_not_exists(#fenced) OR #fenced <= :stage)"
REVISION: Final = "#mine.#h_revision = :seen_revision"
STILL_REAPED: Final = (
    "#revision = :seen AND (attribute_exists(#fenced) OR attribute_exists(#ended))"
)
UNCHANGED: Final = "#last_ceiling.#change = :seen_change"
DEPARTING: Final = "#departing_token = :seen_grant"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A write whose copy is refused.

    Attributes:
        makers: the functions of the protocol that make it.
        by: the conditions that refuse the copy.
        sees: what is looked at.
        right: what is seen although the copy landed.
        wrong: what would be seen if the conditions were not there.
    """

    makers: str
    scene: Scene
    by: tuple[str, ...]
    sees: Sight = Bench.holders
    right: object
    wrong: object


ANNA: Final = ["anna"]
first_advance = partial(scenes.stage_of_the_first_pass, text="attribute_exists(#fenced) AND #rev")
CASES: Final = {
    "an acquire of an owner that left": Case(
        makers="acquire_permit",
        scene=scenes.acquire_of_an_owner_that_left,
        by=(OUTDATED,),
        right=[],
        wrong=ANNA,
    ),
    "the second write of an owner that gave up": Case(
        makers="acquire_permit_as_seen",
        scene=scenes.second_write_of_an_owner_that_gave_up,
        by=("#released_at = :seen_released_at",),
        right=[],
        wrong=ANNA,
    ),
    "a takeover from a holder that renewed": Case(
        makers="take_over_permit",
        scene=scenes.takeover_from_a_holder_that_renewed,
        by=("#over0.#h_revision = :seen0",),
        right=ANNA,
        wrong=["ben"],
    ),
    "an eviction of an earlier grant": Case(
        makers="evict",
        scene=scenes.eviction_for_nobody,
        by=(NOBODY_CAME_IN, LEFT_LAST),
        right=["anna", "long", "run"],
        wrong=["long", "run"],
        sees=lambda bench: sorted(bench.holders()),
    ),
    "the heartbeat before the last": Case(
        makers="renew",
        scene=scenes.heartbeat_before_the_last,
        by=("#mine.#h_expires_at_ms <= :expires_at_ms",),
        sees=scenes.left_ms,
        right=60_000,
        wrong=40_000,
    ),
    "the heartbeat as seen before the last": Case(
        makers="renew_as_seen",
        scene=scenes.heartbeat_as_seen_before_the_last,
        by=(REVISION,),
        sees=scenes.left_ms,
        right=90_000,
        wrong=70_000,
    ),
    "the correction of a wrong clock, after a heartbeat": Case(
        makers="correct_grant",
        scene=partial(scenes.correction_before, another_grant=False),
        by=("#mine.#h_revision = :revision",),
        sees=scenes.left_ms,
        right=60_000,
        wrong=40_000,
    ),
    "the correction of an earlier grant": Case(
        makers="correct_grant",
        scene=partial(scenes.correction_before, another_grant=True),
        by=(MY_GRANT,),
        sees=scenes.left_ms,
        right=60_000,
        wrong=38_000,
    ),
    "an extension of an earlier grant": Case(
        makers="extend_lease",
        scene=scenes.extension_of_an_earlier_grant,
        by=(MY_GRANT,),
        sees=scenes.left_ms,
        right=60_000,
        wrong=8_000,
    ),
    "a release of an earlier grant": Case(
        makers="release_permit",
        scene=partial(scenes.release_before_another_grant, names_grant=True, seconds=0.3),
        by=(MY_GRANT,),
        right=ANNA,
        wrong=[],
    ),
    "a release that names no grant": Case(
        makers="release_permit",
        scene=partial(scenes.release_before_another_grant, names_grant=False, seconds=2),
        by=(LEFT_LAST,),
        right=ANNA,
        wrong=[],
    ),
    "a release on behalf of a redriven execution": Case(
        makers="release_permit still_reaped",
        scene=scenes.release_on_behalf_of_a_redriven_execution,
        by=(STILL_REAPED,),
        right=ANNA,
        wrong=[],
    ),
    "a release by force of an earlier grant": Case(
        makers="release_by_force",
        scene=scenes.release_by_force_of_an_earlier_grant,
        by=(DEPARTING,),
        right=ANNA,
        wrong=[],
    ),
    "a join with an older task token": Case(
        makers="join_queue",
        scene=scenes.join_with_an_older_task_token,
        by=("#asked_at_ms <= :asked_at",),
        sees=scenes.task_tokens,
        right=["second"],
        wrong=["first"],
    ),
    "a join of a waiter that left": Case(
        makers="join_queue",
        scene=scenes.join_of_a_waiter_that_left,
        by=(OUTDATED,),
        sees=Bench.waiters,
        right=[],
        wrong=ANNA,
    ),
    "a pause before another was lifted": Case(
        makers="set_ceiling",
        scene=scenes.pause_before_another_was_lifted,
        by=(UNCHANGED,),
        sees=scenes.ceiling_of,
        right=None,
        wrong=0,
    ),
    "a resume before another pause": Case(
        makers="raise_ceiling",
        scene=scenes.resume_before_another_pause,
        by=(UNCHANGED,),
        sees=scenes.ceiling_of,
        right=0,
        wrong=None,
    ),
    "the end of a queue that others joined": Case(
        makers="close_queue",
        scene=scenes.end_of_a_queue_that_others_joined,
        by=("#wait_seq = :wait_seq",),
        sees=scenes.is_contended,
        right=True,
        wrong=False,
    ),
    "a mark of an owner that gave up": Case(
        makers="mark_given_up",
        scene=scenes.give_up_before_others_released,
        by=(LEFT_LAST_OF_ALL,),
        sees=scenes.last_given_up,
        right=None,
        wrong=owner("anna"),
    ),
    "a waiter that gave up and was served": Case(
        makers="give_up leave_queue",
        scene=partial(scenes.give_up_before_others_released, joins=True),
        by=(LEFT_LAST_OF_ALL, "#owner_id = :me"),
        sees=scenes.last_released,
        right=owner("zoe"),
        wrong=owner("anna"),
    ),
    "the removal of a waiter that came back": Case(
        makers="clear_waiters",
        scene=scenes.removal_of_a_waiter_that_came_back,
        by=("#expires_at_ms = :seen_expires_at_ms",),
        sees=Bench.waiters,
        right=ANNA,
        wrong=[],
    ),
    "a hand-off to a waiter that was served": Case(
        makers="serve_waiter delete_waiter",
        scene=scenes.hand_off_to_a_waiter_that_was_served,
        by=(DEPARTING, LEFT_LAST, NOBODY_CAME_IN, "#expires_at_ms = :seen_expires_at_ms"),
        right=["holder"],
        wrong=ANNA,
    ),
    "an eviction without successor": Case(
        makers="leave_without_successor",
        scene=scenes.eviction_without_successor,
        by=("#over_token0 = :seen_grant", LEFT_LAST, "#wait_seq = :wait_seq"),
        right=ANNA,
        wrong=[],
    ),
    "a mark of a grant that no one was told of": Case(
        makers="mark_undelivered",
        scene=scenes.mark_of_a_grant_that_nobody_was_told_of,
        by=(MY_GRANT,),
        sees=scenes.is_undelivered,
        right=[False],
        wrong=[True],
    ),
    "a mark of a grant that its owner has renewed": Case(
        makers="mark_undelivered",
        scene=partial(scenes.mark_of_a_grant_that_nobody_was_told_of, renewed=True),
        by=("#mine.#h_revision = :one",),
        sees=scenes.left_ms,
        right=600_000,
        wrong=59_000,
    ),
    "the claim of an acquisition that is done": Case(
        makers="write_claim",
        scene=scenes.claim_of_an_acquisition_that_is_done,
        by=("attribute_not_exists(#ended)",),
        sees=lambda bench: bench.claims(done=True)[0]["revision"],
        right={"N": "1"},
        wrong={"N": "2"},
    ),
    "a claim that is done, under a pass": Case(
        makers="mark_done",
        scene=scenes.done_under_a_pass,
        by=("attribute_not_exists(#fenced)",),
        sees=scenes.stages,
        right=["2"],
        wrong=[],
    ),
    "the removal of a claim, under a pass": Case(
        makers="forget_claim",
        scene=scenes.removal_of_a_claim_under_a_pass,
        by=("attribute_not_exists(#fenced)",),
        sees=scenes.stages,
        right=["2"],
        wrong=[],
    ),
    "a claim that is done, before a redrive": Case(
        makers="mark_done",
        scene=scenes.done_before_a_redrive,
        by=("#revision <= :now",),
        sees=lambda bench: bench.store().keep_alive(workflow_heartbeat("anna")).name,
        right="RENEWED",
        wrong="DONE",
    ),
    "a heartbeat before a redrive": Case(
        makers="record_heartbeat",
        scene=scenes.heartbeat_before_a_redrive,
        by=("#asked_at_ms <= :now",),
        sees=scenes.task_tokens,
        right=["second"],
        wrong=["first"],
    ),
    "the end of work that has ended": Case(
        makers="mark_ended",
        scene=scenes.end_of_work_that_has_ended,
        by=("attribute_not_exists(#ended)",),
        sees=lambda bench: bench.claims(done=True)[0]["revision"],
        right={"N": "2"},
        wrong={"N": "3"},
    ),
    "the fence of an earlier pass": Case(
        makers="fence_claim",
        scene=partial(scenes.stage_of_the_first_pass, text="SET #fenced = :stage"),
        by=(STAGE,),
        sees=scenes.stages,
        right=["4"],
        wrong=["1"],
    ),
    "the progress of an earlier pass": Case(
        makers="advance_claim",
        scene=first_advance,
        by=(STAGE,),
        sees=scenes.stages,
        right=["4"],
        wrong=["2"],
    ),
    "a heartbeat of a state that was repeated": Case(
        makers="record_heartbeat",
        scene=scenes.heartbeat_of_a_state_that_was_repeated,
        by=("#asked_at_ms <= :now",),
        sees=scenes.task_tokens,
        right=["second"],
        wrong=["first"],
    ),
    "a heartbeat of an execution that is over again": Case(
        makers="reacquire_after_redrive reacquire_permit",
        scene=scenes.redriven_and_over_again,
        by=("#fenced = :stage",),
        right=[],
        wrong=ANNA,
    ),
    "a renewal under a fence": Case(
        makers="renew_under_fence",
        scene=scenes.renewal_under_a_fence,
        by=("#fenced = :stage", REVISION),
        sees=scenes.task_tokens,
        right=["second"],
        wrong=["first"],
    ),
}
HARMLESS: Final = {"confirm_join", "fence_claim", "leave_queue"}
"""Their copies may be written; tests of their own say why that does not matter."""


@pytest.mark.parametrize("name", CASES)
def test_a_late_copy_changes_nothing(bench: Bench, name: str) -> None:
    case = CASES[name]
    wire = case.scene(bench)
    before = dict(bench.client.items)
    assert not wire.land()
    assert bench.client.items == before
    assert case.sees(bench) == case.right


@pytest.mark.parametrize("name", CASES)
def test_without_its_condition_the_copy_would_do_harm(bench: Bench, name: str) -> None:
    """The control of the test above."""
    case = CASES[name]
    wire = case.scene(bench)
    assert wire.land(without=case.by)
    assert case.sees(bench) == case.wrong


def test_every_write_of_the_protocol_has_a_case() -> None:
    makers = {
        name
        for module in (grants, waiters, leaving, ceiling, claims)
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and any(
            kind in function.__annotations__["return"]
            for kind in ("Update", "Put", "Delete", "Transaction", "Check")
        )
    }
    covered = {maker for case in CASES.values() for maker in case.makers.split()}
    assert makers == covered | HARMLESS


def test_a_late_confirmation_costs_the_next_owner_requests_and_nothing_else(bench: Bench) -> None:
    assert scenes.confirmation_of_a_waiter_that_left(bench).land()
    bench.grant("ben")
    assert not scenes.is_contended(bench)


def test_a_late_fence_is_taken_away_by_the_next_heartbeat(bench: Bench) -> None:
    assert scenes.fence_of_a_redriven_execution(bench).land()
    assert scenes.stages(bench) == ["1"]
    assert bench.store().keep_alive(workflow_heartbeat("anna")) is KeepAliveOutcome.RENEWED
    assert ["fenced" in claim for claim in bench.claims()] == [False]
    assert bench.reap(second=True).holders == 0
    assert bench.holders() == ["anna"]


def test_a_late_removal_of_a_claim_leaves_the_heartbeats_of_a_reused_owner_id(bench: Bench) -> None:
    wire = scenes.removal_of_a_claim(bench)
    scenes.passes(bench, "zoe")
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    assert wire.land()
    assert bench.store().keep_alive(workflow_heartbeat("anna")) is KeepAliveOutcome.RENEWED


def test_a_late_departure_of_a_dead_waiter_finds_no_one(bench: Bench) -> None:
    """Its claim is fenced, so it never has that place again."""
    assert not scenes.departure_of_a_waiter_of_the_dead(bench).land()
    assert bench.waiters() == ["ben"]


@pytest.mark.parametrize("at_once", [True, False], ids=["behind its claim", "before its write"])
@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_a_call_that_stalled_until_its_work_had_ended_is_granted_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, protected: bool, at_once: bool
) -> None:
    """Its own time is old, so its first write is refused; but code goes on, where a copy cannot."""
    if not protected:
        monkeypatch.setattr(store_acquire, "still_wanted", always_wanted)
    request = acquire("anna", execution_arn=RUN)

    def pass_by() -> None:
        bench.clock.advance(2)
        assert isinstance(bench.store().acquire(request), Grant)
        bench.store().release(release("anna", execution_arn=RUN))
        bench.clock.advance(2)
        bench.pass_through()

    stall = Fault(at=1, after=pass_by) if at_once else meanwhile(2, pass_by)
    answer = bench.store(FaultyTable(bench.client, stall)).acquire(request)
    assert isinstance(answer, Refusal) is protected
    assert bench.holders() == ([] if protected else ["anna"])


def always_wanted(_context: object, request: AcquireRequest) -> AcquireRequest:
    return request
