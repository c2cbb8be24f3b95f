"""`make simulate`: every scenario that there is, its controls, and one digest.

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

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.simulation import day, fleet, hot_lock, ways, workflows
from tests.simulation.campaign import FoundControl, digest_of, figures_of, run_all, shrunk
from tests.simulation.scenario import Result, Scenario, run, weakened

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
