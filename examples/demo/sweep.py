"""Who was inside a lock when: intervals per account, swept in order. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from examples.demo.facts import Execution, Interval


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Two executions inside at the same time."""

    account_id: str
    first: str
    second: str
    interval: Interval


def overlaps(
    executions: Iterable[Execution], inside: Callable[[Execution], Interval | None]
) -> list[Overlap]:
    """Sweep over the intervals of each account; report every one entered too early.

    Each is named with the one that had the furthest end of those before it.
    """
    by_account: defaultdict[str, list[tuple[Interval, str]]] = defaultdict(list)
    for execution in executions:
        if (interval := inside(execution)) is not None:
            by_account[execution.account_id].append((interval, execution.name))
    found = []
    for account_id, entries in by_account.items():
        latest: tuple[Interval, str] | None = None
        for interval, name in sorted(entries):
            if latest and interval.start_ms < latest[0].end_ms:
                both = Interval(
                    start_ms=interval.start_ms, end_ms=min(interval.end_ms, latest[0].end_ms)
                )
                found.append(
                    Overlap(account_id=account_id, first=latest[1], second=name, interval=both)
                )
            if latest is None or interval.end_ms > latest[0].end_ms:
                latest = interval, name
    return found


def tokens_in_order_of_entry(executions: Iterable[Execution]) -> dict[str, list[int]]:
    """The tokens of each lock, in the order in which their holders got in."""
    entries: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for execution in executions:
        if execution.grant:
            entry = (execution.grant.answered_at_ms, execution.grant.fencing_token)
            entries[execution.account_id].append(entry)
    # Ties keep the order of the record: two grants in one millisecond are judged, not sorted right.
    return {
        lock: [token for _, token in sorted(of_lock, key=lambda entry: entry[0])]
        for lock, of_lock in entries.items()
    }
