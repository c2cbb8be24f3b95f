"""How long a lock's item is kept: TTL must never delete one under the hands of a holder.

A direct holder renews at least every 12 h, so 48 h after the last write are enough. A workflow
holds as long as its execution runs, up to a year, without a heartbeat: its grant keeps the item for
400 days, and writes of others in between do not shorten that.

But then its grant's 400 days may come to their end under a later, direct holder. So nobody becomes
or stays a holder of an item that has less than 48 h left: that write fails, and is sent again with
400 days more. One request more, once in 398 days.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leasehold.model import LockState
from leasehold.protocol import schema

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

KEEP_ITEM: Final = "#expiry_time = if_not_exists(#kept_until, :expiry_time)"
KEEP_ITEM_LONG: Final = "#expiry_time = :kept_until, #kept_until = :kept_until"
KEPT_LONG_ENOUGH: Final = "(attribute_not_exists(#kept_until) OR #kept_until > :expiry_time)"
"""For the writes that make or leave somebody a holder with `KEEP_ITEM`."""


def keep(*, long: bool) -> str:
    """The change that keeps the item."""
    return KEEP_ITEM_LONG if long else KEEP_ITEM


def kept_enough(*, long: bool) -> tuple[str, ...]:
    """The condition under which this change is enough for a holder."""
    return () if long else (KEPT_LONG_ENOUGH,)


def retention(now_ms: int) -> dict[str, AttributeValueTypeDef]:
    """The values of all of these."""
    return {
        ":expiry_time": {"N": str(schema.ttl_seconds(now_ms))},
        ":kept_until": {"N": str(schema.workflow_ttl_seconds(now_ms))},
    }


def runs_short(state: LockState, *, now_ms: int) -> bool:
    """Whether a holder must have this item kept for longer."""
    kept_until_seconds = state.kept_until_seconds
    return kept_until_seconds is not None and kept_until_seconds <= schema.ttl_seconds(now_ms)
