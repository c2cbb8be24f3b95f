"""A fence for single writes: the written item itself refuses an older fencing token.

    fence = fence_condition(lock.fencing_token)
    table.update_item(
        Key={"account": "anna"},
        UpdateExpression=f"SET balance = :balance, {fence.assignment}",
        ConditionExpression=fence.condition,
        ExpressionAttributeNames=fence.names,
        ExpressionAttributeValues={":balance": 70, **fence.plain_values},
    )

This is Martin Kleppmann's use of the token ("How to do distributed locking", 2016): the numbers
that the lock gives out grow, and the storage accepts no smaller one than before. It does not read
the lock, so it works for any table, in any account; it refuses a stale writer only once a newer one
has written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairlock.errors import InvalidRequest

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

DEFAULT_ATTRIBUTE: Final = "fencing_token"


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceCondition:
    """The parts of a DynamoDB write that carry and check a fencing token.

    Guaranteed: once a write with a token has happened, a write with an older one is refused
    (`ConditionalCheckFailedException`, nothing written). The same token is accepted again, so one
    holder may write as often as it likes; so is the first write to an item without the attribute.

    Not guaranteed: that a stale writer is refused *before* a newer holder has written this very
    item; use a guarded transaction for that. A deleted item loses its fence: mark the item as
    deleted instead. Fence an item by the tokens of one lock name only: tokens of two locks cannot
    be compared.

    Attributes:
        fencing_token: the token of the grant under which the caller writes.
        attribute: the attribute of the item that keeps the newest token seen.
    """

    fencing_token: int
    attribute: str = DEFAULT_ATTRIBUTE

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


def fence_condition(fencing_token: int, *, attribute: str = DEFAULT_ATTRIBUTE) -> FenceCondition:
    """A fence for single writes to any DynamoDB table.

    Args:
        fencing_token: `lock.fencing_token`.
        attribute: where the item keeps the newest token seen.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    if isinstance(fencing_token, bool) or not isinstance(fencing_token, int) or fencing_token < 1:
        rule = "must be the fencing token of a grant, a positive whole number"
        raise InvalidRequest(field="fencing_token", rule=rule, value=fencing_token, show_text=False)
    if not isinstance(attribute, str) or not attribute:
        rule = "must be the name of an attribute"
        raise InvalidRequest(field="attribute", rule=rule, value=attribute, show_text=False)
    return FenceCondition(fencing_token=fencing_token, attribute=attribute)
