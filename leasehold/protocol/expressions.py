"""Conditions and changes with names, and the requests that carry them.

Every decision about a lock is one conditional write on its item. Those writes are made of the
conditions below, so that each request reads like the rule that it enforces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from leasehold.protocol import schema
from leasehold.protocol.requests import Item, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

Values: TypeAlias = "dict[str, AttributeValueTypeDef]"

I_HOLD: Final = "attribute_exists(#mine)"
I_DO_NOT_HOLD: Final = "attribute_not_exists(#mine)"
NOT_RELEASED_BY_ME: Final = "(attribute_not_exists(#last_released) OR #last_released <> :me)"
NOT_CONTENDED: Final = "(attribute_not_exists(#contended) OR #contended = :no)"
PERMIT_FREE: Final = "(attribute_not_exists(#held) OR #held < :limit)"
"""`<`, never `<>`: lowering a limit while more permits are out must grant nothing."""

NEXT_TOKEN: Final = "if_not_exists(#fencing_token, :seed) + :one"
"""The seed is the epoch in microseconds. Grants are slower than one a microsecond, so a lock that
TTL removed and that is made anew starts above every token it has ever issued."""

_NAMES: Final = {
    f"#{value}": value
    for name, value in vars(schema).items()
    if name.isupper() and isinstance(value, str)
}
"""Each attribute of the schema stands in expressions under its own name."""
_CONSTANTS: Final[Values] = {
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


def names_in(expression: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The names that an expression uses: DynamoDB refuses to be told of any other."""
    used = set(_PLACEHOLDER.findall(expression))
    return {name: to for name, to in {**_NAMES, **(more or {})}.items() if name in used}


def conditional_update(
    key: Item,
    *,
    change: str,
    condition: str,
    values: Values | None = None,
    names: Mapping[str, str] | None = None,
    returns: Literal["ALL_NEW", "ALL_OLD"] = "ALL_NEW",
) -> Update:
    """An update that declares the names and values that occur in its two expressions."""
    text = f"{change} {condition}"
    used = set(_PLACEHOLDER.findall(text))
    all_values = {**_CONSTANTS, **(values or {})}
    return Update(
        key=key,
        change=change,
        condition=condition,
        names=names_in(text, names),
        values={name: value for name, value in all_values.items() if name in used},
        returns=returns,
    )


def lock_update(
    lock_name: str,
    owner_id: str = "",
    *,
    change: str,
    condition: str,
    values: Values | None = None,
    names: Mapping[str, str] | None = None,
    returns: Literal["ALL_NEW", "ALL_OLD"] = "ALL_NEW",
    now_ms: int = 0,
) -> Update:
    """An update of a lock's item, on behalf of one owner.

    The expressions may use `#mine`, `#my_token` and `:me` of the owner, and the times
    `:expiry_time` and `:retain_until` of a write at `now_ms`.
    """
    return conditional_update(
        schema.lock_key(lock_name),
        change=change,
        condition=condition,
        names={
            "#mine": schema.HOLDER_PREFIX + owner_id,
            "#my_token": schema.TOKEN_PREFIX + owner_id,
            **(names or {}),
        },
        values={
            ":me": {"S": owner_id},
            ":expiry_time": number(schema.ttl_seconds(now_ms)),
            ":retain_until": number(schema.workflow_ttl_seconds(now_ms)),
            **(values or {}),
        },
        returns=returns,
    )
