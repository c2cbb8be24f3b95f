"""The condition that makes a write of the application depend on a lock: the holder's token.

    application                       lock item               the application's items
      │ condition_check    ── one ──▶ I hold, with this token
      │                                                   ───▶ written
      │
      │ release_permit ─────────── one ──▶ I hold, with this token,
      │                               and leave           ───▶ written

The token counts and not only the owner: an acquisition that was evicted and granted again under its
old owner_id has a newer token, and decisions under the older one are stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlock.protocol import schema
from fairlock.protocol.expressions import I_HOLD, all_of, number

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

MOST_ITEMS: Final = 100
"""DynamoDB's limit for one transaction."""

_SAME_TOKEN: Final = "#guard_token = :guard_token"


def condition_check(
    *, table_name: str, lock_name: str, owner_id: str, fencing_token: int
) -> TransactWriteItemTypeDef:
    """An item of a transaction: the owner holds the lock by the grant with this token."""
    return {
        "ConditionCheck": {
            "TableName": table_name,
            "Key": schema.lock_key(lock_name),
            "ConditionExpression": all_of(I_HOLD, _SAME_TOKEN),
            "ExpressionAttributeNames": {
                "#mine": schema.holder_attribute(owner_id),
                "#guard_token": schema.token_attribute(owner_id),
            },
            "ExpressionAttributeValues": {":guard_token": number(fencing_token)},
        }
    }
