"""The reads by which people see locks: the queue of one lock, and the locks of the whole table."""

from __future__ import annotations

from fairlock.protocol import schema
from fairlock.protocol.expressions import names_in
from fairlock.protocol.requests import Item, Query, Scan


def waiters_to_show(lock_name: str) -> Query:
    """All waiters of a lock, the oldest first, without what they alone should know."""
    condition = "#pk = :pk AND begins_with(#sk, :prefix)"
    attributes = (
        "#owner_id, #owner_name, #entered_at_ms, #expires_at_ms, #limit, #lease_ms, #execution_arn"
    )
    return Query(
        condition=condition,
        names=names_in(f"{condition} {attributes}"),
        values={
            ":pk": {"S": schema.partition_of(lock_name)},
            ":prefix": {"S": schema.WAITER_PREFIX},
        },
        attributes=attributes,
    )


def locks_of_the_table(prefix: str, *, after: Item | None = None) -> Scan:
    """The locks and waiters whose lock names begin so; not the claims of workflows."""
    only = "begins_with(#pk, :prefix)"
    return Scan(
        only=only,
        names=names_in(only),
        values={":prefix": {"S": schema.partition_of(prefix)}},
        after=after,
    )


def lock_name_of(item: Item) -> str:
    """The name of the lock that a state or a waiter belongs to."""
    return item[schema.PARTITION_KEY]["S"].removeprefix(schema.LOCK_PREFIX)


def is_state(item: Item) -> bool:
    """Whether the item is a lock's state, and no waiter."""
    return item[schema.SORT_KEY]["S"] == schema.STATE
