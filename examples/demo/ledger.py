"""Which updates of an account survived. Pure.

Every task says which change it had read under its own write. So the surviving changes are a chain
that is walked back from the row's last change; whatever is not on the chain was overwritten by a
task that had never seen it. No clock takes part in this.
"""

from dataclasses import dataclass

from examples.demo.facts import Account, Run

OPENING = "opening"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One account after a run: what should be there, what is there, what is missing."""

    account: Account
    changes: int
    expected: int
    lost: tuple[str, ...]
    adds_up: bool
    """The balance is exactly the opening balance less the surviving changes."""


def statement(run: Run, account: Account) -> Statement:
    """Compare the row with what its tasks say they did."""
    charges = {c.charge_id: c for e in run.on(account.account_id) if (c := e.charge)}
    chain: list[str] = []
    change = account.last_change
    while change in charges and change not in chain:
        chain.append(change)
        change = charges[change].change_read
    kept = sum(charges[charge_id].amount for charge_id in chain)
    return Statement(
        account=account,
        changes=len(charges),
        expected=account.opening - sum(c.amount for c in charges.values()),
        lost=tuple(charge_id for charge_id in charges if charge_id not in chain),
        adds_up=change == OPENING and account.closing == account.opening - kept,
    )


def statements(run: Run) -> tuple[Statement, ...]:
    return tuple(statement(run, account) for account in run.accounts)
