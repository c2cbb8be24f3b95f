"""Reap: free what a workflow that is over has left behind.

The reaper makes two passes over the claims of the execution:

    all claims                     fence the claim ──▶ delete the waiter
    then each of them              release the lock ─▶ advance the claim
    then claims whose work ended,  delete the waiter, release the lock, fence the claim
    which most probably released

All waiters go before any lock: else a lock would be handed from one dead acquisition to the next. A
pass may be repeated, come late, and be interrupted: the claims record its progress.

An event is a permanent truth about one run of an execution: it frees the claims of that run and of
earlier ones, and no service is asked. Of claims that do not tell their run, and for events that do
not tell theirs, Step Functions says whether the execution is over (`_choose_pass`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairlock.aws.executions import Execution, Liveness
from fairlock.aws.lock_table import Written
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.claims import (
    SECOND_PASS_MS,
    Claim,
    ReapStage,
    advance_claim,
    claims_of,
    fence_claim,
    is_of_a_run_that_ended,
    read_claim,
    still_reaped,
)
from fairlock.protocol.model import ReleaseRequest
from fairlock.protocol.outcomes import Reaped, Released
from fairlock.protocol.waiters import leave_queue
from fairlock.store.context import LockContext
from fairlock.store.release import give_back

_EARLIEST_MS: Final = 2_000
"""SQS counts a delay from its own receipt, and two services of AWS may differ by a second."""


_OLD_MS: Final = 24 * 3_600_000
"""Of an event: the queue brings none so late, but an archive may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionEnded:
    """A workflow execution was stopped, timed out, or failed, after so many redrives.

    The event says when, or nothing of both. At the second pass no acquire of it is under way.
    """

    execution_arn: str
    redrives: int = 0
    ended_at_ms: int | None = None
    second_pass: bool = False


class AskedTooEarly(LockStoreUnavailable):
    """Step Functions says that the execution runs, or has ended just now. Nothing was freed.

    The answer may be outdated, so the same message is worth repeating a little later.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReapPass:
    """The stages to which a pass brings claims: waiter deleted, then lock released as well.

    With `only_fenced` it leaves claims alone that no earlier pass has fenced.
    """

    fenced: ReapStage
    done: ReapStage
    only_fenced: bool = False

    def concerns(self, claim: Claim) -> bool:
        is_fenced = claim.stage > ReapStage.REGISTERED
        return claim.stage < self.done and (is_fenced or not self.only_fenced)


_FIRST_PASS: Final = _ReapPass(fenced=ReapStage.FIRST_PASS_FENCED, done=ReapStage.FIRST_PASS_DONE)
_SECOND_PASS: Final = _ReapPass(
    fenced=ReapStage.SECOND_PASS_FENCED, done=ReapStage.SECOND_PASS_DONE
)


def reap(context: LockContext, ended: ExecutionEnded) -> Reaped:
    """Frees the locks of a workflow execution that is over, and gives up its places in queues.

    What a later run has claimed is left alone. May be repeated, and goes on where it ran out of
    time. Of claims that do not tell their run, frees only what Step Functions confirms.

    Raises:
        AskedTooEarly: the execution runs, or has ended just now.
        LockStoreUnavailable: outcome unknown.
    """
    if context.retry_budget.deadline_passed():
        # The others of its batch took the time; the rest of it must do to send the message again.
        return Reaped(complete=False)
    arn = ended.execution_arn
    stage = (_SECOND_PASS if ended.second_pass else _FIRST_PASS).done
    items = context.table.query_all(claims_of(arn, before=stage))
    # Most executions that end never had a lock: Step Functions is asked about the others only.
    # No claim now is none later: a late acquire writes its claim first, and the second pass sees
    # it.
    if not items:
        return Reaped()
    claims = [read_claim(arn, item) for item in items]
    sure: list[Claim] = []
    unsure: list[Claim] = []
    for claim in claims:
        # Each claim by its own run: a redriven execution has claims of several.
        if _is_over(context, claim, ended):
            sure.append(claim)
        # The claim of a later run is freed by the end of that run.
        elif ended.ended_at_ms is None or (claim.redrives or 0) <= ended.redrives:
            unsure.append(claim)
    # The sure ones first, and without a question: of 10,000 stopped executions none may wait for
    # the 15 answers a second that Step Functions gives.
    freed = _reap(context, sure, _SECOND_PASS if ended.second_pass else _FIRST_PASS)
    # Out of time: the same message comes again, and finds by the stages what is done.
    if not unsure or not freed.complete:
        return freed
    reap_pass = _choose_pass(context, ended)
    rest = _reap(context, [claim for claim in unsure if reap_pass.concerns(claim)], reap_pass)
    return Reaped(
        holders=freed.holders + rest.holders,
        waiters=freed.waiters + rest.waiters,
        complete=rest.complete,
    )


def _is_over(context: LockContext, claim: Claim, ended: ExecutionEnded) -> bool:
    """Whether the event alone proves that the work under a claim is over, without a question."""
    if ended.ended_at_ms is None:
        return False
    passed_ms = context.now_ms() - ended.ended_at_ms
    # An old event may come out of an archive, after the name of its execution was used again. And a
    # second pass that comes too soon would leave behind what an acquire under way still gets.
    if passed_ms > _OLD_MS or (ended.second_pass and passed_ms < SECOND_PASS_MS - _EARLIEST_MS):
        return False
    return is_of_a_run_that_ended(claim, redrives=ended.redrives, ended_at_ms=ended.ended_at_ms)


def _choose_pass(context: LockContext, ended: ExecutionEnded) -> _ReapPass:
    """The pass that this message calls for, as far as Step Functions confirms what it says.

    An execution that was redriven since the message loses only what is fenced already: no one works
    under these claims any more, except with keep_alive, whose heartbeats take the fence away. A
    message that is outdated never brings claims to the last stage. A later one is on its way.
    """
    arn = ended.execution_arn
    execution = context.workflows.describe(arn)
    if execution.liveness is Liveness.UNKNOWN:
        message = f"Step Functions did not say whether execution {arn} is over; repeat the call"
        raise LockStoreUnavailable(message)
    reap_pass = _SECOND_PASS if ended.second_pass else _FIRST_PASS
    runs = execution.liveness is Liveness.RUNNING
    # Someone has redriven it: the claims of the new run are not ours to fence, and only those that
    # were fenced before are certainly of the old run.
    if execution.redrives > ended.redrives:
        return _ReapPass(
            fenced=ReapStage.FIRST_PASS_FENCED,
            done=min(reap_pass.done, ReapStage.SECOND_PASS_FENCED),
            only_fenced=runs,
        )
    # The event says that it is over and Step Functions that it runs, in the same run: one of them
    # is behind. To free now could let two work; to ask again costs a little time.
    if runs:
        raise AskedTooEarly(f"execution {arn} runs, says Step Functions; repeat the call later")
    if ended.second_pass and _ended_just_now(context, execution):
        raise AskedTooEarly(f"execution {arn} has ended just now; repeat the call later")
    return reap_pass


def _ended_just_now(context: LockContext, execution: Execution) -> bool:
    if execution.ended_at_ms is None:
        return False
    passed_ms = context.now_ms() - execution.ended_at_ms
    return passed_ms < SECOND_PASS_MS - _EARLIEST_MS


def _reap(context: LockContext, claims: Sequence[Claim], reap_pass: _ReapPass) -> Reaped:
    holders = 0
    fenced: list[Claim] = []
    left: list[Claim] = []
    live = [claim for claim in claims if not claim.ended]
    # Fenced first: an acquire of the dead that is still under way must not get what is freed below.
    # The stage is in the claim, so a pass that dies here goes on with the next message.
    for claim in live:
        if context.retry_budget.deadline_passed():
            return Reaped(waiters=len(left), complete=False)
        if claim.stage >= reap_pass.fenced:
            fenced.append(claim)
        # Refused if the claim was written since it was read: by the redriven execution, perhaps.
        elif _fence(context, claim, reap_pass.fenced):
            fenced.append(claim)
            if _stop_waiting(context, claim):
                left.append(claim)
    waiters = len(left)
    done = len(fenced) == len(live)
    for claim in fenced:
        if context.retry_budget.deadline_passed():
            return Reaped(holders=holders, waiters=waiters, complete=False)
        # The first pass has marked when this owner left, and no acquire of a fenced claim was
        # called later: the mark refuses all that may still land. What landed in between is left.
        marks = claim.stage != ReapStage.FIRST_PASS_DONE or claim in left
        holders += _free(context, claim, marks=marks)
        # Only once the lock is free: after a crash in between the lock is released a second time,
        # which finds nothing; the other order would leave it to its lease.
        advance = advance_claim(claim, reap_pass.done, now_ms=context.now_ms())
        # Refused if a heartbeat has taken the fence away: the same message must look again.
        done &= isinstance(context.table.update(advance), Written)
    # Their own releases have most probably done it. One that died half-way has no one else to
    # finish.
    for claim in (claim for claim in claims if claim.ended):
        if context.retry_budget.deadline_passed():
            return Reaped(holders=holders, waiters=waiters, complete=False)
        waiters += _stop_waiting(context, claim)
        # An ended acquisition needs no mark in the lock: its claim refuses late acquires.
        holders += _free(context, claim, marks=False)
        done &= _fence(context, claim, reap_pass.done)
    # A claim that was written meanwhile may belong to the redriven execution: ask once more.
    return Reaped(holders=holders, waiters=waiters, complete=done)


def _fence(context: LockContext, claim: Claim, stage: ReapStage) -> bool:
    outcome = context.table.update(fence_claim(claim, stage, now_ms=context.now_ms()))
    return isinstance(outcome, Written)


def _stop_waiting(context: LockContext, claim: Claim) -> bool:
    if claim.entered_at_ms is None:
        return False
    request = _release_request(claim, marks=False)
    return context.table.delete(leave_queue(request, entered_at_ms=claim.entered_at_ms))


def _free(context: LockContext, claim: Claim, *, marks: bool) -> bool:
    """Releases the lock on behalf of the execution; tells whether there was a permit to free.

    If there was none, `marks` in the lock that the owner has left, so that no acquire of it lands.
    On condition that the claim stands as it was seen: what a redriven execution was granted stays.
    """
    check = still_reaped(claim)
    request = _release_request(claim, marks=marks)
    answer = give_back(context, request, is_queued=False, check=check)
    return isinstance(answer, Released) and answer.gave_back


def _release_request(claim: Claim, *, marks: bool) -> ReleaseRequest:
    return ReleaseRequest(
        lock_name=claim.lock_name, owner_id=claim.owner_id, waits=marks, ticket=claim.entered_at_ms
    )
