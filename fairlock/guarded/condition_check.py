"""The public form of the condition that a lock is held: it checks what it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlock.guarded.guarded_table import GrantKey
from fairlock.protocol import condition_check as protocol
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


def condition_check(
    *, table_name: str, lock_name: str, owner_id: str, fencing_token: int
) -> TransactWriteItemTypeDef:
    """An item for the caller's own `TransactWriteItems`: "I still hold this lock".

    It holds from the grant until the holder releases or is evicted. A lease that has run out, and
    that nobody has taken over, still counts, as it does for heartbeat and release: no other owner
    holds the lock, so none can have written anything under it.

    One of a transaction's 100 items. When it fails, its cancellation reason is
    `ConditionalCheckFailed`, and nothing of the transaction was written.

    Args:
        table_name: the lock table's name or ARN.
        lock_name: the lock.
        owner_id: the acquisition that was granted.
        fencing_token: the token of that grant.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    rules.require("table_name", rules.TABLE_NAME, table_name)
    grant = GrantKey(lock_name=lock_name, owner_id=owner_id, fencing_token=fencing_token)
    return protocol.condition_check(
        table_name=table_name,
        lock_name=grant.lock_name,
        owner_id=grant.owner_id,
        fencing_token=grant.fencing_token,
    )
