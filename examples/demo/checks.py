"""The demo's verdicts on a run, computed from recorded facts. Pure.

Every check fails on an empty record: a run in which nothing happened proves nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from examples.demo.facts import Execution, Run
from examples.demo.handovers import handovers
from examples.demo.ledger import statements
from examples.demo.sweep import overlaps, tokens_in_order_of_entry


@dataclass(frozen=True, kw_only=True)
class Check:
    """A claim, whether the facts bear it out, and the facts in one line."""

    claim: str
    passed: bool
    evidence: str


def all_finished(run: Run) -> Check:
    """Every execution succeeded, and its task said what it did."""
    done = [e for e in run.executions if e.status == "SUCCEEDED" and e.charge]
    return Check(
        claim="every execution finished its work",
        passed=0 < len(done) == len(run.executions),
        evidence=f"{len(done)} of {len(run.executions)} succeeded",
    )


def updates_were_lost(run: Run) -> Check:
    """The unguarded run is evidence only if it lost something."""
    lost = {s.account.account_id: len(s.lost) for s in statements(run) if s.lost}
    total = sum(s.changes for s in statements(run))
    if not lost:
        evidence = f"0 of {total} lost: this run is no evidence of anything, run it again"
    else:
        shares = ", ".join(f"{account_id} {count}" for account_id, count in lost.items())
        evidence = f"{sum(lost.values())} of {total} ({shares})"
    return Check(
        claim="without the guard, updates are lost, as expected",
        passed=bool(lost),
        evidence=evidence,
    )


def overlaps_were_found(run: Run) -> Check:
    """The sweep that judges the guarded run finds what is there to be found."""
    found = overlaps(run.executions, lambda e: e.worked)
    return Check(
        claim="without the guard, tasks work on one account at the same time",
        passed=bool(found),
        evidence=f"{len(found)} of {len(run.executions)} came in while another was at work",
    )


def no_update_lost(run: Run) -> Check:
    """Every account holds what its tasks' sums say."""
    books = statements(run)
    wrong = [s for s in books if s.lost or not s.adds_up or s.account.closing != s.expected]
    evidence = ", ".join(
        f"{s.account.account_id} {s.account.closing} (expected {s.expected})" for s in books
    )
    return Check(
        claim="no update is lost",
        passed=not wrong and bool(books) and all(s.changes for s in books),
        evidence=evidence or "no account was charged",
    )


def no_two_holders(executions: Sequence[Execution]) -> Check:
    """No one entered while another execution believed that it held the same lock."""
    held = [e for e in executions if e.held]
    found = overlaps(held, lambda e: e.held)
    evidence = f"{len(held)} holds checked, {len(found)} overlaps"
    if found:
        worst = max(found, key=lambda o: o.interval.seconds)
        evidence += f" (worst: {worst.first} and {worst.second}, {worst.interval.seconds:.3f} s)"
    return Check(
        claim="no two holders of one lock at the same time",
        passed=bool(held) and not found,
        evidence=evidence,
    )


def tokens_rise(executions: Iterable[Execution]) -> Check:
    """Of two holders of a lock the later one has the greater token."""
    pairs = falls = 0
    for entered in tokens_in_order_of_entry(executions).values():
        for earlier, later in pairwise(entered):
            pairs += 1
            falls += later <= earlier
    return Check(
        claim="fencing tokens strictly rise in the order of entry",
        passed=pairs > 0 and not falls,
        evidence=f"{pairs} successions, {falls} that do not rise",
    )


def tasks_got_their_token(run: Run) -> Check:
    """Each task was handed the token of its own execution's grant."""
    right = [
        e for e in run.executions if e.grant and e.charge
        if e.charge.fencing_token == e.grant.fencing_token
    ]  # fmt: skip
    return Check(
        claim="each task was given its own grant's token",
        passed=0 < len(right) == len(run.executions),
        evidence=f"{len(right)} of {len(run.executions)}",
    )


def they_contended(run: Run) -> Check:
    """On every lock someone asked while another held it, and got in after that one.

    Else the guard had nothing to do. In the queue no one is refused, so refusals are no criterion.
    """
    waited = handovers(run.executions)
    locks = {e.account_id for e in run.executions}
    contended = {handover.account_id for handover in waited}
    return Check(
        claim="they really contended",
        passed=bool(locks) and contended == locks,
        evidence=f"{len(waited)} of {len(run.executions)} had to wait for another to leave, "
        f"on {len(contended)} of {len(locks)} locks",
    )
