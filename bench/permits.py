"""Locks with many permits: what each write costs, and what one partition of DynamoDB can pay."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from bench.bed import Bed, Figures, lock_client, together
from bench.goals import Goal
from fairlock.protocol.model import AcquireRequest, ReleaseRequest
from fairlock.testing import ManualClock
from tests.support import Operations, store_over
from tests.support.memory_tables import MeteredTable, guard_request, item_bytes

PERMITS: Final = (1, 5, 20, 50, 100)
PARTITION_UNITS: Final = 1_000
"""Write units a second of one partition, by DynamoDB's documentation."""
_CLAIM_UNITS: Final = 1
_FREE: Final = 4
_THREADS_PER_PERMIT: Final = 3


def measure(bed: Bed) -> Figures:
    """By arithmetic on the requests of guards, and with clients of the embedded AWS."""
    seconds = 0.5 if bed.quick else 4.0
    permits = PERMITS[:2] if bed.quick else PERMITS
    return {str(n): {**units(n), "measured": _measured(bed, n, seconds=seconds)} for n in permits}


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    rates = ", ".join(f"{f['measured']} with {permits}" for permits, f in figures.items())
    return [
        "## Many permits",
        "",
        (
            "The more permits are out, the more each write "
            "[costs](protocol.md#what-a-write-costs). Grants a second on the embedded AWS, if all "
            f"but {_FREE} permits are out and {_THREADS_PER_PERMIT} threads want each of these: "
            f"{rates} permits."
        ),
        "",
        "![Write units over permits](images/performance-permits.svg)",
    ]


def goals(figures: Figures) -> list[Goal]:
    """What one partition can pay."""
    most, least = figures.get(str(PERMITS[-1])), 15
    if most is None:
        return []
    rate = most["hand_offs_per_second"]
    return [Goal(f"hand-offs a second of 100 permits: at least {least}", rate, rate >= least)]


def units(permits: int) -> Figures:
    """Write units of guards when all permits are out, and the rates that follow."""
    table = MeteredTable()
    store = store_over(table, ManualClock())
    holders = [guard_request(number, permits) for number in range(permits)]
    acquire = [_spent(table, store, holder) for holder in holders][-1]
    size = item_bytes(table.inner.state(holders[0].lock_name))
    release = _released(table, store, holders[-1])
    last, first, second = (guard_request(permits + n, permits, waits=n > 0) for n in range(3))
    _spent(table, store, last)
    join = _spent(table, store, first)
    _spent(table, store, second)
    hand_off = _released(table, store, last)
    return {
        "bytes": size,
        "acquire": acquire,
        "release": release,
        "join": join,
        "hand_off": hand_off,
        "hand_offs_per_second": PARTITION_UNITS // hand_off,
    }


def _spent(table: MeteredTable, store: Operations, request: AcquireRequest) -> int:
    before = table.write_units
    store.acquire(request)
    return table.write_units - before - _CLAIM_UNITS


def _released(table: MeteredTable, store: Operations, request: AcquireRequest) -> int:
    before = table.write_units
    store.release(ReleaseRequest(lock_name=request.lock_name, owner_id=request.owner_id))
    return table.write_units - before - _CLAIM_UNITS


def _measured(bed: Bed, permits: int, *, seconds: float) -> int:
    """Grants a second, while all other permits are out."""
    client = lock_client(bed.dynamodb(), lease=600)
    lock_name, free = f"permits/{permits}", min(_FREE, permits)
    held = [client.acquire(lock_name, limit=permits) for _ in range(permits - free)]
    granted, ends_at = [0] * free * _THREADS_PER_PERMIT, time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < ends_at:
            with client.hold(lock_name, limit=permits):
                granted[number] += 1

    together([partial(work, number) for number in range(len(granted))], seconds=seconds + 60)
    for lock in held:
        lock.release()
    client.close()
    return round(sum(granted) / seconds)
