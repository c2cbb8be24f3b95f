"""Thousands of locks that one client holds: its heartbeats, and what they cost."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.bed import Bed, Figures, lock_client
from bench.goals import Goal

SIZES: Final = (1_000, 2_500, 5_000)
LEASE_SECONDS: Final = 45
_ACQUIRERS: Final = 8
_ACQUIRE_SECONDS: Final = 75
"""Windows of measuring included: after that, no more are acquired."""
_LOCK_NAME: Final = re.compile(rb"LOCK#(held/\d+)")


def measure(bed: Bed) -> Figures:
    """Requests, CPU time and the largest gap between two heartbeats of one lock."""
    lease = 3 if bed.quick else LEASE_SECONDS
    dynamodb: Any = bed.dynamodb()
    sent: dict[bytes, list[float]] = defaultdict(list)

    def note(request: Any, **_: Any) -> None:  # noqa: ANN401 - botocore's
        if found := _LOCK_NAME.search(request.body):
            sent[found[1]].append(time.monotonic())

    dynamodb.meta.events.register("before-send.dynamodb.UpdateItem", note)
    client = lock_client(dynamodb, lease=lease)
    figures, there = Figures(), 0
    lost = threading.Event()
    acquired_by = time.monotonic() + _ACQUIRE_SECONDS

    def acquire(number: int) -> bool:
        if time.monotonic() > acquired_by:
            return False
        client.acquire(f"held/{number}", on_lost=lambda *_: lost.set())
        return True

    for wanted in (10, 20) if bed.quick else SIZES:
        with ThreadPoolExecutor(_ACQUIRERS) as pool:
            size = there + sum(pool.map(acquire, range(there, wanted)))
        if size == there:
            break  # There was no time for more.
        there = size
        before = sum(map(len, sent.values()))
        cpu, began = time.process_time(), time.monotonic()
        time.sleep(lease / 3)
        seconds = time.monotonic() - began
        figures[f"{size:,}"] = {
            "heartbeats_per_second": round((sum(map(len, sent.values())) - before) / seconds, 1),
            "cpu_percent": round((time.process_time() - cpu) / seconds * 100),
        }
    time.sleep(lease / 3)  # The last ones have two heartbeats by then.
    gaps = [b - a for times in sent.values() for a, b in itertools.pairwise(times)]
    figures["all"] = {
        "lease": lease,
        "largest_gap": round(max(gaps), 1),
        "requests": sum(map(len, sent.values())),
        "lost": lost.is_set(),
    }
    client.close(release=bed.quick)
    return figures


def goals(figures: Figures) -> list[Goal]:
    """Thousands of locks are renewed in time."""
    every = figures["all"]
    most = max(int(size.replace(",", "")) for size in figures if size != "all")
    return [
        Goal(f"locks held by one client: {SIZES[-1]:,}", f"{most:,}", most >= SIZES[-1]),
        Goal.at_most(
            "largest time between two renewals", every["largest_gap"], LEASE_SECONDS, " s"
        ),
        Goal("no lock is lost", "lost" if every["lost"] else "none", not every["lost"]),
    ]


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    every = figures["all"]
    rates = ", ".join(
        f"{f['heartbeats_per_second']} for {size} locks ({f['cpu_percent']} %)"
        for size, f in figures.items()
        if size != "all"
    )
    return [
        "## Many locks of one client",
        "",
        (
            f"Heartbeats a second with leases of {every['lease']} s, and the share of a processor: "
            f"{rates}. Largest time between two heartbeats of one lock: {every['largest_gap']} s. "
        )
        + ("Locks were lost." if every["lost"] else "No lock was lost."),
        "",
        "![Heartbeats over locks](images/performance-heartbeats.svg)",
    ]
