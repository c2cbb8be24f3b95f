"""How long a lock's item is retained: TTL must never delete a lock while somebody holds it.

A direct holder renews at least every 12 h, so 48 h after the last write are enough. A workflow
holds as long as its execution runs, up to a year, without a heartbeat: its grant retains the item
for 400 days, and writes of others in between do not shorten that.

Those 400 days may then come to their end under a later, direct holder. So nobody becomes or stays a
holder of an item that has less than 48 h left: that write fails, and is sent again with 400 days
more. One request more, once in 398 days.
"""

from __future__ import annotations

from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.model import LockState

RETAIN_ITEM: Final = "#expiry_time = if_not_exists(#retain_until, :expiry_time)"


def retain_item(*, long: bool) -> str:
    """The change that retains the item, for 400 days or for 48 h at least."""
    return "#expiry_time = :retain_until, #retain_until = :retain_until" if long else RETAIN_ITEM


def retained_long_enough(*, long: bool) -> tuple[str, ...]:
    """The condition under which that change lets somebody become or stay a holder."""
    condition = "(attribute_not_exists(#retain_until) OR #retain_until > :expiry_time)"
    return () if long else (condition,)


def needs_longer_retention(state: LockState, *, now_ms: int) -> bool:
    """Whether a new holder must retain this item for long."""
    retain_until_seconds = state.retain_until_seconds
    return retain_until_seconds is not None and retain_until_seconds <= schema.ttl_seconds(now_ms)
