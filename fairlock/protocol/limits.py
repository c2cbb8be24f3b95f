"""Limits: each holder is protected by the limit that its own request named.

An owner comes in only if fewer hold than its own limit, and fewer than the limit of each holder.
The item has the limit in force, which is never above the limit of a holder. So most grants are one
write:

    nobody holds            one write; the limit in force becomes mine
    limit in force = mine   one write, if fewer than that hold
    they differ             the first write fails, and its answer tells the limits of the holders;
                            the second is on condition that nobody came in since (the fencing token
                            is as seen); the limit in force becomes the lowest of mine and theirs

A release leaves the limit in force as it is: too low perhaps, which costs the next owner the second
write; never too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairlock.protocol.expressions import Condition, Values, number
from fairlock.protocol.model import Holder, LockState

PERMIT_FREE: Final = (
    "(attribute_not_exists(#held) OR #held < :one OR (#held < :limit AND #limit = :limit))"
)
"""`<`, never `<>`: lowering a limit while more permits are out must grant nothing."""
NOBODY_CAME_IN: Final = "#fencing_token = :seen_token"
SET_LIMIT: Final = "#limit = :limit"


def may_enter(limit: int) -> Condition:
    """A permit is free for an owner with this limit, if nothing is known of the lock."""
    return Condition(PERMIT_FREE, {":limit": number(limit)})


def may_enter_as_seen(limit: int, seen: LockState, leaving: Sequence[Holder] = ()) -> Condition:
    """There is as much room for an owner with this limit as was seen, or more: others may leave.

    Args:
        limit: the owner's own.
        seen: the state, which has room for the owner once the leaving holders are out.
        leaving: the holders that leave by the same write, on conditions of their own.
    """
    gone = {holder.owner_id for holder in leaving}
    staying = tuple(holder for holder in seen.holders if holder.owner_id not in gone)
    in_force = replace(seen, holders=staying).limit_for(limit)
    values: Values = {":limit": number(in_force)}
    if not seen.fencing_token:  # Only its waiters have written this item.
        return Condition("attribute_not_exists(#fencing_token)", values)
    return Condition(NOBODY_CAME_IN, values | {":seen_token": number(seen.fencing_token)})


def may_not_enter(limit: int, seen: LockState) -> Condition:
    """No permit is free for an owner with this limit.

    If only the limits of holders are in its way, they must be there as they were seen.
    """
    values: Values = {":limit": number(limit)}
    lowest = seen.limit_for(limit)
    if lowest == limit:
        return Condition("#held >= :limit", values)
    values |= {":lowest": number(lowest), ":seen_token": number(seen.fencing_token)}
    expression = f"(#held >= :limit OR ({NOBODY_CAME_IN} AND #held >= :lowest))"
    return Condition(expression, values)
