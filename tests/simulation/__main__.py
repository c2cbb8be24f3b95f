"""`make simulate`: every scenario that there is, its controls, and one digest.

Each run is a function of its scenario, seed and scale. So it does not matter which process makes
it, or when; the digest of all is that of their digests, in order.

    make simulate                            all scenarios, 12 seeds of most, and all controls
    make simulate SEED=101 OUT=out/simulation-101.json
                                             the same from seed 101 on, without controls, and kept
                                             beside the figures of the first
    make simulate SCENARIO=4 SEEDS=1 SCALE=1 MINUTES=120 OUT=out/simulation-4.json
                                             one scenario, so many seeds of it, at this size
    make simulate SCENARIO=9 SEED=3          that run again, with its trace
    make simulate SCENARIO=9 SEED=3 SHRINK=1 a smaller run that breaks the same promise
    make simulate SCENARIO=9 CONTROL=2       the second control of that scenario, with its trace

SCALE= sets the size, JOBS= how many processes run at once, MINUTES= after which a run counts as one
that does not end. The last line is the digest of all runs. The figures are kept in out/ after each
run, for `make scale`.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.simulation import day, fleet, hot_lock, ways, workflows
from tests.simulation.faults import Faults
from tests.simulation.judge import Finding
from tests.simulation.scenario import HOUR, Result, Scenario, run, run_control, weakened

_CHOICES: Final = ("SCENARIO", "SEED", "SEEDS", "SCALE")
_ALL: Final = [
    each
    for module in (day, fleet, hot_lock, ways, workflows)
    for each in vars(module).values()
    if isinstance(each, Scenario)
]
SCENARIOS: Final = {each.number: each for each in sorted(_ALL, key=lambda each: each.number)}
FIGURES = Path("out/simulation.json")
"""Of the last run; others are beside it: see `OUT`."""
_MOST_SEEDS_OF_A_CONTROL: Final = 12
_scenarios: Mapping[int, Scenario] = {}
"""Of this process and its forks: a scenario holds functions, which no pipe takes."""


class _Job(NamedTuple):
    """One run, or one control: seed after seed until it is found."""

    number: int
    seed: int
    scale: float | None = None
    control: int | None = None


@dataclass(frozen=True, slots=True)
class FoundControl:
    """How soon a protection that was switched off was noticed.

    Attributes:
        seeds: how many runs it took; None if it was not found.
        seconds: of CPU time, of all these runs.
    """

    number: int
    name: str
    breaks: str
    seeds: int | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        told = "NOT FOUND" if self.seeds is None else f"found with seed {self.seeds}"
        return f"control of scenario {self.number}: {self.name}: {told}, {self.seconds:.1f} s"


def run_all(
    scenarios: Mapping[int, Scenario],
    *,
    first_seed: int = 1,
    seeds: int | None = None,
    scale: float | None = None,
    processes: int = 2,
    seconds: int = 1_200,
    with_controls: bool = True,
) -> Iterator[Result | FoundControl]:
    """Makes the runs of all scenarios, and of all controls, and yields each in its order.

    A run that raises, or does not end within so many seconds of real time, is a broken promise, and
    the others go on. Without `seeds` or `scale` each scenario has its own.
    """
    global _scenarios  # noqa: PLW0603 - see there
    _scenarios = scenarios
    jobs = [
        _Job(each.number, first_seed + number, scale)
        for each in scenarios.values()
        for number in range(seeds or each.seeds)
    ]
    jobs += [
        _Job(each.number, first_seed, None, number)
        for each in scenarios.values()
        for number in range(len(each.controls) if with_controls else 0)
    ]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        futures = [pool.submit(_work, job, seconds) for job in jobs]
        for job, future in zip(jobs, futures, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool:
                yield _failed(job, "a process that makes the runs has died")


class _DoesNotEnd(BaseException):
    """Not an Exception: no code of a simulated process may take it for its own."""


def _ring(_signal: int, _frame: object) -> None:
    raise _DoesNotEnd


def _work(job: _Job, seconds: int) -> Result | FoundControl:
    signal.signal(signal.SIGALRM, _ring)
    try:
        # Again each second: raised in a finalizer, the first one would be ignored.
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        try:
            return _run(job)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _DoesNotEnd:
        return _failed(job, f"it did not end within {seconds} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        return _failed(job, repr(error))


def _failed(job: _Job, why: str) -> Result | FoundControl:
    scenario = _scenarios[job.number]
    if job.control is not None:
        control = scenario.controls[job.control]
        return FoundControl(job.number, f"{control.name} ({why})", control.breaks)
    scale = scenario.scale if job.scale is None else job.scale
    finding = Finding("each run ends", 0.0, why)
    return Result(number=job.number, seed=job.seed, scale=scale, digest=why, findings=(finding,))


def _run(job: _Job) -> Result | FoundControl:
    scenario = _scenarios[job.number]
    if job.control is None:
        return run(scenario, seed=job.seed, scale=job.scale)
    began, control = time.process_time(), scenario.controls[job.control]
    first = job.seed + control.seed - 1
    found = (
        number + 1
        for number in range(_MOST_SEEDS_OF_A_CONTROL)
        if control.breaks in run_control(scenario, control, seed=first + number).broken
    )
    seeds = next(found, None)
    seconds = time.process_time() - began
    return FoundControl(job.number, control.name, control.breaks, seeds, seconds)


def digest_of(results: Iterable[Result]) -> str:
    """Names all runs: the same seeds give the same digest, on every machine."""
    digest = hashlib.blake2b(digest_size=16)
    for result in results:
        digest.update(f"{result.number} {result.seed} {result.scale!r} {result.digest}\n".encode())
    return digest.hexdigest()


def figures_of(
    scenarios: Mapping[int, Scenario], found: Sequence[Result | FoundControl]
) -> dict[str, Any]:
    """What all runs came to, for `scale.py`: each scenario in one row."""
    results = [each for each in found if isinstance(each, Result)]
    of_scenarios: dict[int, list[Result]] = {}
    for result in results:
        of_scenarios.setdefault(result.number, []).append(result)
    return {
        "digest": digest_of(results),
        "requests": sum(result.requests for result in results),
        "runs": len(results),
        "violations": sum(len(result.findings) for result in results),
        "rows": {str(n): _row(scenarios[n], runs) for n, runs in of_scenarios.items()},
        "controls": [asdict(each) for each in found if isinstance(each, FoundControl)],
    }


def _row(scenario: Scenario, runs: list[Result]) -> dict[str, Any]:
    slowest: dict[str, tuple[float, float]] = {}
    for each in runs:
        for what, (promised, seconds) in each.recovered.items():
            slowest[what] = promised, max(seconds, slowest.get(what, (promised, 0.0))[1])
    return {
        "title": scenario.title,
        "promise": scenario.promise,
        "scale": runs[0].scale,
        "seeds": len(runs),
        "hours": sum(each.virtual_seconds for each in runs) / HOUR,
        "requests": sum(each.requests for each in runs),
        "cents": sum(each.cents for each in runs),
        "cpu_seconds": sum(each.cpu_seconds for each in runs),
        "violations": sum(len(each.findings) for each in runs),
        "faults": sum((Counter(each.faults) for each in runs), Counter()),
        "outcomes": sum((Counter(each.outcomes) for each in runs), Counter()),
        "recovered": slowest,
    }


def shrunk(scenario: Scenario, result: Result, tell: Callable[[str], object]) -> Result:
    """A smaller run that breaks the same promise: fewer faults, fewer actors, a shorter time.

    Each step is another run, with its own chance. So a few seeds are tried before a step is given
    up, and the smallest run that fails is what is left.
    """
    broken = result.findings[0].promise
    smallest, plan = result, scenario
    for part, name in _kinds_of_faults(scenario.faults):
        weaker = replace(plan, faults=_without(part, name, plan.faults))
        found = _fails(weaker, broken, smallest.scale)
        if found is not None:
            plan, smallest = weaker, found
            tell(f"still broken without {name}: seed {found.seed}")
    scale = smallest.scale
    while (found := _fails(plan, broken, scale / 2)) is not None:
        if found.actors >= smallest.actors:
            break
        smallest, scale = found, scale / 2
        tell(f"still broken with {found.actors} actors: seed {found.seed}")
    return smallest


def _kinds_of_faults(given: Faults) -> list[tuple[str, str]]:
    """What goes wrong on the way to DynamoDB, in it and on the machines of clients."""
    return [
        (part, each.name)
        for part in ("network", "database", "clocks", "machines")
        for each in fields(getattr(given, part))
        if not each.name.endswith("_seconds") and _without(part, each.name, given) != given
    ]


def _without(part: str, name: str, given: Faults) -> Faults:
    faults: Any = getattr(given, part)
    calmer: Any = {part: replace(faults, **{name: getattr(type(faults)(), name)})}
    return replace(given, **calmer)


def _fails(scenario: Scenario, promise: str, scale: float) -> Result | None:
    for seed in range(1, 6):
        found = run(scenario, seed=seed, scale=scale, stops_at_first=True)
        if promise in found.broken:
            return found
    return None


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


def _one(number: int, seed: int, scale: float | None) -> int:
    """Repeats one run, and prints its trace; shrinks it if that is asked for."""
    scenario, chosen = SCENARIOS[number], os.environ.get("CONTROL")
    if chosen:
        scenario = weakened(scenario, scenario.controls[int(chosen) - 1])
    result = run(scenario, seed=seed, scale=scale, keeps_trace=True)
    if result.findings and os.environ.get("SHRINK"):
        _say(str(result))
        result = shrunk(scenario, result, _say)
    figures = {name: what for name, what in result.figures.items() if not isinstance(what, list)}
    _say("\n".join([*result.lines, f"figures: {figures}", str(result)]))
    _say(f"digest: {digest_of([result])}")
    return int(bool(result.findings))


def _many(scenarios: Mapping[int, Scenario], path: Path, **plan: Any) -> int:  # noqa: ANN401 - as `run_all` takes it
    """Makes the runs, prints a line for each, and keeps the figures."""
    found: list[Result | FoundControl] = []
    for each in run_all(scenarios, **plan):
        found.append(each)
        _say(str(each))
        _keep(path, figures_of(scenarios, found), is_complete=False)  # What is done is not lost.
    figures = figures_of(scenarios, found)
    _keep(path, figures, is_complete=True)
    cpu = sum(row["cpu_seconds"] for row in figures["rows"].values())
    found_controls = sum(control["seeds"] is not None for control in figures["controls"])
    missed = len(figures["controls"]) - found_controls
    requests, rate = figures["requests"], figures["requests"] / (cpu or 1)
    _say(f"{requests:,} requests in {figures['runs']} runs, {rate:,.0f} a second of CPU time")
    _say(f"{figures['violations']} violations; {found_controls} controls found, {missed} not")
    _say(f"digest: {figures['digest']}")
    return int(missed > 0 or figures["violations"] > 0)


def _keep(path: Path, figures: Mapping[str, Any], *, is_complete: bool) -> None:
    """Keeps the figures, for `make scale`."""
    chosen = [f"{name}={os.environ[name]}" for name in _CHOICES if os.environ.get(name)]
    told = {"command": " ".join([*chosen, "make simulate"]), "is_complete": is_complete}
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**told, **figures}, indent=1, sort_keys=True) + "\n")
    new.replace(path)


def main() -> int:
    """Returns 1 if a promise is broken, or a control is not found."""
    seed, number = _number("SEED", 1), os.environ.get("SCENARIO")
    scale = float(os.environ["SCALE"]) if os.environ.get("SCALE") else None
    seeds = _number("SEEDS", 0) or None
    if number and not seeds:
        return _one(int(number), seed, scale)
    return _many(
        {int(number): SCENARIOS[int(number)]} if number else SCENARIOS,
        Path(os.environ.get("OUT") or FIGURES),
        first_seed=seed,
        seeds=seeds,
        scale=scale,
        processes=_number("JOBS", 2),
        seconds=60 * _number("MINUTES", 20),
        with_controls=not number and seed == 1,
    )


if __name__ == "__main__":
    sys.exit(main())
