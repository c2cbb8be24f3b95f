"""Settles a customer's account by hand, while no workflow charges it: `python settle.py 7`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fairlock import LockClient, LockLost, LockWaitTimeout

STACK = "Billing"
"""The stack that deployed the lock service; see billing.py."""
Pay = Callable[[str, int], None]
"""Pays one invoice; takes it, and the fencing token."""


def settle(locks: LockClient, customer: str, invoices: list[str], pay: Pay) -> list[str]:
    """Pays the invoices under the customer's lock.

    Returns:
        the invoices that were paid. The rest is left to the next holder if the lock is lost.

    Raises:
        LockWaitTimeout: others hold the lock; nothing was paid.
    """
    paid: list[str] = []
    try:
        with locks.hold(f"customer/{customer}", lease=30, max_wait=120) as lock:
            for invoice in invoices:
                lock.check()
                pay(invoice, lock.fencing_token)
                paid.append(invoice)
    except LockLost:
        return paid
    return paid


def show(invoice: str, fencing_token: int) -> None:
    """Where your own code pays. Let it refuse a fencing token that is older than the last one."""
    print(f"paid {invoice} with fencing token {fencing_token}")


def main() -> int:
    [customer] = sys.argv[1:]
    with LockClient.from_stack(STACK) as locks:
        try:
            settle(locks, customer, ["first", "second"], show)
        except LockWaitTimeout as busy:
            print(busy, file=sys.stderr)
            return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
