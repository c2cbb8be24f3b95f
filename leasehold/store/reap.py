"""Reap: free what a workflow that is over has left behind.

An execution that was stopped, timed out or failed runs no Catch, so its locks are released on its
behalf, and its places in queues given up. It is looked at twice:

    for all claims      bar the claim ────▶ delete the waiter
    then for each       release the lock ─▶ note that it is done
    then for those that say that their work is done, and have most probably released: the same

An acquire that was under way when the execution ended may land after the first look. If it had its
claim on record by then, the second look finds what it got; if not, the claim is fenced, or the
second look is the first that sees it. It comes when no such acquire can be under way any more.

All waiters go before any lock is released: else a lock would be handed from one dead acquisition to
the next. Everything here may be repeated, come late, and be interrupted: what is done is noted in
the claims, so that a look which runs out of time is taken up where it ended. Locks of other
executions are never touched, nor what the same execution got after a redrive, see `_look_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from leasehold.dynamodb.lock_table import Written
from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.claims import Claim, Stage, advance, bar, claims_of, read_claim
from leasehold.protocol.model import ExecutionEnded, Liveness, Reaped, Released, ReleaseRequest
from leasehold.protocol.queue import leave_queue
from leasehold.store.context import LockContext
from leasehold.store.release import release
from leasehold.workflows.executions import Describe


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Which claims to look at, and to which stages they come.

    Attributes:
        left_queue: the stage of a claim whose place in the queue was given up.
        freed: the stage of a claim that this look is done with.
        only_fenced: whether claims that no look has seen before are left alone.
    """

    left_queue: Stage
    freed: Stage
    only_fenced: bool = False

    def concerns(self, claim: Claim) -> bool:
        fenced = claim.stage > Stage.RECORDED
        return claim.stage < self.freed and (fenced or not self.only_fenced)


_FIRST: Final = _Look(left_queue=Stage.LEFT_QUEUE_FIRST, freed=Stage.FREED_FIRST)
_SECOND: Final = _Look(left_queue=Stage.LEFT_QUEUE_SECOND, freed=Stage.FREED_SECOND)


def reap(context: LockContext, ended: ExecutionEnded, describe: Describe) -> Reaped:
    """See `LockStore.reap`."""
    if context.retry_budget.has_ended():
        # Others in its batch took the time; what is left of it must do to send the message again.
        return Reaped(complete=False)
    arn = ended.execution_arn
    stage = (_SECOND if ended.second_pass else _FIRST).freed
    items = context.table.query_all(claims_of(arn, before=stage))
    # Most executions that end never had a lock: Step Functions is asked about the others only.
    if not items:
        return Reaped()
    look = _look_at(ended, describe)
    claims = [claim for item in items if look.concerns(claim := read_claim(arn, item))]
    return _reap(context, claims, look)


def _look_at(ended: ExecutionEnded, describe: Describe) -> _Look:
    """What to look at, as Step Functions tells: the execution may have been redriven since.

    DescribeExecution is eventually consistent, so "running" counts only if it knows of a redrive
    that the event does not. Then a claim that is fenced already is freed nevertheless: nobody
    works under it any more, except with keep_alive, whose beats unbar it. If one of those does so
    in the same moment, the lock may be taken from it, and the next beat says that it is lost.

    An event that is outdated never says that claims are free for good. Another one is on its way.
    """
    execution = describe(ended.execution_arn)
    if execution.liveness is Liveness.UNKNOWN:
        message = "Step Functions did not say whether the execution is over; repeat the call"
        raise LockStoreUnavailable(message)
    look = _SECOND if ended.second_pass else _FIRST
    if execution.redrives <= ended.redrives:
        return look
    return _Look(
        left_queue=Stage.LEFT_QUEUE_FIRST,
        freed=Stage(min(look.freed, Stage.LEFT_QUEUE_SECOND)),
        only_fenced=execution.liveness is Liveness.RUNNING,
    )


def _reap(context: LockContext, claims: Sequence[Claim], look: _Look) -> Reaped:
    waiters = holders = 0
    fenced: list[Claim] = []
    live = [claim for claim in claims if not claim.ended]
    for claim in live:
        if context.retry_budget.has_ended():
            return Reaped(waiters=waiters, complete=False)
        if claim.stage >= look.left_queue:
            fenced.append(claim)
        elif _bar(context, claim, look.left_queue):
            fenced.append(claim)
            waiters += _stop_waiting(context, claim)
    for claim in fenced:
        if context.retry_budget.has_ended():
            return Reaped(holders=holders, waiters=waiters, complete=False)
        holders += _free(context, claim)
        context.table.update(advance(claim, look.freed, now_ms=context.clock.wall_ms()))
    done = len(fenced) == len(live)
    for claim in (claim for claim in claims if claim.ended):
        if context.retry_budget.has_ended():
            return Reaped(holders=holders, waiters=waiters, complete=False)
        waiters += _stop_waiting(context, claim)
        holders += _free(context, claim)
        done &= _bar(context, claim, look.freed)
    # Whoever wrote a claim meanwhile may belong to the redriven execution: ask once more.
    return Reaped(holders=holders, waiters=waiters, complete=done)


def _bar(context: LockContext, claim: Claim, stage: Stage) -> bool:
    outcome = context.table.update(bar(claim, stage, now_ms=context.clock.wall_ms()))
    return isinstance(outcome, Written)


def _stop_waiting(context: LockContext, claim: Claim) -> bool:
    if claim.entered_at_ms is None:
        return False
    waiter = _release_request(claim)
    return context.table.delete(leave_queue(waiter, entered_at_ms=claim.entered_at_ms))


def _free(context: LockContext, claim: Claim) -> bool:
    """Releases on behalf of the execution; tells whether there was a permit to free."""
    answer = release(context, _release_request(claim), is_queued=False)
    return isinstance(answer, Released) and answer.held_ms is not None


def _release_request(claim: Claim) -> ReleaseRequest:
    return ReleaseRequest(
        lock_name=claim.lock_name,
        owner_id=claim.owner_id,
        # One that has ended need not be marked as released: its claim tells late acquires.
        entered_at_ms=None if claim.ended else claim.entered_at_ms,
    )
