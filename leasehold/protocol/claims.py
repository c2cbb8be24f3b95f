"""The writes of claims: which locks a workflow execution asked for, so that its end ends them.

    EXECUTION#<execution_arn>   LOCK#<lock_name>#<owner_id>

    acquire     record     before it asks for the lock: nothing is granted that is not on record
    release     drop       after the lock is free
    reap        bar        an acquire that comes later may not record itself any more; the claim
                           stays, so that the second look finds what was under way
                advance    what a look has done with it
    keep_alive  record_heartbeat  the task token of the state that beats
    release     end        before the lock of who beats is freed, and before the queue is left: so a
                           beat that finds the lock free knows that it is not lost, and a late
                           acquire that nobody wants it any more

A claim decides nothing about who holds a lock. Its revision grows with every write but those of the
reaper, which bars a claim only on condition that it is as it was before Step Functions was asked:
else the claim may be one of the redriven execution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from leasehold.protocol import schema
from leasehold.protocol.expressions import all_of, number
from leasehold.protocol.model import AcquireRequest
from leasehold.protocol.permits import reacquire_permit
from leasehold.protocol.requests import Delete, Item, Put, Query, Transaction, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

_NAMES: Final = {
    "#pk": schema.PARTITION_KEY,
    "#expiry_time": schema.TTL_ATTRIBUTE,
    "#lock_name": schema.LOCK_NAME,
    "#owner_id": schema.OWNER_ID,
    "#entered_at_ms": schema.ENTERED_AT_MS,
    "#task_token": schema.TASK_TOKEN,
    "#ended": schema.ENDED,
    "#fenced": schema.FENCED,
    "#revision": schema.REVISION,
}
_ON_RECORD: Final = "attribute_exists(#pk)"
_AS_SEEN: Final = "#revision = :seen"
_NEXT_REVISION: Final = "ADD #revision :one"
_NOT_ENDED: Final = "attribute_not_exists(#ended)"
_FENCED: Final = "attribute_exists(#fenced)"
_NOT_FENCED: Final = "attribute_not_exists(#fenced)"
_PLACE_AS_BEFORE: Final = "if_not_exists(#entered_at_ms, :entered_at_ms)"
_ONE: Final = number(1)
_YES: Final[AttributeValueTypeDef] = {"BOOL": True}


class ReapStage(IntEnum):
    """How far the reaper is with a claim; from the first on it is fenced."""

    REGISTERED = 0
    FIRST_PASS_FENCED = 1
    FIRST_PASS_DONE = 2
    SECOND_PASS_FENCED = 3
    SECOND_PASS_DONE = 4
    """Nothing of this acquisition can be under way any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One acquisition of a workflow execution.

    Attributes:
        execution_arn: the execution.
        lock_name: the lock that it asked for.
        owner_id: the acquisition.
        entered_at_ms: its place in the queue, if it has told.
        stage: how far the reaper is with it.
        revision: how often it was written.
        ended: whether it says that its work is done.
    """

    execution_arn: str
    lock_name: str
    owner_id: str
    entered_at_ms: int | None = None
    stage: int = ReapStage.REGISTERED
    revision: int = 0
    ended: bool = False


def claim_of(request: AcquireRequest, execution_arn: str) -> Claim:
    """The claim that an acquisition of this execution makes."""
    return Claim(
        execution_arn=execution_arn,
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        entered_at_ms=request.entered_at_ms,
    )


def write_claim(claim: Claim, *, now_ms: int) -> Update:
    """Put the claim on record, or keep it there. Refused if its work or its execution is over.

    A claim that does not tell its place in the queue keeps the one that it had, or gets the
    present: what is returned has it.
    """
    place = ":entered_at_ms" if claim.entered_at_ms is not None else _PLACE_AS_BEFORE
    entered_at_ms = now_ms if claim.entered_at_ms is None else claim.entered_at_ms
    return _update(
        claim,
        change="SET #lock_name = :lock_name, #owner_id = :owner_id, "
        f"#entered_at_ms = {place}, #expiry_time = :expiry_time {_NEXT_REVISION}",
        condition=all_of(_NOT_ENDED, _NOT_FENCED),
        values={
            ":lock_name": {"S": claim.lock_name},
            ":owner_id": {"S": claim.owner_id},
            ":entered_at_ms": number(entered_at_ms),
            ":expiry_time": number(schema.workflow_ttl_seconds(now_ms)),
            ":one": _ONE,
        },
    )


def delete_claim(claim: Claim) -> Delete:
    """Take the claim off the record, unless somebody may still have to learn from it.

    From one whose work has ended a late beat learns that, from a fenced one a late acquire.
    """
    condition = all_of(_NOT_ENDED, _NOT_FENCED)
    return Delete(key=claim_key(claim), condition=condition, names=_names(condition), values={})


def fence_claim(claim: Claim, stage: ReapStage, *, now_ms: int) -> Update:
    """Let nobody record this claim again. Refused if somebody has written it since it was seen."""
    return _reach(claim, stage, condition=_AS_SEEN, now_ms=now_ms)


def advance_claim(claim: Claim, stage: ReapStage, *, now_ms: int) -> Update:
    """Note how far the reaper is. Refused if a beat has taken the lock again meanwhile."""
    return _reach(claim, stage, condition=all_of(_FENCED, _AS_SEEN), now_ms=now_ms)


def record_heartbeat(claim: Claim, task_token: str, *, now_ms: int) -> Update:
    """Keep the task token of the state that beats. Refused if there is nothing to keep alive."""
    return _update(
        claim,
        change=f"SET #task_token = :task_token, #expiry_time = :expiry_time {_NEXT_REVISION}",
        condition=all_of(_ON_RECORD, _NOT_ENDED, _NOT_FENCED),
        values={
            ":task_token": {"S": task_token},
            ":expiry_time": number(schema.workflow_ttl_seconds(now_ms)),
            ":one": _ONE,
        },
    )


def mark_ended(claim: Claim, *, now_ms: int) -> Update:
    """Say that the work is done; what is returned, or was there, has the token to complete.

    Keeps the place in the queue only if somebody may still stand there.
    """
    no_place = "" if claim.entered_at_ms is not None else " REMOVE #entered_at_ms"
    return _update(
        claim,
        change="SET #lock_name = :lock_name, #owner_id = :owner_id, "
        f"#ended = :yes, #expiry_time = :expiry_time{no_place} {_NEXT_REVISION}",
        condition=_NOT_ENDED,
        values={
            ":lock_name": {"S": claim.lock_name},
            ":owner_id": {"S": claim.owner_id},
            ":yes": _YES,
            ":expiry_time": number(schema.ttl_seconds(now_ms)),
            ":one": _ONE,
        },
    )


def reacquire_after_redrive(
    claim: Claim, request: AcquireRequest, task_token: str, *, now_ms: int
) -> Transaction:
    """Take a free permit again for an execution that was reaped and then redriven.

    The same acquisition, although it was released on its behalf; with a new fencing token. On
    condition that it was reaped, and that its work has not ended: a beat that comes late must not
    take a lock once more that was released in the usual way.
    """
    condition = all_of(_FENCED, _NOT_ENDED)
    item: dict[str, AttributeValueTypeDef] = {
        **claim_key(claim),
        schema.LOCK_NAME: {"S": claim.lock_name},
        schema.OWNER_ID: {"S": claim.owner_id},
        schema.TASK_TOKEN: {"S": task_token},
        schema.TTL_ATTRIBUTE: number(schema.workflow_ttl_seconds(now_ms)),
        schema.REVISION: number(now_ms),  # Surely none that the reaper has seen.
    }
    if claim.entered_at_ms is not None:
        item[schema.ENTERED_AT_MS] = number(claim.entered_at_ms)
    put = Put(item=item, condition=condition, names=_names(condition))
    return Transaction(state=reacquire_permit(request, now_ms=now_ms), other=put)


def claims_of(execution_arn: str, *, before: ReapStage) -> Query:
    """What an execution has on record and the reaper has not brought to this stage.

    Also claims whose work has ended: that is said before the lock is freed.
    """
    only = f"{_NOT_FENCED} OR #fenced < :stage"
    return Query(
        condition="#pk = :pk",
        names=_names(f"#pk {only}"),
        values={
            ":pk": {"S": schema.partition_of_execution(execution_arn)},
            ":stage": number(before),
        },
        only=only,
    )


def read_claim(execution_arn: str, item: Item) -> Claim:
    """A claim, as its item tells it."""
    entered = item.get(schema.ENTERED_AT_MS)
    return Claim(
        execution_arn=execution_arn,
        lock_name=item[schema.LOCK_NAME]["S"],
        owner_id=item[schema.OWNER_ID]["S"],
        entered_at_ms=None if entered is None else int(entered["N"]),
        stage=int(item[schema.FENCED]["N"]) if is_fenced(item) else ReapStage.REGISTERED,
        revision=int(item[schema.REVISION]["N"]),
        ended=has_ended(item),
    )


def has_ended(item: Item) -> bool:
    """Whether the claim says that its work is done."""
    return schema.ENDED in item


def is_fenced(item: Item) -> bool:
    """Whether the claim is on record, but its execution was found to be over."""
    return schema.FENCED in item


def task_token_in(item: Item) -> str | None:
    """The task token of the last beat."""
    return item[schema.TASK_TOKEN]["S"] if schema.TASK_TOKEN in item else None


def claim_key(claim: Claim) -> Item:
    """The key of a claim."""
    return schema.claim_key(claim.execution_arn, lock_name=claim.lock_name, owner_id=claim.owner_id)


def _update(
    claim: Claim, *, change: str, condition: str, values: Mapping[str, AttributeValueTypeDef]
) -> Update:
    return Update(
        key=claim_key(claim),
        change=change,
        condition=condition,
        names=_names(f"{change} {condition}"),
        values=values,
    )


def _reach(claim: Claim, stage: ReapStage, *, condition: str, now_ms: int) -> Update:
    return _update(
        claim,
        change="SET #fenced = :stage, #expiry_time = :expiry_time",
        condition=condition,
        values={
            ":stage": number(stage),
            ":seen": number(claim.revision),
            ":expiry_time": number(schema.redrivable_ttl_seconds(now_ms)),
        },
    )


def _names(text: str) -> dict[str, str]:
    """The names that occur in an expression: DynamoDB refuses those that do not."""
    used = set(re.findall(r"#\w+", text))
    return {name: attribute for name, attribute in _NAMES.items() if name in used}
