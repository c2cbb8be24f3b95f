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

from leasehold.protocol import schema
from leasehold.protocol.model import LockState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

RETAIN_ITEM: Final = "#expiry_time = if_not_exists(#retain_until, :expiry_time)"
RETAIN_ITEM_LONG: Final = "#expiry_time = :retain_until, #retain_until = :retain_until"
RETAINED_LONG_ENOUGH: Final = (
    "(attribute_not_exists(#retain_until) OR #retain_until > :expiry_time)"
)
"""For the writes that make or leave somebody a holder with `RETAIN_ITEM`."""


def retain_item(*, long: bool) -> str:
    """The change that keeps the item."""
    return RETAIN_ITEM_LONG if long else RETAIN_ITEM


def retained_long_enough(*, long: bool) -> tuple[str, ...]:
    """The condition under which this change is enough for a holder."""
    return () if long else (RETAINED_LONG_ENOUGH,)


def retention(now_ms: int) -> dict[str, AttributeValueTypeDef]:
    """The values of all of these."""
    return {
        ":expiry_time": {"N": str(schema.ttl_seconds(now_ms))},
        ":retain_until": {"N": str(schema.workflow_ttl_seconds(now_ms))},
    }


def needs_longer_retention(state: LockState, *, now_ms: int) -> bool:
    """Whether a holder must have this item kept for longer."""
    retain_until_seconds = state.retain_until_seconds
    return retain_until_seconds is not None and retain_until_seconds <= schema.ttl_seconds(now_ms)
