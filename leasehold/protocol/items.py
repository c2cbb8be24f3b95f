"""Items of the lock table, read into the model, and holders written as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from leasehold.model import AcquireRequest, Holder, LockState
from leasehold.protocol import schema
from leasehold.protocol.expressions import number

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

Item: TypeAlias = "Mapping[str, AttributeValueTypeDef]"


def new_holder(request: AcquireRequest, *, now_ms: int) -> AttributeValueTypeDef:
    """The attribute that makes this request's owner a holder from now on."""
    holder: dict[str, AttributeValueTypeDef] = {
        schema.OWNER_NAME: {"S": request.owner_name},
        schema.ACQUIRED_AT_MS: number(now_ms),
        schema.EXPIRES_AT_MS: number(now_ms + request.lease_ms),
        schema.LEASE_MS: number(request.lease_ms),
        schema.REVISION: number(1),
    }
    if request.data is not None:
        holder[schema.DATA] = {"S": request.data}
    if request.execution_arn is not None:
        holder[schema.EXECUTION_ARN] = {"S": request.execution_arn}
    return {"M": holder}


def read_state(item: Item) -> LockState:
    """What an item says about its lock. An empty item is a lock that nobody has touched."""
    owners = [name.removeprefix(schema.HOLDER_PREFIX) for name in item if _is_holder(name)]
    holders = (read_holder(item, owner_id) for owner_id in owners)
    return LockState(
        fencing_token=_number(item, schema.FENCING_TOKEN),
        held=_number(item, schema.HELD),
        last_released=_text(item, schema.LAST_RELEASED),
        contended=schema.CONTENDED in item and item[schema.CONTENDED].get("BOOL", False),
        wait_seq=_number(item, schema.WAIT_SEQ),
        holders=tuple(sorted(holders, key=lambda holder: holder.fencing_token)),
    )


def read_holder(item: Item, owner_id: str) -> Holder:
    """One holder of an item that is known to have it."""
    attributes = item[schema.HOLDER_PREFIX + owner_id]["M"]
    return Holder(
        owner_id=owner_id,
        owner_name=_text(attributes, schema.OWNER_NAME) or "",
        acquired_at_ms=_number(attributes, schema.ACQUIRED_AT_MS),
        expires_at_ms=_number(attributes, schema.EXPIRES_AT_MS),
        lease_ms=_number(attributes, schema.LEASE_MS),
        revision=_number(attributes, schema.REVISION),
        fencing_token=_number(item, schema.TOKEN_PREFIX + owner_id),
        data=_text(attributes, schema.DATA),
        execution_arn=_text(attributes, schema.EXECUTION_ARN),
    )


def _is_holder(attribute_name: str) -> bool:
    return attribute_name.startswith(schema.HOLDER_PREFIX)


def _number(attributes: Item, name: str) -> int:
    return int(attributes[name]["N"]) if name in attributes else 0


def _text(attributes: Item, name: str) -> str | None:
    return attributes[name]["S"] if name in attributes else None
