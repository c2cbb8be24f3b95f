"""Three ways to debit an account. Each calls `think` between reading and writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from boto3.dynamodb.types import TypeSerializer

from examples.bank.account import Account, debited
from fairlock import LockClient, optimistic

Think = Callable[[], None]


def naive(account: Account, amount: int, think: Think) -> None:
    """Reads, computes, writes. The second writer overwrites the debit of the first."""
    seen = account.read()
    think()
    account.table.put_item(Item=debited(seen, amount))


def optimistically(account: Account, amount: int, think: Think) -> None:
    """Writes on condition that no one wrote since the read; otherwise reads and computes again."""

    def change(seen: dict[str, Any] | None) -> dict[str, Any]:
        think()
        return debited(seen, amount)

    optimistic.update(account.table, account.key, change)


def locked(locks: LockClient) -> Callable[[Account, int, Think], None]:
    """Debits under a lock. The write is refused if this process stalled and lost the lock."""

    def debit(account: Account, amount: int, think: Think) -> None:
        with locks.hold(f"accounts/{account.name}", lease=10, max_wait=20) as lock:
            seen = account.read()
            think()
            new = debited(seen, amount)
            item = {name: TypeSerializer().serialize(value) for name, value in new.items()}
            put: Any = {"Put": {"TableName": account.table.name, "Item": item}}
            lock.transact_write([put], release=True)

    return debit
