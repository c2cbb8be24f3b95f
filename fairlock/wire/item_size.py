"""A lock is one item of at most 400 KB in DynamoDB: requests are refused long before.

No more hold than the limit of any holder. So if the limit of each, times its own bytes, is within
a bound, all of them together are.
"""

from __future__ import annotations

from typing import Final

from fairlock.errors import InvalidRequest
from fairlock.wire.rules import LARGEST_DATA_BYTES

MOST_HOLDERS_BYTES: Final = 300 * 1024
"""Of all holders of one lock; three quarters of DynamoDB's limit."""
HOLDER_BYTES: Final = 350
"""Of a holder without data, owner_name and execution_arn: its owner_id twice, and numbers."""


def require_room_for_all(*, limit: int, owner_name: str, execution_arn: str | None) -> None:
    """Refuses a holder of whom `limit` would make too large an item.

    Whatever its data: a heartbeat may change that.

    Raises:
        InvalidRequest: names the highest limit that is possible with these texts.
    """
    texts = {owner_name, execution_arn or ""}  # A guard's owner_name is its ARN, stored once.
    text_bytes = sum(len(text.encode()) for text in texts)
    highest = MOST_HOLDERS_BYTES // (HOLDER_BYTES + LARGEST_DATA_BYTES + text_bytes)
    if limit > highest:
        rule = (
            f"must be at most {highest} with an owner_name and an execution_arn of {text_bytes} "
            "bytes together: all holders of a lock are in one item"
        )
        raise InvalidRequest(field="limit", rule=rule, value=limit)
