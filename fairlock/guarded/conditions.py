"""Conditions by which a write of an application depends on a grant: a fence, or the lock itself.

A fence is for single writes: the written item itself refuses an older fencing token
(docs/guarded-writes.md). It does not read the lock, so it works for any table.

A condition check is for transactions: they happen only while the lock's item names this grant. An
acquisition that was evicted and granted again under its old owner_id has a newer token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairlock.errors import InvalidRequest, explained
from fairlock.protocol import schema
from fairlock.protocol.model import Acquisition
from fairlock.protocol.schema import I_HOLD, all_of, number
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, TransactWriteItemTypeDef


DEFAULT_ATTRIBUTE: Final = "fencing_token"


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceCondition:
    """The parts of a DynamoDB write that carry and check a fencing token.

    `fencing_token` is that of the grant under which the caller writes (`lock.fencing_token`).

    Guaranteed: once a write with a token has happened, a write with an older one is refused
    (`ConditionalCheckFailedException`, nothing written). The same token is accepted again; so is
    the first write to an item without the `attribute`, which keeps the newest token seen.

    Not guaranteed: that a stale writer is refused *before* a newer holder has written this very
    item; use a guarded transaction for that. A deleted item loses its fence: mark the item as
    deleted instead. Fence an item by the tokens of one lock name only: tokens of two locks cannot
    be compared.
    """

    fencing_token: int
    attribute: str = DEFAULT_ATTRIBUTE

    def __post_init__(self) -> None:
        """Checks all rules."""
        rules.require("fencing_token", rules.FENCING_TOKEN, self.fencing_token)
        rules.require("attribute", rules.ATTRIBUTE, self.attribute)
        object.__setattr__(self, "fencing_token", int(self.fencing_token))  # 5.0 is 5.

    @property
    def condition(self) -> str:
        """For `ConditionExpression`; join it with others by AND."""
        return "(attribute_not_exists(#fence) OR #fence <= :fence)"

    @property
    def assignment(self) -> str:
        """For the SET part of an `UpdateExpression`. A write without it leaves the fence open."""
        return "#fence = :fence"

    @property
    def names(self) -> dict[str, str]:
        """For `ExpressionAttributeNames`."""
        return {"#fence": self.attribute}

    @property
    def values(self) -> dict[str, AttributeValueTypeDef]:
        """For `ExpressionAttributeValues` of a boto3 client."""
        return {":fence": {"N": str(self.fencing_token)}}

    @property
    def plain_values(self) -> dict[str, int]:
        """For `ExpressionAttributeValues` of a boto3 Table resource."""
        return {":fence": self.fencing_token}

    @property
    def item(self) -> dict[str, AttributeValueTypeDef]:
        """For the `Item` of a put with a boto3 client."""
        return {self.attribute: {"N": str(self.fencing_token)}}

    @property
    def plain_item(self) -> dict[str, int]:
        """For the `Item` of a put with a boto3 Table resource."""
        return {self.attribute: self.fencing_token}


@explained
def fence_condition(fencing_token: int, *, attribute: str = DEFAULT_ATTRIBUTE) -> FenceCondition:
    """A fence for single writes to any DynamoDB table; arguments as of `FenceCondition`.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    return FenceCondition(fencing_token=fencing_token, attribute=attribute)


MOST_ITEMS: Final = 100
"""DynamoDB's limit for one transaction."""

_SAME_TOKEN: Final = "#guard_token = :guard_token"
HOLDS_ALONE: Final = "attribute_not_exists(#guarded.#h_shared)"
"""Beside other readers a write would be guarded by nothing."""


def holds_alone_names(owner_id: str) -> dict[str, str]:
    """The names of that condition."""
    return {"#guarded": schema.holder_attribute(owner_id), "#h_shared": schema.HOLDER_SHARED}


def require_alone(*, shared: bool) -> None:
    """Raises `InvalidRequest` if guarded writes are asked for under a lock that is shared."""
    if shared:
        rule = "must be False for guarded writes: others hold this lock as well, and may write"
        raise InvalidRequest(field="shared", rule=rule, value=shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantKey(Acquisition):
    """What names one grant: an owner that acquires again gets another fencing token."""

    fencing_token: int

    def __post_init__(self) -> None:
        """Checks all rules, and keeps plain text."""
        for name, rule in (("lock_name", rules.LOCK_NAME), ("owner_id", rules.OWNER_ID)):
            object.__setattr__(self, name, rules.plain_text(name, rule, getattr(self, name)))
        rules.require("fencing_token", rules.FENCING_TOKEN, self.fencing_token)


def grant_check(table_name: str, grant: GrantKey) -> TransactWriteItemTypeDef:
    """An item of a transaction: the owner holds the lock by this very grant."""
    return {
        "ConditionCheck": {
            "TableName": table_name,
            "Key": schema.lock_key(grant.lock_name),
            "ConditionExpression": all_of(I_HOLD, _SAME_TOKEN, HOLDS_ALONE),
            "ExpressionAttributeNames": {
                "#mine": schema.holder_attribute(grant.owner_id),
                "#guard_token": schema.token_attribute(grant.owner_id),
                **holds_alone_names(grant.owner_id),
            },
            "ExpressionAttributeValues": {":guard_token": number(grant.fencing_token)},
        }
    }


@explained
def condition_check(
    *, table_name: str, lock_name: str, owner_id: str, fencing_token: int
) -> TransactWriteItemTypeDef:
    """An item for the caller's own `TransactWriteItems`: "I still hold this lock".

    It holds from the grant until the holder releases or is evicted. A lease that has run out, and
    that no owner has taken over, still counts, as it does for heartbeat and release. One that is
    shared does not count.

    The `table_name` is the lock table's name or ARN; `owner_id` and `fencing_token` are of the
    grant. The item is one of a transaction's 100. When it fails, its cancellation reason is
    `ConditionalCheckFailed`, and nothing of the transaction was written.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    rules.require("table_name", rules.TABLE_NAME, table_name)
    grant = GrantKey(lock_name=lock_name, owner_id=owner_id, fencing_token=fencing_token)
    return grant_check(table_name, grant)
