"""Copies of writes on the claims of executions that land late: after releases, passes, redrives."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from fairlock.errors import LockStoreUnavailable
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import acquire, release
from tests.support.late_copies import ANNA, KEEPS_THE_TOKEN, REVISION, late_copy
from tests.support.store_bench import RUN, Bench, Wire, copied, late, workflow_heartbeat

STAGE: Final = "(attribute_not_exists(#fenced) OR #fenced <= :stage)"


def revision(bench: Bench) -> object:
    (claim,) = bench.claims(done=True)
    return claim["revision"]["N"]


def stages(bench: Bench) -> list[str]:
    return [claim["fenced"]["N"] for claim in bench.claims()]


@late_copy(
    "write_claim",
    "attribute_not_exists(#ended)",
    sees=revision,
    right="1",
    wrong="2",
)
def claim_of_an_acquisition_that_is_done(bench: Bench) -> Wire:
    wire = Wire(bench.client, "SET #lock_name = :lock_name")
    bench.store(wire).acquire(acquire("anna", execution_arn=RUN))
    bench.release("anna", execution_arn=RUN)
    return wire


@late_copy("mark_done", "attribute_not_exists(#fenced)", sees=stages, right=["2"])
def done_under_a_pass(bench: Bench) -> Wire:
    bench.wait("anna")
    leaving = release("anna", execution_arn=RUN)
    wire = late(bench, "#done = if_not_exists(#done, :done)", lambda store: store.release(leaving))
    bench.end()
    bench.reap()
    return wire


@late_copy(
    "mark_done",
    "#revision <= :now",
    sees=lambda bench: bench.beat("anna").name,
    right="RENEWED",
    wrong="DONE",
)
def done_before_a_redrive(bench: Bench) -> Wire:
    wire = done_under_a_pass(bench)
    bench.redrive()
    bench.clock.advance(1)
    assert bench.beat("anna") is KeepAliveOutcome.REACQUIRED
    return wire


def removal_of_a_claim(bench: Bench) -> Wire:
    """The release names no execution, so the claim of its grant is removed."""
    bench.ask("anna", execution_arn=RUN)
    return late(bench, " | attribute_not_exists", lambda store: store.release(release("anna")))


@late_copy("forget_claim", "attribute_not_exists(#fenced)", sees=stages, right=["2"])
def removal_of_a_claim_under_a_pass(bench: Bench) -> Wire:
    wire = removal_of_a_claim(bench)
    bench.end()
    bench.reap()
    return wire


@late_copy("record_heartbeat", "#asked_at_ms <= :now", redriven=True, **KEEPS_THE_TOKEN)
@late_copy("record_heartbeat", "#asked_at_ms <= :now", redriven=False, **KEEPS_THE_TOKEN)
def heartbeat_before_the_last_one(bench: Bench, *, redriven: bool) -> Wire:
    bench.wait("anna")
    first = workflow_heartbeat("anna", "first")
    wire = late(bench, "SET #task_token", lambda store: store.keep_alive(first))
    if redriven:
        bench.come_back()
    bench.clock.advance(3)
    bench.beat("anna", "second")
    return wire


@late_copy(
    "mark_ended",
    "attribute_not_exists(#ended)",
    sees=revision,
    right="2",
    wrong="3",
)
def end_of_work_that_has_ended(bench: Bench) -> Wire:
    bench.wait("anna")
    leaving = release("anna", execution_arn=RUN, keep_alive=True)
    wire = copied(bench, "#ended = :yes, #expiry_time", lambda store: store.release(leaving))
    bench.clock.advance(5)
    return wire


@late_copy("fence_claim", STAGE, sees=stages, right=["4"], wrong=["1"], text="SET #fenced = :stage")
@late_copy(
    "advance_claim",
    STAGE,
    sees=stages,
    right=["4"],
    wrong=["2"],
    text="attribute_exists(#fenced) AND #rev",
)
def stage_of_the_first_pass(bench: Bench, *, text: str) -> Wire:
    bench.ask("anna", execution_arn=RUN)
    bench.end()
    wire = Wire(bench.client, text)
    bench.reap(client=wire)
    bench.clock.advance(40)
    bench.reap(second=True)
    return wire


def fence_of_a_redriven_execution(bench: Bench) -> Wire:
    bench.wait("anna")
    bench.beat("anna")
    bench.end()
    wire = Wire(bench.client, "SET #fenced = :stage", held_back=True)
    with suppress(LockStoreUnavailable):
        bench.reap(client=wire)
    bench.redrive()
    return wire


@late_copy("reacquire_after_redrive reacquire_permit", "#fenced = :stage", right=[], wrong=ANNA)
def redriven_and_over_again(bench: Bench) -> Wire:
    bench.wait("anna")
    bench.come_back()
    beat = workflow_heartbeat("anna")
    wire = late(bench, "SET #mine = :holder", lambda store: store.keep_alive(beat))
    bench.end(redrives=1)
    for second in (False, True):
        bench.reap(second=second, redrives=1)
        bench.clock.advance(40)
    return wire


@late_copy("renew_under_fence", "#fenced = :stage", REVISION, **KEEPS_THE_TOKEN)
def renewal_under_a_fence(bench: Bench) -> Wire:
    assert fence_of_a_redriven_execution(bench).land()
    beat = workflow_heartbeat("anna", "first")
    wire = copied(bench, "= :seen_revision", lambda store: store.keep_alive(beat))
    bench.clock.advance(20)
    bench.beat("anna", "second")
    return wire
