"""Conditions and changes with names, and the request that carries them.

Every decision about a lock is one conditional write on its item. The conditions below are the words
of which all those writes are made, so that each request reads like the rule it enforces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from leasehold.protocol import schema
from leasehold.protocol.requests import Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

I_HOLD: Final = "attribute_exists(#mine)"
I_DO_NOT_HOLD: Final = "attribute_not_exists(#mine)"
NOT_RELEASED_BY_ME: Final = "(attribute_not_exists(#last_released) OR #last_released <> :me)"
NOT_CONTENDED: Final = "(attribute_not_exists(#contended) OR #contended = :no)"
PERMIT_FREE: Final = "(attribute_not_exists(#held) OR #held < :limit)"
"""`<`, never `<>`: lowering a limit while more permits are out must grant nothing."""

NEXT_TOKEN: Final = "if_not_exists(#fencing_token, :seed) + :one"
"""The seed is the epoch in microseconds. Grants are slower than one a microsecond, so a lock that
TTL removed and that is made anew starts above every token it has ever issued."""

_STATE_NAMES: Final = {
    "#fencing_token": schema.FENCING_TOKEN,
    "#held": schema.HELD,
    "#contended": schema.CONTENDED,
    "#wait_seq": schema.WAIT_SEQ,
    "#last_released": schema.LAST_RELEASED,
    "#expiry_time": schema.TTL_ATTRIBUTE,
    "#retain_until": schema.RETAIN_UNTIL,
    "#expires_at_ms": schema.EXPIRES_AT_MS,
    "#lease_ms": schema.LEASE_MS,
    "#revision": schema.REVISION,
    "#undelivered": schema.UNDELIVERED,
    "#data": schema.DATA,
}
_CONSTANTS: Final[dict[str, AttributeValueTypeDef]] = {
    ":zero": {"N": "0"},
    ":one": {"N": "1"},
    ":yes": {"BOOL": True},
    ":no": {"BOOL": False},
}
_PLACEHOLDER: Final = re.compile(r"[#:]\w+")


def all_of(*conditions: str) -> str:
    """All of the conditions hold."""
    return " AND ".join(conditions)


def number(value: int) -> AttributeValueTypeDef:
    """A DynamoDB number."""
    return {"N": str(value)}


def update_of(
    *,
    lock_name: str,
    owner_id: str,
    change: str,
    condition: str,
    values: Mapping[str, AttributeValueTypeDef],
    names: Mapping[str, str] | None = None,
    returns: Literal["ALL_NEW", "ALL_OLD"] = "ALL_NEW",
) -> Update:
    """Binds the words of an update to one lock and one owner (`#mine`, `#my_token`, `:me`).

    DynamoDB refuses a request that declares a placeholder it does not use, so only those that occur
    in the two expressions are declared.
    """
    used = set(_PLACEHOLDER.findall(f"{change} {condition}"))
    all_names = _STATE_NAMES | {
        "#mine": schema.HOLDER_PREFIX + owner_id,
        "#my_token": schema.TOKEN_PREFIX + owner_id,
        **(names or {}),
    }
    all_values: dict[str, AttributeValueTypeDef] = {**_CONSTANTS, ":me": {"S": owner_id}, **values}
    return Update(
        key=schema.lock_key(lock_name),
        change=change,
        condition=condition,
        names={name: value for name, value in all_names.items() if name in used},
        values={name: value for name, value in all_values.items() if name in used},
        returns=returns,
    )
