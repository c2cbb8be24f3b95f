"""The record of a holder in its lock's item: short, because each write pays for those of all.

    executions                         arn:aws:states:us-east-1:123456789012:execution:
    h:<UUID in 20 characters>          the record, a map with the names of `schema.HOLDER_…`
    t:<UUID in 20 characters>          its fencing token, which an expression computes
    holder:<owner_id>, token:<owner_id>    the same of an owner_id that is no UUID

What the ARNs of all executions of an account and region have in common, the item has once. A holder
whose ARN begins otherwise has it in full. No write changes `executions` once it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fairlock.protocol import schema
from fairlock.protocol.expressions import Values, number
from fairlock.protocol.lease_time import stored_end_ms
from fairlock.protocol.model import AcquireRequest, Holder, LockState
from fairlock.protocol.reading import reads_an_item
from fairlock.protocol.requests import Item
from fairlock.protocol.short_ids import lengthen, shorten

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

SAME_EXECUTIONS: Final = "(attribute_not_exists(#executions) OR #executions = :executions)"
SET_EXECUTIONS: Final = ", #executions = :executions"
_EXECUTION: Final = ":execution:"
_SHORT_UUID: Final = "~"
"""Between the name of a state machine and a short UUID. No name of either contains it."""


def shared_executions(request: AcquireRequest, seen: LockState | None = None) -> str | None:
    """How the ARNs of the item's executions begin, if the request's does too; None if it does not.

    If nothing is known of the item, it is supposed that it does.
    """
    arn = request.execution_arn
    if arn is None or _EXECUTION not in arn:
        return None
    start = arn[: arn.index(_EXECUTION) + len(_EXECUTION)]
    is_other = seen is not None and seen.executions is not None and seen.executions != start
    return None if is_other else start


def new_holder(
    request: AcquireRequest,
    executions: str | None = None,
    *,
    now_ms: int,
    expires_at_ms: int | None = None,
) -> AttributeValueTypeDef:
    """The attribute that makes this request's owner a holder from now on.

    A guard's owner_name is its execution's ARN, and is not stored again.
    """
    arn = request.execution_arn
    ends_ms = expires_at_ms or stored_end_ms(now_ms, request.lease_ms)
    record: Values = {
        schema.HOLDER_ACQUIRED_AT_MS: number(now_ms),
        schema.HOLDER_EXPIRES_AT_MS: number(ends_ms),
        schema.HOLDER_LEASE_MS: number(request.lease_ms),
        schema.HOLDER_LIMIT: number(request.limit),
        schema.HOLDER_REVISION: number(1),
    }
    if request.owner_name != arn:
        record[schema.HOLDER_OWNER_NAME] = {"S": request.owner_name}
    if request.data is not None:
        record[schema.HOLDER_DATA] = {"S": request.data}
    if arn is not None and executions is not None:
        record[schema.HOLDER_EXECUTION] = {"S": _short_name(arn.removeprefix(executions))}
    elif arn is not None:
        record[schema.HOLDER_EXECUTION_ARN] = {"S": arn}
    return {"M": record}


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
        data=record[schema.HOLDER_DATA]["S"] if schema.HOLDER_DATA in record else None,
        execution_arn=arn,
        undelivered=schema.HOLDER_UNDELIVERED in record,
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
    return (
        record[schema.HOLDER_EXECUTION_ARN]["S"] if schema.HOLDER_EXECUTION_ARN in record else None
    )


def _short_name(name: str) -> str:
    """`machine:UUID` with a short UUID; the name as it is if it ends otherwise."""
    machine, _, execution = name.partition(":")
    short = shorten(execution)
    return name if short is None else f"{machine}{_SHORT_UUID}{short}"
