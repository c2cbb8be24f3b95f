"""Reads items of the lock table into the model, and writes waiters as items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlock.protocol import schema
from fairlock.protocol.expressions import number
from fairlock.protocol.holders import owner_ids, read_holder
from fairlock.protocol.model import AcquireRequest, ForcedRelease, LockState, Place, Waiter
from fairlock.protocol.reading import reads_an_item
from fairlock.protocol.requests import Item, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


def new_waiter(waiter: Waiter) -> Item:
    """The item that puts an acquisition into the queue. TTL removes it when it is dead."""
    request = waiter.request
    optional: dict[str, AttributeValueTypeDef] = {}
    if request.task_token is not None:
        optional[schema.TASK_TOKEN] = {"S": request.task_token}
    if request.poll_interval_ms is not None:
        optional[schema.POLL_INTERVAL_MS] = number(request.poll_interval_ms)
    return {
        **waiter.key,
        **_identity(request),
        **optional,
        schema.OWNER_ID: {"S": request.owner_id},
        schema.LIMIT: number(request.limit),
        schema.ENTERED_AT_MS: number(waiter.entered_at_ms),
        schema.ASKED_AT_MS: number(waiter.asked_at_ms),
        schema.EXPIRES_AT_MS: number(waiter.expires_at_ms),
        schema.TTL_ATTRIBUTE: number(
            schema.ttl_seconds(waiter.expires_at_ms, schema.DEAD_WAITER_RETENTION_MS)
        ),
    }


def is_waiter(item: Item) -> bool:
    """Whether an item of a lock's partition is a waiter, and not the lock itself."""
    return item[schema.SORT_KEY].get("S", "").startswith(schema.WAITER_PREFIX)


@reads_an_item
def read_waiter(lock_name: str, item: Item) -> Waiter:
    """A waiter of a lock."""
    entered_at_ms = _number(item, schema.ENTERED_AT_MS)
    request = AcquireRequest(
        lock_name=lock_name,
        owner_id=item[schema.OWNER_ID]["S"],
        owner_name=_owner_name(item),
        lease_ms=_number(item, schema.LEASE_MS),
        limit=_number(item, schema.LIMIT),
        data=_text(item, schema.DATA),
        execution_arn=_text(item, schema.EXECUTION_ARN),
        ticket=entered_at_ms,
        waits=True,
        task_token=_text(item, schema.TASK_TOKEN),
        poll_interval_ms=_number_or_none(item, schema.POLL_INTERVAL_MS),
    )
    return Waiter(
        request=request,
        entered_at_ms=entered_at_ms,
        asked_at_ms=_number(item, schema.ASKED_AT_MS),
        expires_at_ms=_number(item, schema.EXPIRES_AT_MS),
    )


@reads_an_item
def read_place(item: Item) -> Place:
    """The place in the queue of a waiter, from an item that may lack all else."""
    return Place(
        owner_id=item[schema.OWNER_ID]["S"],
        entered_at_ms=_number(item, schema.ENTERED_AT_MS),
        asked_at_ms=_number(item, schema.ASKED_AT_MS),
        expires_at_ms=_number(item, schema.EXPIRES_AT_MS),
    )


@reads_an_item
def read_state(item: Item) -> LockState:
    """The state of a lock, from its item. An empty item is a lock that nobody has touched."""
    holders = (read_holder(item, owner_id) for owner_id in owner_ids(item))
    return LockState(
        fencing_token=_number(item, schema.FENCING_TOKEN),
        held=_number(item, schema.HELD),
        limit=_number(item, schema.LIMIT),
        last_released=_text(item, schema.LAST_RELEASED),
        released_at_ms=_number_or_none(item, schema.RELEASED_AT),
        contended=schema.CONTENDED in item,
        wait_seq=_number(item, schema.WAIT_SEQ),
        retain_until_seconds=_number_or_none(item, schema.RETAIN_UNTIL),
        executions=_text(item, schema.EXECUTIONS),
        last_forced_release=_forced_release(item),
        holders=tuple(sorted(holders, key=lambda holder: holder.fencing_token)),
    )


@reads_an_item
def read_granted_token(before: Item, grant: Update) -> int:
    """The fencing token that a grant has computed: one more than the last one, or than the seed.

    Args:
        before: what the grant has changed, as it was before. That is far less than what it has
            written, which its sender knows.
        grant: the update, with the seed for a lock that has no token yet.
    """
    last = before.get(schema.FENCING_TOKEN, grant.values[":seed"])
    return int(last["N"]) + 1


def new_forced_release(forced: ForcedRelease) -> AttributeValueTypeDef:
    """The attribute that tells of the last release by force."""
    return {
        "M": {
            "fencing_token": number(forced.fencing_token),
            "at_ms": number(forced.at_ms),
            "requested_by": {"S": forced.requested_by},
            "reason": {"S": forced.reason},
        }
    }


def _forced_release(item: Item) -> ForcedRelease | None:
    if schema.LAST_FORCED_RELEASE not in item:
        return None
    record = item[schema.LAST_FORCED_RELEASE]["M"]
    return ForcedRelease(
        fencing_token=int(record["fencing_token"]["N"]),
        at_ms=int(record["at_ms"]["N"]),
        requested_by=record["requested_by"]["S"],
        reason=record["reason"]["S"],
    )


def _identity(request: AcquireRequest) -> dict[str, AttributeValueTypeDef]:
    """The attributes that a holder and a waiter have in common.

    A guard's owner_name is its execution's ARN: stored once, because each write of a lock is paid
    for by the size of its item, all holders included.
    """
    identity: dict[str, AttributeValueTypeDef] = {schema.LEASE_MS: number(request.lease_ms)}
    if request.owner_name != request.execution_arn:
        identity[schema.OWNER_NAME] = {"S": request.owner_name}
    if request.data is not None:
        identity[schema.DATA] = {"S": request.data}
    if request.execution_arn is not None:
        identity[schema.EXECUTION_ARN] = {"S": request.execution_arn}
    return identity


def _owner_name(attributes: Item) -> str:
    return _text(attributes, schema.OWNER_NAME) or _text(attributes, schema.EXECUTION_ARN) or ""


def _number(attributes: Item, name: str) -> int:
    return int(attributes[name]["N"]) if name in attributes else 0


def _number_or_none(attributes: Item, name: str) -> int | None:
    return int(attributes[name]["N"]) if name in attributes else None


def _text(attributes: Item, name: str) -> str | None:
    return attributes[name]["S"] if name in attributes else None
