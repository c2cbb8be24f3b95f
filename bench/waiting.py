"""From one to a thousand clients that wait for one lock, in several processes."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from botocore.exceptions import BotoCoreError

from bench.bed import TABLE, Bed, Figures, dynamodb_at, lock_client, spread, together
from leasehold.errors import LockWaitTimeout
from tests.histories.calls import Call, Recorder
from tests.histories.checker import find_violation

SIZES: Final = {1: 10, 10: 10, 100: 30, 300: 60, 1_000: 120}
"""Seconds that must be left, by the number of waiters."""
_PROCESSES: Final = 3
_JOIN_SECONDS: Final = 30
_DRAIN_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Share:
    """What the waiters of one process saw: (token, number of the waiter, when granted)."""

    grants: list[tuple[int, int, float]]
    calls: list[Call]
    requests: Counter[str]


def measure(bed: Bed) -> Figures:
    """A holder releases once all wait; each waiter releases at once when it is granted."""
    sizes = {1: 0, 6: 0} if bed.quick else SIZES
    figures = Figures()
    for size, needed_seconds in sizes.items():
        if bed.left() > needed_seconds:
            try:
                figures[str(size)] = _crowd(bed, size)
            except (BotoCoreError, TimeoutError, multiprocessing.TimeoutError) as error:
                figures["not_measured"] = f"{size} waiters: {type(error).__name__}"
                break
    return figures


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    failure = figures.pop("not_measured", None)
    rows = [
        f"| {size} | {f['joined']} | {f['granted']} | {f['interval_ms']['median']} "
        f"| {f['interval_ms']['p95']} | {f['reads_per_grant']} | {f['writes_per_grant']} "
        f"| {f['inversions']} |"
        for size, f in figures.items()
    ]
    wrong = sum(f["violations"] for f in figures.values())
    return [
        "## Many waiting clients",
        "",
        (
            f"Each waiter is a client of its own, in one of {_PROCESSES} processes, and "
            "releases at once. The interval is between two grants as the waiters see them, "
            "the first from the release of the first holder. Requests count from the first "
            "release, so without those of joining. An inversion is a grant out of the order "
            f"of the queue. A waiter that has not joined after {_JOIN_SECONDS} s, or is not "
            f"granted {_DRAIN_SECONDS} s later, gives up."
        ),
        "",
        (
            "| waiters | joined | granted | interval, median ms | p95 ms | reads a grant | "
            "writes a grant | inversions |"
        ),
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Histories that are not linearizable: {wrong}."
        + (f" Not measured: {failure}." if failure else ""),
        "",
        "![Interval of grants over waiters](images/performance-waiters.svg)",
    ]


def _crowd(bed: Bed, size: int) -> Figures:
    lock_name = f"waiting/{size}"
    recorder, client = Recorder(), lock_client(bed.dynamodb(), lease=300)
    owner, holder = recorder.acquire(client, lock_name)
    processes = min(_PROCESSES, size)
    spawn = multiprocessing.get_context("spawn")
    began = spawn.Event()
    with spawn.Pool(processes, _begin, (began,)) as pool:
        shares = [range(n, size, processes) for n in range(processes)]
        work = [(bed.endpoint_url, lock_name, share) for share in shares]
        running = pool.starmap_async(_wait, work, chunksize=1)
        queue = _joined(bed, lock_name, size)
        began.set()
        released_at = time.monotonic()
        if holder is not None:
            recorder.release(holder, owner)
        results: list[Share] = running.get(timeout=_JOIN_SECONDS + _DRAIN_SECONDS + 60)
    client.close()
    return figures_of(recorder, lock_name, queue, results, released_at)


def figures_of(
    recorder: Recorder,
    lock_name: str,
    queue: list[int],
    results: list[Share],
    released_at: float,
) -> Figures:
    """Of waiters whose order in the queue is known."""
    grants = sorted(grant for share in results for grant in share.grants)
    requests = sum((share.requests for share in results), Counter[str]())
    place = {number: at for at, number in enumerate(queue)}
    places = [place[number] for _, number, _ in grants if number in place]
    times = [released_at, *sorted(at for _, _, at in grants)]
    calls = [*recorder.histories[lock_name], *(call for share in results for call in share.calls)]
    reads = requests["GetItem"] + requests["Query"]
    return {
        "joined": len(queue),
        "granted": len(grants),
        "interval_ms": spread([(b - a) * 1000 for a, b in itertools.pairwise(times)], digits=1),
        "reads_per_grant": round(reads / len(grants), 1) if grants else None,
        "writes_per_grant": round((requests.total() - reads) / len(grants), 1) if grants else None,
        "inversions": sum(b < a for a, b in itertools.pairwise(places)),
        "violations": int(find_violation(calls, limit=1, with_waiters=True) is not None),
    }


def _joined(bed: Bed, lock_name: str, size: int) -> list[int]:
    """Waits until all are in the queue; returns their numbers in its order."""
    dynamodb: Any = bed.dynamodb()
    ends_at = time.monotonic() + (10 if bed.quick else _JOIN_SECONDS)
    names: list[int] = []
    while len(names) < size and time.monotonic() < ends_at:
        time.sleep(0.3)
        pages = dynamodb.get_paginator("query").paginate(
            TableName=TABLE,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :waiter)",
            ExpressionAttributeValues={
                ":pk": {"S": f"LOCK#{lock_name}"},
                ":waiter": {"S": "WAITER#"},
            },
            ConsistentRead=True,
        )
        names = [int(item["owner_name"]["S"]) for page in pages for item in page["Items"]]
    return names


_began: list[Any] = []
"""Set once the lock is released for the first time."""


def _begin(began: Any) -> None:  # noqa: ANN401 - an event of multiprocessing
    _began.append(began)


def _wait(endpoint_url: str, lock_name: str, numbers: range) -> Share:
    requests: Counter[str] = Counter()
    share = Share([], [], requests)
    recorder, dynamodb = Recorder(), dynamodb_at(endpoint_url, requests)
    waiters: list[Callable[[], None]] = [
        partial(_one, share, recorder, dynamodb, lock_name, number) for number in numbers
    ]

    def count_from_the_release() -> None:
        _began[0].wait(_JOIN_SECONDS + _DRAIN_SECONDS)
        requests.clear()

    longest = _JOIN_SECONDS + _DRAIN_SECONDS
    together([count_from_the_release, *waiters], seconds=longest + 30)
    share.calls.extend(recorder.histories[lock_name])
    return share


def _one(share: Share, recorder: Recorder, dynamodb: Any, lock_name: str, number: int) -> None:  # noqa: ANN401 - a DynamoDB client
    client = lock_client(dynamodb, owner_name=str(number))
    with suppress(LockWaitTimeout):
        owner, lock = recorder.acquire(client, lock_name, wait=_JOIN_SECONDS + _DRAIN_SECONDS)
        if lock is not None:
            share.grants.append((lock.fencing_token, number, time.monotonic()))
            recorder.release(lock, owner)
    client.close()
