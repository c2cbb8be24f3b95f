"""From one to a thousand clients that wait for one lock, in several processes."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError

from bench.bed import Bed, Figures, dynamodb_at, lock_client, spread
from bench.goals import Goal
from fairlock.testing.fake_table import MemoryTable
from tests.histories.calls import Answer, Call, Kind, Recorder
from tests.histories.checker import find_violation
from tests.histories.faulty_endpoint import Faults, faulty_endpoint

SIZES: Final = (1, 10, 100, 1_000)
_PROCESSES: Final = 3
_JOIN_SECONDS: Final = 30
_GRANT_SECONDS: Final = 30
_ALL_ARE_GRANTED: Final = 100
"""So many in that time, on any machine; of more, as many as it can."""
_LONGEST_SECONDS: Final = 70
"""Of one size; a size begins only if there is so much time left."""


@dataclass(frozen=True, slots=True)
class Share:
    """What the waiters of one process saw: (token, number of the waiter, when granted)."""

    grants: list[tuple[int, int, float]]
    calls: list[Call]
    requests: Counter[str]


def measure(bed: Bed) -> Figures:
    """A holder releases once all wait; each waiter releases at once when it is granted."""
    figures = Figures()
    for size in (1, 6) if bed.quick else SIZES:
        if bed.quick or bed.left() > _LONGEST_SECONDS:
            try:
                figures[str(size)] = _crowd(size)
            except (BotoCoreError, TimeoutError, multiprocessing.TimeoutError) as error:
                figures["not_measured"] = f"{size} waiters: {type(error).__name__}"
                break
    return figures


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    failure = figures.pop("not_measured", None)
    rows = [
        f"| {size} | {f['granted']} | {f['interval_ms']['median']} | {f['interval_ms']['p95']} "
        f"| {f['reads_per_grant']} | {f['inversions']} |"
        for size, f in figures.items()
    ]
    wrong = sum(f["violations"] for f in figures.values())
    return [
        "## Many waiting clients",
        "",
        (
            f"Each waiter is a client, in one of {_PROCESSES} processes, and releases at once; the "
            "table is in memory behind HTTP. An inversion is a grant out of order. A run ends "
            f"after {_GRANT_SECONDS} s: a thousand waiters take the processors from each other."
        ),
        "",
        "| waiters | granted | between two grants, median ms | p95 | reads a grant | inversions |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"Histories that are not linearizable: {wrong}."
        + (f" Not measured: {failure}." if failure else ""),
        "",
        "![Interval of grants over waiters](images/performance-waiters.svg)",
    ]


def goals(figures: Figures) -> list[Goal]:
    """As fair, and about as cheap, however many wait."""
    sizes = [f for size, f in figures.items() if size != "not_measured"]
    inversions = sum(f["inversions"] for f in sizes)
    left_out = sum(f["wanted"] - f["granted"] for f in sizes if f["wanted"] <= _ALL_ARE_GRANTED)
    violations = sum(f["violations"] for f in sizes)
    return [
        Goal.at_most("grants out of the order of the queue", inversions, 0),
        Goal.at_most(
            f"of up to {_ALL_ARE_GRANTED} waiters, those that were not granted the lock",
            left_out,
            0,
        ),
        Goal.at_most("histories of waiters that are not linearizable", violations, 0),
    ]


def _crowd(size: int) -> Figures:
    table = MemoryTable()
    with faulty_endpoint(table, Faults(share=0, seed=1)) as endpoint_url:
        return _crowd_at(endpoint_url, table, size)


def _crowd_at(endpoint_url: str, table: MemoryTable, size: int) -> Figures:
    lock_name = f"waiting/{size}"
    recorder, client = Recorder(), lock_client(dynamodb_at(endpoint_url), lease=300)
    owner, holder = recorder.acquire(client, lock_name)
    processes = min(_PROCESSES, size)
    spawn = multiprocessing.get_context("spawn")
    began = spawn.Event()
    with spawn.Pool(processes, _begin, (began,)) as pool:
        shares = [range(n, size, processes) for n in range(processes)]
        work = [(endpoint_url, lock_name, share) for share in shares]
        running = pool.starmap_async(_wait, work, chunksize=1)
        queue = _joined(table, lock_name, size)
        began.set()
        released_at = time.monotonic()
        if holder is not None:
            recorder.release(holder, owner)
        results: list[Share] = running.get(timeout=_GRANT_SECONDS + 30)
    client.close()
    return {"wanted": size, **figures_of(recorder, lock_name, queue, results, released_at)}


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


def _joined(table: MemoryTable, lock_name: str, size: int) -> list[int]:
    """Waits until all are in the queue; returns their numbers in its order."""
    ends_at = time.monotonic() + _JOIN_SECONDS
    names: list[int] = []
    while len(names) < size and time.monotonic() < ends_at:
        time.sleep(0.3)
        items = dict(table.items)  # It changes meanwhile.
        waiters = MemoryTable(items).waiters(lock_name)
        names = [int(item["owner_name"]["S"]) for item in waiters]
    return names


_began: list[Any] = []
"""Set once the lock is released for the first time."""


def _begin(began: Any) -> None:  # noqa: ANN401 - an event of multiprocessing
    _began.append(began)


def _wait(endpoint_url: str, lock_name: str, numbers: range) -> Share:
    """Lets the waiters of one process wait; those that are not granted in time are left behind."""
    requests: Counter[str] = Counter()
    grants: list[tuple[int, int, float]] = []
    recorder, dynamodb = Recorder(), dynamodb_at(endpoint_url, requests)
    all_done = threading.Semaphore(0)

    def wait_for_the_lock(number: int) -> None:
        client = lock_client(dynamodb, owner_name=str(number))
        owner, lock = recorder.acquire(client, lock_name, max_wait=_LONGEST_SECONDS)
        if lock is not None:
            grants.append((lock.fencing_token, number, time.monotonic()))
            recorder.release(lock, owner)
        all_done.release()

    for number in numbers:
        threading.Thread(target=wait_for_the_lock, args=(number,), daemon=True).start()
    _began[0].wait(_JOIN_SECONDS + 10)
    requests.clear()
    ends_at = time.monotonic() + _GRANT_SECONDS
    for _ in numbers:
        if not all_done.acquire(timeout=max(0.0, ends_at - time.monotonic())):
            break
    return Share(list(grants), _with_open_ends(recorder.histories[lock_name]), requests.copy())


def _with_open_ends(calls: Sequence[Call]) -> list[Call]:
    """The calls so far; a release that may be under way has an unknown outcome."""
    known = list(calls)
    released = {call.owner for call in known if call.kind is Kind.RELEASE}
    return known + [
        Call(
            kind=Kind.RELEASE,
            owner=call.owner,
            answer=Answer.UNKNOWN,
            began=call.ended,
            ended=math.inf,
        )
        for call in known
        if call.answer is Answer.DONE and call.owner not in released
    ]
