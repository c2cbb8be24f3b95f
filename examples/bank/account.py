"""An account with an overdraft limit, and the rule that a debit must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource
    from mypy_boto3_dynamodb.service_resource import Table

OPENING_BALANCE = 100
OVERDRAFT_LIMIT = 50


class OverdrawnError(Exception):
    """The debit would take the balance below the overdraft limit."""


def debited(account: dict[str, Any] | None, amount: int) -> dict[str, Any]:
    """Returns the account after a debit, and changes nothing; it may be called repeatedly."""
    if account is None:
        raise LookupError
    balance = account["balance"] - amount
    if balance < -account["overdraft_limit"]:
        raise OverdrawnError
    return {**account, "balance": balance}


@dataclass(frozen=True)
class Account:
    """One account, as an item of a table."""

    table: Table
    name: str

    @property
    def key(self) -> dict[str, str]:
        """The primary key of the item."""
        return {"account": self.name}

    def open(self) -> None:
        """Writes the item with the opening balance."""
        self.table.put_item(
            Item={**self.key, "balance": OPENING_BALANCE, "overdraft_limit": OVERDRAFT_LIMIT}
        )

    def read(self) -> dict[str, Any] | None:
        """Reads the item, strongly consistent; None if there is none."""
        return self.table.get_item(Key=self.key, ConsistentRead=True).get("Item")

    def balance(self) -> int:
        """Reads the balance."""
        return int((self.read() or {})["balance"])


def create_accounts(dynamodb: DynamoDBServiceResource) -> Table:
    return dynamodb.create_table(
        TableName="accounts",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account", "AttributeType": "S"}],
    )
