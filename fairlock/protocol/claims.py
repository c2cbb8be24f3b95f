"""The writes of claims: the locks that a workflow execution asked for, so that its end frees them.

An acquire writes its claim before it asks for its lock. A release marks the claim as done once the
lock is free; with keep_alive, or from the queue, also as ended before that: so a heartbeat that
finds the lock free knows that it is not lost, and a late acquire that no one wants the lock any
more. The reaper fences a claim, so that no late acquire writes it again, and advances it pass by
pass.

A claim decides nothing about who holds a lock. Its revision grows with every write except those of
the reaper, which fences a claim only as it was before Step Functions was asked: else the claim may
be one of the redriven execution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.grants import beside_newer, reacquire_permit, renew_as_seen
from fairlock.protocol.items import number_in, reads_an_item, text_in
from fairlock.protocol.model import AcquireRequest, HeartbeatRequest, LockState, ReleaseRequest
from fairlock.protocol.schema import (
    Part,
    Values,
    all_of,
    attributes,
    conditional_update,
    names_in,
    number,
)
from fairlock.protocol.table_requests import Check, Delete, Item, Put, Query, Transaction, Update

_AS_SEEN: Final = "#revision = :seen"
_NEXT_REVISION: Final = "#revision :one"
_NOT_ENDED: Final = "attribute_not_exists(#ended)"
_FENCED: Final = "attribute_exists(#fenced)"
_NO_STAGE_BACK: Final = "(attribute_not_exists(#fenced) OR #fenced <= :stage)"
"""A late copy of an earlier pass must not take a later one back."""
_NOT_FENCED: Final = "attribute_not_exists(#fenced)"
_GAVE_BACK: Final = "gave back"
_NOT_HELD: Final = "not held"
_NOT_LATER_RUN: Final = "(attribute_not_exists(#redrives) OR #redrives <= :redrives)"
"""A late call of a run that has ended must not take the claim of the redriven one for its own."""


class ReapStage(IntEnum):
    """How far the reaper is with a claim; from the first pass on the claim is fenced."""

    REGISTERED = 0
    FIRST_PASS_FENCED = 1
    FIRST_PASS_DONE = 2
    SECOND_PASS_FENCED = 3
    SECOND_PASS_DONE = 4
    """Nothing of this acquisition can be under way any more."""


SECOND_PASS_MS: Final = 35_000
"""From the end of an execution to its second pass: longer than an acquire, its cold start included,
that was called before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One acquisition of a workflow execution.

    Attributes:
        entered_at_ms: its place in the queue; None if it never asked to wait.
        redrives: how often its execution had been redriven when it was written, if that was known.
        written_at_ms: when it was written last, but for the reaper; None if it is not known.
        task_token: of the last heartbeat.
    """

    execution_arn: str
    lock_name: str
    owner_id: str = field(repr=False)
    entered_at_ms: int | None = None
    stage: int = ReapStage.REGISTERED
    revision: int = 0
    ended: bool = False
    redrives: int | None = None
    written_at_ms: int | None = None
    task_token: str | None = field(default=None, repr=False)

    @property
    def key(self) -> Item:
        """The key of its item."""
        return schema.claim_key(
            self.execution_arn, lock_name=self.lock_name, owner_id=self.owner_id
        )


def claim_of(request: AcquireRequest | ReleaseRequest, execution_arn: str) -> Claim:
    """The claim of an acquisition by this execution."""
    return Claim(
        execution_arn=execution_arn,
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        redrives=request.redrives if isinstance(request, AcquireRequest) else None,
    )


def _run_of(claim: Claim) -> Part:
    """What a write says of the run that makes it."""
    if claim.redrives is None:
        return Part(removes={"#redrives": schema.REDRIVES})
    values: Values = {":redrives": number(claim.redrives)}
    return Part(_NOT_LATER_RUN, values, sets="#redrives = :redrives")


def write_claim(claim: Claim, *, waits: bool, now_ms: int) -> Update:
    """Write the claim, or write it again. Refused if its work or its execution is over.

    The first call that `waits` gets the present time as its place in the queue, all later ones
    keep that place; the item that is returned has it. No caller can choose it.
    """
    place = "#entered_at_ms = if_not_exists(#entered_at_ms, :now), " if waits else ""
    return conditional_update(
        claim.key,
        Part(
            all_of(_NOT_ENDED, _NOT_FENCED),
            {":lock_name": {"S": claim.lock_name}},
            sets="#lock_name = :lock_name, #owner_id = :me, "
            f"{place}#written_at_ms = :now, #expiry_time = :retain_until",
            adds=_NEXT_REVISION,
        ),
        _run_of(claim),
        owner_id=claim.owner_id,
        now_ms=now_ms,
    )


def forget_claim(claim: Claim) -> Delete:
    """Delete the claim of a grant that was released without its execution being named.

    It must not be marked as done, because its heartbeats must report a loss. A claim that is ended
    or fenced stays, for late calls and for the reaper.
    """
    condition = all_of(_NOT_ENDED, _NOT_FENCED)
    return Delete(key=claim.key, condition=condition, names=names_in(condition), values={})


def mark_done(claim: Claim, *, gave_back: bool, kept_alive: bool, now_ms: int) -> Update:
    """Mark the work as ended and its lock as free: only late calls need the claim from now on.

    A deleted claim could be written again by a late call, which would then be granted the lock for
    no one. A fenced one stays as it is, and so does one that a heartbeat of the redriven execution
    has written since, with the time as its revision. One that was `kept_alive` is retained as long
    as before, because a heartbeat may come hours later.

    Returns the claim as it was. How it was done first stays: a repeat is answered as the first call
    was.
    """
    soon = "" if kept_alive else ", #expiry_time = :done_until"
    retained_ms = schema.DONE_CLAIM_RETENTION_MS
    part = Part(
        all_of("attribute_exists(#pk)", _NOT_FENCED, "#revision <= :now"),
        {
            ":done": {"S": _GAVE_BACK if gave_back else _NOT_HELD},
            ":done_until": number(schema.ttl_seconds(now_ms, retained_ms)),
        },
        sets=f"#ended = :yes, #done = if_not_exists(#done, :done){soon}",
    )
    return conditional_update(claim.key, part, returns="ALL_OLD", now_ms=now_ms)


def still_reaped(claim: Claim) -> Check:
    """The claim is as seen, and fenced unless its work has ended: no heartbeat took that away."""
    condition = all_of(_AS_SEEN, f"({_FENCED} OR attribute_exists(#ended))")
    return Check(
        key=claim.key,
        condition=condition,
        names=names_in(condition),
        values={":seen": number(claim.revision)},
    )


def fence_claim(claim: Claim, stage: ReapStage, *, now_ms: int) -> Update:
    """Let no one write this claim again. Refused if it was written since it was seen."""
    return _set_stage(claim, stage, condition=all_of(_AS_SEEN, _NO_STAGE_BACK), now_ms=now_ms)


def advance_claim(claim: Claim, stage: ReapStage, *, now_ms: int) -> Update:
    """Record how far the reaper is. Refused if a heartbeat has taken the lock again meanwhile."""
    condition = all_of(_FENCED, _AS_SEEN, _NO_STAGE_BACK)
    return _set_stage(claim, stage, condition=condition, now_ms=now_ms)


def record_heartbeat(claim: Claim, task_token: str, *, now_ms: int) -> Update:
    """Store the task token of the heartbeat's state. Refused if there is nothing to keep alive.

    And refused to a late copy of an earlier heartbeat: release completes the token that is stored.
    """
    return conditional_update(
        claim.key,
        "attribute_exists(#pk)",
        _NOT_ENDED,
        _NOT_FENCED,
        "(attribute_not_exists(#asked_at_ms) OR #asked_at_ms <= :now)",
        Part(
            values={":task_token": {"S": task_token}},
            sets="#task_token = :task_token, #asked_at_ms = :now, #written_at_ms = :now, "
            "#expiry_time = :retain_until",
            adds=_NEXT_REVISION,
        ),
        _run_of(claim),
        now_ms=now_ms,
    )


def mark_ended(claim: Claim, *, waits: bool, now_ms: int) -> Update:
    """Mark the work as ended. The item, written or found, has the task token to complete.

    Keeps the place in the queue only if the acquisition `waits`: it may still be there.
    """
    part = Part(
        _NOT_ENDED,
        {":lock_name": {"S": claim.lock_name}},
        sets="#lock_name = :lock_name, #owner_id = :me, #ended = :yes, #expiry_time = :expiry_time",
        adds=_NEXT_REVISION,
        removes={} if waits else {"#entered_at_ms": schema.ENTERED_AT_MS},
    )
    return conditional_update(claim.key, part, owner_id=claim.owner_id, now_ms=now_ms)


def reacquire_after_redrive(
    claim: Claim,
    request: AcquireRequest,
    task_token: str,
    *,
    now_ms: int,
    seen: LockState | None = None,
) -> Transaction:
    """Take a free permit again, for an acquisition of an execution that was reaped and redriven.

    With a new fencing token. On condition that its work has not ended, and that the reaper is as
    far with the claim as was seen: a late copy must not take a lock that was released since.
    """
    state = reacquire_permit(request, now_ms=now_ms, seen=seen)
    return Transaction(state=state, other=_without_fence(claim, task_token, now_ms=now_ms))


def renew_under_fence(
    claim: Claim, request: HeartbeatRequest, state: LockState, task_token: str, *, now_ms: int
) -> Transaction:
    """Renew the lease of a redriven execution that still holds, and take the fence away.

    The fence came late, or the reaper is at work: its release depends on the fence.
    """
    holder = state.holder(request.owner_id)
    if holder is None:
        raise ValueError("the owner does not hold")
    # A ceiling retains the item for as long as it stands.
    retain_long = state.ceiling is None
    request = beside_newer(request, state)
    renewal = renew_as_seen(request, holder, now_ms=now_ms, retain_long=retain_long)
    return Transaction(state=renewal, other=_without_fence(claim, task_token, now_ms=now_ms))


def _without_fence(claim: Claim, task_token: str, *, now_ms: int) -> Put:
    """The claim as a heartbeat writes it that takes the fence away."""
    condition = all_of("#fenced = :stage", _NOT_ENDED)
    written: dict[str, str | int | None] = {
        schema.LOCK_NAME: claim.lock_name,
        schema.OWNER_ID: claim.owner_id,
        schema.TASK_TOKEN: task_token,
        schema.TTL_ATTRIBUTE: schema.ttl_seconds(now_ms, schema.WORKFLOW_RETENTION_MS),
        schema.ASKED_AT_MS: now_ms,
        schema.WRITTEN_AT_MS: now_ms,
        schema.REVISION: now_ms,  # Surely none that the reaper has seen.
        schema.REDRIVES: claim.redrives,
    }
    return Put(
        item={**claim.key, **attributes(written)},
        condition=condition,
        names=names_in(condition),
        values={":stage": number(claim.stage)},
    )


def claims_of(execution_arn: str, *, before: ReapStage) -> Query:
    """The claims of an execution that the reaper has not brought to this stage.

    Even claims whose work has ended, for that mark comes before the lock is free; but none that are
    done: a Map may have released 10,000 locks.
    """
    only = f"attribute_not_exists(#done) AND ({_NOT_FENCED} OR #fenced < :stage)"
    return Query(
        condition="#pk = :pk",
        names=names_in(f"#pk {only}"),
        values={
            ":pk": {"S": schema.partition_of_execution(execution_arn)},
            ":stage": number(before),
        },
        only=only,
    )


@reads_an_item
def read_claim(execution_arn: str, item: Item) -> Claim:
    """The claim that an item describes."""
    return Claim(
        execution_arn=execution_arn,
        lock_name=item[schema.LOCK_NAME]["S"],
        owner_id=item[schema.OWNER_ID]["S"],
        entered_at_ms=number_in(item, schema.ENTERED_AT_MS),
        stage=number_in(item, schema.FENCED) or ReapStage.REGISTERED,
        revision=int(item[schema.REVISION]["N"]),
        ended=has_ended(item),
        redrives=number_in(item, schema.REDRIVES),
        written_at_ms=number_in(item, schema.WRITTEN_AT_MS),
        task_token=text_in(item, schema.TASK_TOKEN),
    )


def is_of_a_run_that_ended(claim: Claim, *, redrives: int, ended_at_ms: int) -> bool:
    """Whether the end of a run is the end of this acquisition.

    A claim that was written long after that end is of another execution: Step Functions lets a
    name be used again after 90 days, and EventBridge brings an old event again on request.
    """
    if claim.redrives is None or claim.written_at_ms is None:
        return False
    return claim.redrives <= redrives and claim.written_at_ms <= ended_at_ms + SECOND_PASS_MS


def has_ended(item: Item) -> bool:
    """Whether the claim's work is marked as ended."""
    return schema.ENDED in item


def gave_back_before(item: Item) -> bool:
    """Whether the claim is done because its lock was given back."""
    return item.get(schema.DONE) == {"S": _GAVE_BACK}


def is_fenced(item: Item) -> bool:
    """Whether there is a claim, and the reaper has fenced it."""
    return schema.FENCED in item


def work_is_over(item: Item) -> bool:
    """Whether a claim says that its work has ended, or that its execution has."""
    return has_ended(item) or is_fenced(item)


def _set_stage(claim: Claim, stage: ReapStage, *, condition: str, now_ms: int) -> Update:
    part = Part(
        condition,
        {
            ":stage": number(stage),
            ":seen": number(claim.revision),
            ":expiry_time": number(schema.ttl_seconds(now_ms, schema.REDRIVABLE_MS)),
        },
        sets="#fenced = :stage, #expiry_time = :expiry_time",
    )
    return conditional_update(claim.key, part)
