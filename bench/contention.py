"""Threads and processes that want one lock: how long until all sections are done."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from random import Random

from bench.bed import Bed, Figures, spread, together
from bench.goals import Goal
from bench.systems import Fairlock, PythonDynamoDBLock, System

SECTIONS = {2: 25, 8: 8, 20: 5, 50: 2, 100: 1}
"""Of each thread, by the number of threads."""
_QUICK_SECTIONS = {2: 5, 8: 1}
_LONGEST_MS = 50
_LONGEST_RUN_SECONDS = 15
_RETRIES = (0.1, 1.0)
_STRESS_THREADS, _STRESS_SECTIONS, _STRESS_MS = 50, 10, 100
_PROCESSES = 5
_LONGEST_SECONDS = 50
Spans = list[tuple[float, float]]


def measure(bed: Bed) -> Figures:
    """The same sections under each client; the stress of the Java client; releases at once."""
    figures: Figures = {"sections": {}, "violations": 0}
    others = [PythonDynamoDBLock(bed.endpoint_url, retry=retry) for retry in _RETRIES]
    for size, sections in (_QUICK_SECTIONS if bed.quick else SECTIONS).items():
        row = figures["sections"][f"{size} x {sections}"] = {}
        systems: list[System] = [Fairlock(bed.endpoint_url), *others]
        for system in systems:
            row[system.name] = _contend(system, size, sections)
            figures["violations"] += row[system.name].pop("violations")
    together([other.close for other in others], seconds=30)  # Each takes seconds.
    stress = (4, 2) if bed.quick else (_STRESS_THREADS, _STRESS_SECTIONS)
    figures["stress"] = {"one client": _stress(bed, *stress, processes=1)}
    figures["stress"][f"{_PROCESSES} processes"] = _stress(bed, *stress, processes=_PROCESSES)
    figures["violations"] += sum(each.pop("violations") for each in figures["stress"].values())
    figures["released_together"] = released_together(bed, threads=10 if bed.quick else 100)
    return figures


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    names = list(next(iter(figures["sections"].values())))
    rows = [
        f"| {size} | {' | '.join(_ratio(row[name]) for name in names)} |"
        for size, row in figures["sections"].items()
    ]
    stress = ", ".join(f"{_ratio(f)} with {name}" for name, f in figures["stress"].items())
    at_once = figures["released_together"]
    return [
        "## A contended lock",
        "",
        (
            "Threads of one client, with sections of 1 to 50 ms under one lock: the time until all "
            "are done, over the sum of the sections."
        ),
        "",
        f"| threads x sections | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
        *rows,
        "",
        (
            "The stress test of the Java client, 50 threads with 10 sections of 1 to 100 ms: "
            f"{stress}. {at_once['threads']} threads release as many locks at once in "
            f"{at_once['seconds']} s. Histories that are not linearizable: {figures['violations']}."
        ),
    ]


def goals(figures: Figures) -> list[Goal]:
    """Not slower than a client that is not fair, at its best; and hardly slower than the work."""
    rows = figures["sections"]
    late = [size for size, row in rows.items() if not _is_first(row)]
    measured = f"slower at {', '.join(late)}" if late else "at every size"
    stress = figures["stress"]
    one, many = stress["one client"], stress[f"{_PROCESSES} processes"]
    together_seconds = figures["released_together"]["seconds"]
    return [
        Goal("no slower than python_dynamodb_lock at its best", measured, not late),
        _all_done("one client", one),
        Goal.at_most("stress test, one client, over its sections", one["ratio"], 1.5),
        _all_done("5 processes", many),
        Goal.at_most("stress test, 5 processes, over its sections", many["ratio"], 1.8),
        Goal.at_most("100 threads release at the same moment", together_seconds, 5, " s"),
    ]


def _is_first(row: Figures) -> bool:
    """Whether ours did all sections, in no more time than any other that did."""
    ours = row["Fairlock"]
    done = [f["seconds"] for f in row.values() if f["finished"] == f["wanted"]]
    return bool(ours["finished"] == ours["wanted"] and ours["seconds"] <= min(done))


def _all_done(name: str, figures: Figures) -> Goal:
    finished, wanted = figures["finished"], figures["wanted"]
    return Goal(f"stress test, {name}: all sections", f"{finished} of {wanted}", finished == wanted)


def released_together(bed: Bed, *, threads: int) -> Figures:
    """Locks of one client that are released at the same moment by as many threads."""
    system = Fairlock(bed.endpoint_url)
    held = [system.section(f"together/{number}", wait=30) for number in range(threads)]
    for section in held:
        section.__enter__()
    began = time.monotonic()
    together([partial(_leave, section) for section in held], seconds=60)
    seconds = time.monotonic() - began
    system.close()
    return {"threads": threads, "seconds": round(seconds, 2)}


def _leave(section: AbstractContextManager[None]) -> None:
    section.__exit__(None, None, None)


@dataclass(frozen=True, slots=True)
class _Work:
    """What the threads of a process do."""

    lock_name: str
    threads: int
    sections: int
    longest_ms: int
    seconds: float
    seed: int = 0


def _contend(system: System, threads: int, sections: int) -> Figures:
    lock_name = f"contended/{threads}"
    spans = _run(system, _Work(lock_name, threads, sections, _LONGEST_MS, _LONGEST_RUN_SECONDS))
    return {**figures_of(spans, wanted=threads * sections), "violations": system.violations()}


def _stress(bed: Bed, threads: int, sections: int, *, processes: int) -> Figures:
    each = max(1, threads // processes)
    shares = [
        _Work(f"stress/{processes}", each, sections, _STRESS_MS, _LONGEST_SECONDS, seed)
        for seed in range(processes)
    ]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes) as pool:
        pool.map(time.sleep, [0.2] * processes, chunksize=1)  # All have begun by then.
        share = partial(_share, bed.endpoint_url)
        results = pool.map_async(share, shares, chunksize=1).get(timeout=_LONGEST_SECONDS * 2)
    spans = [span for part, _ in results for span in part]
    # A history is complete only in a single process.
    violations = sum(wrong for _, wrong in results) if processes == 1 else 0
    return {**figures_of(spans, wanted=processes * each * sections), "violations": violations}


def _share(endpoint_url: str, work: _Work) -> tuple[Spans, int]:
    system = Fairlock(endpoint_url)
    spans = _run(system, work)
    violations = system.violations()
    system.close()
    return spans, violations


def _run(system: System, work: _Work) -> Spans:
    """When each section began and ended."""
    spans: Spans = []
    ends_at = time.monotonic() + work.seconds

    def contend(number: int) -> None:
        random = Random(f"{work.seed} {number}")  # noqa: S311 - no secret
        for _ in range(work.sections):
            left = ends_at - time.monotonic()
            if left <= 0:
                return
            try:
                with system.section(work.lock_name, wait=left):
                    began = time.monotonic()
                    time.sleep(random.randint(1, work.longest_ms) / 1000)
                    spans.append((began, time.monotonic()))
            except TimeoutError:
                return

    contenders = [partial(contend, number) for number in range(work.threads)]
    together(contenders, seconds=work.seconds + 60)
    return spans


def figures_of(spans: Spans, *, wanted: int) -> Figures:
    """Of sections that wanted one lock: how long all took, and the time between two of them."""
    spans = sorted(spans)
    work = sum(ended - began for began, ended in spans)
    seconds = spans[-1][1] - spans[0][0] if spans else 0.0
    gaps = [(b[0] - a[1]) * 1000 for a, b in itertools.pairwise(spans)]
    return {
        "wanted": wanted,
        "finished": len(spans),
        "seconds": round(seconds, 1),
        "work_seconds": round(work, 1),
        "ratio": round(seconds / work, 2) if work else None,
        "gap_ms": spread(gaps, digits=1),
        "overlaps": sum(gap < 0 for gap in gaps),
    }


def _ratio(figures: Figures) -> str:
    done = figures["finished"] == figures["wanted"]
    return f"{figures['ratio']}" + ("" if done else f" ({figures['finished']} done)")
