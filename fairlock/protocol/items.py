"""The items of the lock table, written and read: locks with their holders, and waiters.

The record of a holder is short, because each write of its lock pays for those of all:

    executions                         arn:aws:states:us-east-1:123456789012:execution:
    h:<UUID in 20 characters>          the record, a map with the names of `schema.HOLDER_…`
    t:<UUID in 20 characters>          its fencing token, which an expression computes
    holder:<owner_id>, token:<owner_id>    the same of an owner_id that is no UUID

What the ARNs of all executions of an account and region have in common, the item has once; no write
changes it. A holder whose ARN begins otherwise has it in full.

An item that Fairlock did not write is a typed error, and no KeyError that shows an owner_id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from fairlock.errors import LockItemMalformed
from fairlock.protocol import schema
from fairlock.protocol.model import (
    AcquireRequest,
    Ceiling,
    ForcedRelease,
    Holder,
    LockState,
    Waiter,
)
from fairlock.protocol.schema import PARTITION_KEY, Part, attributes, lengthen, shorten
from fairlock.protocol.table_requests import Item, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


_P = ParamSpec("_P")
_T = TypeVar("_T")


def reads_an_item(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Lets a function that reads an item raise `LockItemMalformed` for one of another shape.

    The cause is left out: an attribute's name, which a KeyError shows, may hold an owner_id.
    """

    @wraps(read)
    def read_or_raise(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return read(*args, **kwargs)
        except (LookupError, TypeError, ValueError, AttributeError):
            item = next(value for value in args if isinstance(value, Mapping))
            raise LockItemMalformed(_partition_key(item)) from None

    return read_or_raise


def _partition_key(item: Mapping[str, Any]) -> str:
    """The sort key is left out: that of a waiter or of a claim holds an owner_id."""
    key = item.get(PARTITION_KEY)
    return str(key.get("S", "?")) if isinstance(key, Mapping) else "?"


SET_LIMIT: Final = "#limit = :limit"
SAME_EXECUTIONS: Final = "(attribute_not_exists(#executions) OR #executions = :executions)"
_EXECUTION: Final = ":execution:"
_SHORT_UUID: Final = "~"
"""Between the name of a state machine and a short UUID. No name of either contains it."""


def shared_executions(request: AcquireRequest, seen: LockState | None = None) -> str | None:
    """How the ARNs of the item's executions begin, if the request's does or may; else None."""
    arn = request.execution_arn
    if arn is None or _EXECUTION not in arn:
        return None
    start = arn[: arn.index(_EXECUTION) + len(_EXECUTION)]
    is_other = seen is not None and seen.executions is not None and seen.executions != start
    return None if is_other else start


def come_in(holder: Holder, token: str, executions: str | None = None) -> Part:
    """The part of a grant that makes an owner a holder, with a token by an expression.

    No ARN is stored twice.
    """
    arn = holder.execution_arn
    name = None if arn is None or executions is None else _short_name(arn.removeprefix(executions))
    record: dict[str, str | int | None] = {
        schema.HOLDER_ACQUIRED_AT_MS: holder.acquired_at_ms,
        schema.HOLDER_EXPIRES_AT_MS: holder.expires_at_ms,
        schema.HOLDER_LEASE_MS: holder.lease_ms,
        schema.HOLDER_LIMIT: holder.limit,
        schema.HOLDER_REVISION: holder.revision,
        schema.HOLDER_PUSHED: holder.pushed,
        schema.HOLDER_OWNER_NAME: None if holder.owner_name == arn else holder.owner_name,
        schema.HOLDER_DATA: holder.data,
        schema.HOLDER_SHARED: holder.shared,
        schema.HOLDER_EXECUTION: name,
        schema.HOLDER_EXECUTION_ARN: arn if name is None else None,
    }
    return Part(
        values={":holder": {"M": attributes(record)}, ":executions": {"S": executions or ""}},
        sets=f"#mine = :holder, #my_token = {token}, #fencing_token = {token}, {SET_LIMIT}"
        + (", #executions = :executions" if executions else ""),
    )


@reads_an_item
def read_holder(item: Item, owner_id: str) -> Holder:
    """One holder of an item that is known to have it."""
    record = item[schema.holder_attribute(owner_id)]["M"]
    arn = _execution_arn(item, record)
    owner_name = record.get(schema.HOLDER_OWNER_NAME, {"S": arn or ""})["S"]
    return Holder(
        owner_id=owner_id,
        owner_name=owner_name or arn or "",
        acquired_at_ms=int(record[schema.HOLDER_ACQUIRED_AT_MS]["N"]),
        expires_at_ms=int(record[schema.HOLDER_EXPIRES_AT_MS]["N"]),
        lease_ms=int(record[schema.HOLDER_LEASE_MS]["N"]),
        limit=int(record[schema.HOLDER_LIMIT]["N"]),
        revision=int(record[schema.HOLDER_REVISION]["N"]),
        fencing_token=int(item[schema.token_attribute(owner_id)]["N"]),
        data=text_in(record, schema.HOLDER_DATA),
        execution_arn=arn,
        undelivered=schema.HOLDER_UNDELIVERED in record,
        pushed=schema.HOLDER_PUSHED in record,
        shared=schema.HOLDER_SHARED in record,
    )


def owner_ids(item: Item) -> Iterator[str]:
    """The owner ids of an item's holders."""
    for name in item:
        if name.startswith(schema.HOLDER_PREFIX):
            yield name.removeprefix(schema.HOLDER_PREFIX)
        elif name.startswith(schema.SHORT_HOLDER_PREFIX):
            yield lengthen(name.removeprefix(schema.SHORT_HOLDER_PREFIX))


def _execution_arn(item: Item, record: Item) -> str | None:
    if schema.HOLDER_EXECUTION in record:
        name, _, short = record[schema.HOLDER_EXECUTION]["S"].partition(_SHORT_UUID)
        name += f":{lengthen(short)}" if short else ""
        return f"{item[schema.EXECUTIONS]['S']}{name}"
    return text_in(record, schema.HOLDER_EXECUTION_ARN)


def _short_name(name: str) -> str:
    """`machine:UUID` with a short UUID; the name as it is if it ends otherwise."""
    machine, _, execution = name.partition(":")
    short = shorten(execution)
    return name if short is None else f"{machine}{_SHORT_UUID}{short}"


def new_waiter(waiter: Waiter) -> Item:
    """The item that puts an acquisition into the queue. TTL removes it when it is dead."""
    request, arn = waiter.request, waiter.request.execution_arn
    gone_seconds = schema.ttl_seconds(waiter.expires_at_ms, schema.DEAD_WAITER_RETENTION_MS)
    stored: dict[str, str | int | None] = {
        schema.OWNER_NAME: None if request.owner_name == arn else request.owner_name,
        schema.DATA: request.data,
        schema.EXECUTION_ARN: arn,
        schema.TASK_TOKEN: request.task_token,
        schema.POLL_INTERVAL_MS: request.poll_interval_ms,
        schema.SHARED: request.shared,
        schema.ONLY_NEWEST: request.only_newest,
        schema.OWNER_ID: request.owner_id,
        schema.LEASE_MS: request.lease_ms,
        schema.LIMIT: request.limit,
        schema.ENTERED_AT_MS: waiter.entered_at_ms,
        schema.ASKED_AT_MS: waiter.asked_at_ms,
        schema.EXPIRES_AT_MS: waiter.expires_at_ms,
        schema.TTL_ATTRIBUTE: gone_seconds,
    }
    return {**waiter.key, **attributes(stored)}


def is_waiter(item: Item) -> bool:
    """Whether an item of a lock's partition is a waiter, and not the lock itself."""
    return item[schema.SORT_KEY].get("S", "").startswith(schema.WAITER_PREFIX)


@reads_an_item
def read_waiter(lock_name: str, item: Item) -> Waiter:
    """A waiter of a lock, or its place only, from an item that may lack all else."""
    entered_at_ms = _number(item, schema.ENTERED_AT_MS)
    execution_arn = text_in(item, schema.EXECUTION_ARN)
    request = AcquireRequest(
        lock_name=lock_name,
        owner_id=item[schema.OWNER_ID]["S"],
        owner_name=text_in(item, schema.OWNER_NAME) or execution_arn or "",
        lease_ms=_number(item, schema.LEASE_MS),
        limit=_number(item, schema.LIMIT),
        data=text_in(item, schema.DATA),
        execution_arn=execution_arn,
        ticket=entered_at_ms,
        waits=True,
        task_token=text_in(item, schema.TASK_TOKEN),
        poll_interval_ms=number_in(item, schema.POLL_INTERVAL_MS),
        shared=schema.SHARED in item,
        only_newest=number_in(item, schema.ONLY_NEWEST),
    )
    return Waiter(
        request=request,
        entered_at_ms=entered_at_ms,
        asked_at_ms=_number(item, schema.ASKED_AT_MS),
        expires_at_ms=_number(item, schema.EXPIRES_AT_MS),
    )


@reads_an_item
def read_state(item: Item) -> LockState:
    """The state of a lock, from its item. An empty item is a lock that no one has touched."""
    holders = (read_holder(item, owner_id) for owner_id in owner_ids(item))
    return LockState(
        fencing_token=_number(item, schema.FENCING_TOKEN),
        held=_number(item, schema.HELD),
        limit=_number(item, schema.LIMIT),
        last_released=text_in(item, schema.LAST_RELEASED),
        last_given_up=text_in(item, schema.LAST_GIVEN_UP),
        released_at_ms=number_in(item, schema.RELEASED_AT),
        contended=schema.CONTENDED in item,
        wait_seq=_number(item, schema.WAIT_SEQ),
        retain_until_seconds=number_in(item, schema.RETAIN_UNTIL),
        executions=text_in(item, schema.EXECUTIONS),
        last_forced_release=_forced_release(item),
        newest=number_in(item, schema.NEWEST),
        newest_token=number_in(item, schema.NEWEST_TOKEN),
        last_ceiling=_last_ceiling(item),
        holders=tuple(sorted(holders, key=lambda holder: holder.fencing_token)),
    )


@reads_an_item
def read_granted_token(before: Item, grant: Update) -> int:
    """The fencing token that a grant has computed: one more than the last one, or than its seed.

    `before` is what the grant has changed, as it was: far less than what it has written.
    """
    last = before.get(schema.FENCING_TOKEN, grant.values[":seed"])
    return int(last["N"]) + 1


def new_forced_release(forced: ForcedRelease) -> AttributeValueTypeDef:
    """The attribute that tells of the last release by force."""
    return _told({"fencing_token": forced.fencing_token}, forced)


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


def new_ceiling(ceiling: Ceiling) -> AttributeValueTypeDef:
    """The attribute that tells of the last change of the ceiling, but for the ceiling itself."""
    return _told({schema.CHANGE: ceiling.change}, ceiling)


def _told(what: Mapping[str, int], by: ForcedRelease | Ceiling) -> AttributeValueTypeDef:
    who = {"requested_by": by.requested_by, "reason": by.reason}
    return {"M": attributes({**what, "at_ms": by.at_ms, **who})}


def _last_ceiling(item: Item) -> Ceiling | None:
    if schema.LAST_CEILING not in item:
        return None
    record = item[schema.LAST_CEILING]["M"]
    return Ceiling(
        limit=number_in(item, schema.CEILING),
        change=int(record[schema.CHANGE]["N"]),
        at_ms=int(record["at_ms"]["N"]),
        requested_by=record["requested_by"]["S"],
        reason=record["reason"]["S"],
    )


def _number(attributes: Item, name: str) -> int:
    return number_in(attributes, name) or 0


def number_in(attributes: Item, name: str) -> int | None:
    """A number of an item, if it is there."""
    return int(attributes[name]["N"]) if name in attributes else None


def text_in(attributes: Item, name: str) -> str | None:
    """A text of an item, if it is there."""
    return attributes[name]["S"] if name in attributes else None
