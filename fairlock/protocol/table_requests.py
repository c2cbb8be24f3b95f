"""Requests to the table, and when it has answered; `aws/lock_table.py` sends them.

No request names the table, so that the protocol does not depend on a deployment. Keys, names and
values hold owner ids, which prove ownership, so `repr` does not show them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

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
class Check:
    """A condition on an item that the rest of a transaction depends on, and does not write."""

    key: Item = field(repr=False)
    condition: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Writes that happen together or not at all; the lock's state comes first."""

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
        after: the key after which the range begins.
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

    `only` is a filter on the items that were read; `after` the key after which to go on.
    """

    only: str
    names: Mapping[str, str] = field(repr=False)
    values: Item = field(repr=False)
    after: Item | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the table, and when it was given.

    Attributes:
        sent: a reading of our monotonic clock before the request was sent first.
        date_ms: AWS's time when it answered; None if it did not tell (`clock.py`).
    """

    sent: float = field(default=-math.inf, compare=False)
    date_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Answer):
    """The items that one query or scan read, and the key after which the `next` page begins."""

    items: list[Item] = field(repr=False)
    next: Item | None = field(repr=False)
