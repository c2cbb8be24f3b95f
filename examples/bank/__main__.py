"""`python -m examples.bank`: two cards debit one account at the same moment, in three ways.

The program runs against an embedded AWS on loopback. Its exit status is 1 if one of the ways does
not end as expected.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import boto3

from examples.bank import ways
from examples.bank.account import (
    OPENING_BALANCE,
    OVERDRAFT_LIMIT,
    Account,
    OverdrawnError,
    create_accounts,
)
from fairlock import LockClient, create_table
from testbed.localaws import LocalAws

ENOUGH_SECONDS = 20
IN_VAIN_SECONDS = 0.3
AMOUNTS = (60, 80)
Debit = Callable[[Account, int, ways.Think], None]


@dataclass
class Contest:
    """Two debits of the same amount: each reads the balance, waits for the other one, and writes.

    With the lock the second debit cannot read while the first one is inside. So the first one
    waits for `meeting_seconds`, and writes then.
    """

    debit: Debit
    account: Account
    amount: int
    meeting_seconds: float
    both_have_read: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))
    computed: list[str] = field(default_factory=list)

    def run(self) -> tuple[int, int]:
        """Runs both debits; returns the amount paid out, and the balance afterwards."""
        self.account.open()
        with ThreadPoolExecutor(2) as pool:
            paid = self.amount * sum(pool.map(self._one, range(2)))
        return paid, self.account.balance()

    def _one(self, _card: int) -> bool:
        try:
            self.debit(self.account, self.amount, self._meet)
        except OverdrawnError:
            return False
        return True

    def _meet(self) -> None:
        """Waits until the other debit has read the balance too, but not when it repeats."""
        card = threading.current_thread().name
        is_first_time = card not in self.computed
        self.computed.append(card)
        if is_first_time:
            with suppress(threading.BrokenBarrierError):
                self.both_have_read.wait(self.meeting_seconds)


@contextmanager
def bank() -> Iterator[tuple[Account, LockClient]]:
    """An account and a lock client, in an embedded AWS."""
    with LocalAws() as aws:
        session = boto3.Session(
            aws_access_key_id=aws.access_key,
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        client = session.client("dynamodb", endpoint_url=aws.endpoint_url)
        create_table(client, "locks")
        accounts = create_accounts(session.resource("dynamodb", endpoint_url=aws.endpoint_url))
        with LockClient("locks", client=client) as locks:
            yield Account(accounts, "anna"), locks


def main() -> int:
    """Runs the three ways with both amounts; returns the exit status."""
    with bank() as (account, locks):
        contests: list[tuple[str, Debit, float, bool]] = [
            ("naive", ways.naive, ENOUGH_SECONDS, False),
            ("optimistic", ways.optimistically, ENOUGH_SECONDS, True),
            ("with the lock", ways.locked(locks), IN_VAIN_SECONDS, True),
        ]
        as_expected = [
            show(name, Contest(debit, account, amount, seconds)) is ends_right
            for amount in AMOUNTS
            for name, debit, seconds, ends_right in contests
        ]
    return 0 if all(as_expected) else 1


def show(name: str, contest: Contest) -> bool:
    """Runs a contest and prints the result; returns whether the balance is right."""
    paid, balance = contest.run()
    missing = OPENING_BALANCE - balance
    right = missing == paid and balance >= -OVERDRAFT_LIMIT
    sys.stdout.write(
        f"two debits of {contest.amount} from {OPENING_BALANCE} (limit -{OVERDRAFT_LIMIT}), "
        f"{name:13}  paid {paid:3}, taken off {missing:3}, balance {balance:3}, "
        f"computed {len(contest.computed)} times: {'right' if right else 'WRONG'}\n"
    )
    return right


if __name__ == "__main__":
    sys.exit(main())
