"""How long a lock lay idle between two holders while someone waited for it. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from examples.demo.facts import Execution, Interval


@dataclass(frozen=True, kw_only=True)
class Handover:
    """One holder after another, and the time between them."""

    account_id: str
    departing: str
    follower: str
    idle: Interval


def handovers(executions: Iterable[Execution]) -> list[Handover]:
    """Every change of holder for which the next one had been waiting already.

    The idle time is as its workflows know it: from one's question for release to the arrival of the
    other's grant. So the call of release is in it. If no one waited yet, no one lost that time.
    """
    holds: defaultdict[str, list[tuple[Interval, Execution]]] = defaultdict(list)
    for execution in executions:
        if (held := execution.held) is not None:
            holds[execution.account_id].append((held, execution))
    return [
        Handover(
            account_id=account_id,
            departing=departing.name,
            follower=follower.name,
            idle=Interval(start_ms=left.end_ms, end_ms=came.start_ms),
        )
        for account_id, of_account in holds.items()
        for (left, departing), (came, follower) in pairwise(sorted(of_account, key=lambda h: h[0]))
        if (waited := follower.waited) and waited.start_ms < left.end_ms <= came.start_ms
    ]


def idle_between(departing: Execution, follower: Execution) -> Interval | None:
    """The idle time if the lock passed from the one to the other, which waited; else None."""
    found = handovers((departing, follower))
    return found[0].idle if found and found[0].departing == departing.name else None


def median_idle_ms(executions: Iterable[Execution]) -> float | None:
    """The median idle time in milliseconds; None if no lock changed hands."""
    idle = [handover.idle.end_ms - handover.idle.start_ms for handover in handovers(executions)]
    return median(idle) if idle else None
