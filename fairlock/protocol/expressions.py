"""Requests of the protocol, and the conditions and changes that they carry, by name.

Every decision about a lock is one conditional write on its item. Those writes are made of the
conditions below, so that each request reads like the rule that it enforces;
`aws/lock_table.py` sends them.

No request names the table, so that the protocol does not depend on a deployment. Keys, names and
values hold owner ids, which prove ownership, so `repr` does not show them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from fairlock.protocol import schema

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


Item: TypeAlias = "Mapping[str, AttributeValueTypeDef]"
Returns: TypeAlias = Literal["ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE"]
"""What DynamoDB answers to an update: the item after it, or what it has changed as that was before,
or the item before it, or nothing. Whatever is not asked for need not be sent, nor be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One conditional `UpdateItem`."""

    key: Item = field(repr=False)
    change: str
    condition: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(repr=False)
    returns: Returns = "ALL_NEW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One `PutItem` that replaces what is there, if there is a condition only if it holds."""

    item: Item = field(repr=False)
    condition: str | None = None
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    values: Item = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """One conditional `DeleteItem`."""

    key: Item = field(repr=False)
    condition: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """At most 100 deletes that happen together or not at all."""

    deletes: tuple[Delete, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A condition on an item that the rest of a transaction depends on, and does not write."""

    key: Item = field(repr=False)
    condition: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Writes that happen together or not at all; the lock's state comes first.

    Attributes:
        check: what both depend on besides; None if on nothing.
    """

    state: Update
    other: Put | Delete | Check
    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The items of a range, in order of their sort key.

    Attributes:
        most: how many to read at most.
        only: a filter on the items that were read.
        attributes: those that are wanted of each item, separated by commas; None for all.
        after: the key after which the range begins; None for its first item.
    """

    condition: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(repr=False)
    most: int | None = None
    only: str | None = None
    attributes: str | None = None
    after: Item | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Items of the whole table: those of one partition come together, in order of their sort key.

    Attributes:
        only: a filter on the items that were read.
        after: the key after which to go on; None for the beginning of the table.
    """

    only: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(repr=False)
    after: Item | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the table, and when it was given.

    Attributes:
        sent: reading of our monotonic clock before the request was sent first.
        date_ms: AWS's time when it answered, see `clock.py`; None if it did not tell.
    """

    sent: float = field(default=-math.inf, compare=False)
    date_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Answer):
    """The items that one query or scan read.

    Attributes:
        next: the key to go on after; None if there are no more.
    """

    items: list[Item] = field(repr=False)
    next: Item | None = field(repr=False)


_T = TypeVar("_T")
Values: TypeAlias = "dict[str, AttributeValueTypeDef]"

I_HOLD: Final = "attribute_exists(#mine)"
MY_GRANT: Final = "#my_token = :seen_grant"
"""The fencing token names a grant; the owner_id may have another one by now."""
I_DO_NOT_HOLD: Final = "attribute_not_exists(#mine)"
NOT_RELEASED_BY_ME: Final = (
    "(attribute_not_exists(#last_released) OR #last_released <> :me)"
    " AND (attribute_not_exists(#last_given_up) OR #last_given_up <> :me)"
)
NOT_CONTENDED: Final = "attribute_not_exists(#contended)"
WAIT_SEQ_UNMOVED: Final = "#wait_seq = :wait_seq"
"""No owner has joined the queue since."""

NEXT_TOKEN: Final = "if_not_exists(#fencing_token, :seed) + :one"
"""The seed is the epoch in microseconds. Grants are slower than one a microsecond, so a lock that
TTL removed and that is created again starts above every token it has ever issued."""

_NAMES: Final = {
    f"#{value}": value
    for name, value in vars(schema).items()
    if name.isupper() and isinstance(value, str)
} | {
    f"#h_{name.removeprefix('HOLDER_').lower()}": value
    for name, value in vars(schema).items()
    if name.startswith("HOLDER_")
}
"""Each attribute of the schema has its own name in expressions. Those of a holder's record
are short, and stand under the names of their constants: `#h_lease_ms`."""
_PLACEHOLDER: Final = re.compile(r"[#:]\w+")
_EXPRESSIONS: Final = 512
"""Far more than there are, unless many holders are evicted at once."""


def token_seed(now_ms: int) -> int:
    """The number below the first fencing token of an item: the epoch in microseconds."""
    return now_ms * 1000


def all_of(*conditions: str) -> str:
    """All of the conditions hold."""
    return " AND ".join(conditions)


def number(value: int) -> AttributeValueTypeDef:
    """A DynamoDB number."""
    return {"N": str(value)}


def names_in(expression: str) -> dict[str, str]:
    """The names that an expression uses: DynamoDB refuses any other name."""
    return _used_in(_placeholders(expression), _NAMES)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of an item when a write happens, and the values that this uses."""

    expression: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The part of an update that removes holders; empty if none leaves.

    Attributes:
        also_set: what the SET clause says besides, after a comma.
        conditions: the update happens only if all of these hold.
        names: the attributes to remove, by their names in expressions.
        values: the values that the expressions use.
    """

    also_set: str = ""
    conditions: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    values: Item = field(default_factory=dict)


NO_REMOVAL: Final = Removal()


def conditional_update(
    key: Item,
    owner_id: str = "",
    *,
    change: str,
    condition: str,
    values: Values | None = None,
    removal: Removal = NO_REMOVAL,
    returns: Returns = "ALL_NEW",
    now_ms: int = 0,
) -> Update:
    """An update on behalf of one owner, which may remove holders; it declares what it uses.

    Its expressions may use `#mine`, `#my_token` and `:me` of the owner, and the times
    `:expiry_time` and `:retain_until` of a write at `now_ms`.
    """
    own_names = {
        "#mine": schema.holder_attribute(owner_id),
        "#my_token": schema.token_attribute(owner_id),
        **removal.names,
    }
    all_values: Values = {
        ":one": {"N": "1"},
        ":yes": {"BOOL": True},
        ":me": {"S": owner_id},
        ":expiry_time": number(schema.ttl_seconds(now_ms)),
        ":retain_until": number(schema.ttl_seconds(now_ms, schema.WORKFLOW_RETENTION_MS)),
        **(values or {}),
        **removal.values,
    }
    if removal.names:
        change = f"{change} REMOVE {', '.join(removal.names)}"
    condition = all_of(condition, *removal.conditions)
    placeholders = _placeholders(f"{change} {condition}")
    return Update(
        key=key,
        change=change,
        condition=condition,
        names=_used_in(placeholders, own_names) | _used_in(placeholders, _NAMES),
        values=_used_in(placeholders, all_values),
        returns=returns,
    )


@lru_cache(_EXPRESSIONS)
def _placeholders(expression: str) -> tuple[str, ...]:
    """The names and values that an expression uses: of few expressions, for many requests."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(expression)))


def _used_in(placeholders: Sequence[str], meanings: Mapping[str, _T]) -> dict[str, _T]:
    return {name: meanings[name] for name in placeholders if name in meanings}
