"""Writes the tables and plots of docs/scale.md: figures of `make simulate`, and sweeps of its own.

A sweep raises the load of one lock step by step, in the same simulated world. The text of the page
is written there. A table keeps its head, by which it is found.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.simulation.__main__ import FIGURES
from tests.simulation.clients import ClientActor
from tests.simulation.dynamodb import WRITE_DOLLARS
from tests.simulation.faults import Database, Faults
from tests.simulation.hot_lock import MASS_STOP
from tests.simulation.scenario import Result, Scenario, run
from tests.simulation.world import World

_DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
_PAGE: Final = _DOCS / "scale.md"
_IMAGES: Final = _DOCS / "images"
_WORK_SECONDS: Final = 1.0
_LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
_CROWDS: Final = (2, 5, 10, 20, 50, 100)

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Those of a plot: the points of each, by its name."""
Rows = Sequence[Sequence[object]]


def _sweep(play: Callable[[World], None]) -> Result:
    faults = Faults(database=Database(partitions=1))
    scenario = Scenario(number=0, title="a sweep", promise="", faults=faults, play=play)
    return run(scenario, seed=1, scale=1.0)


def _arrivals(world: World, *, load: float) -> None:
    """Clients that come at random, each for one turn, as invocations of a function do."""
    at = 0.0
    for number in range(300):
        at += world.random.expovariate(load / _WORK_SECONDS)
        actor = ClientActor(world, f"comer {number}")
        work = world.random.expovariate(1 / _WORK_SECONDS)
        world.begin(at, actor.process, partial(actor.take, "hot", work, max_wait=3_600))
    world.run(at_most=86_400)


def _crowd(world: World, *, waiters: int) -> None:
    """So many clients ask within a second, and each works for a second."""
    for number in range(waiters):
        actor = ClientActor(world, f"comer {number}")
        take = partial(actor.take, "hot", _WORK_SECONDS, max_wait=3_600)
        world.begin(world.random.random(), actor.process, take)
    world.run(at_most=86_400)


def waits_over_load() -> Lines:
    """The mean wait and the 95th percentile, and the mean of an ideal queue."""
    mean, late = [], []
    for load in _LOADS:
        waits = sorted(_sweep(partial(_arrivals, load=load)).waits)
        mean.append((load, statistics.mean(waits)))
        late.append((load, waits[int(0.95 * len(waits))]))
    # Of a queue with random arrivals and random work (M/M/1), without any time for hand-offs.
    ideal = [(load, _WORK_SECONDS * load / (1 - load)) for load in _LOADS]
    return {"mean": mean, "95th percentile": late, "mean of an ideal queue": ideal}


def cost_over_crowd() -> Lines:
    """Cents for a thousand locks, over how many wait; and of a peer that tries once a second."""
    ours, peers = [], []
    for waiters in _CROWDS:
        result = _sweep(partial(_crowd, waiters=waiters))
        ours.append((float(waiters), result.cents / waiters * 1_000))
        # It acquires and releases, and each second of its wait it tries a conditional write.
        waited = waiters / 2 * _WORK_SECONDS
        peers.append((float(waiters), (2 + waited) * WRITE_DOLLARS * 100 * 1_000))
    return {"Fairlock": ours, "a peer that tries once a second": peers}


def drain() -> Lines:
    """The share of the locks of ended executions that are taken, over the time since the first."""
    freed = run(MASS_STOP, seed=1, scale=0.02).figures["drain"]
    moments = [10.0 * step for step in range(int(max(freed) / 10) + 2)]
    taken = [100 * sum(at > moment for at in freed) / len(freed) for moment in moments]
    return {"still taken": list(zip(moments, taken, strict=True))}


def draw(name: str, lines: Lines, *, across: str, up: str, log_x: bool = False) -> None:
    """Writes a plot of lines as SVG."""
    with _axes(name) as axes:
        for label, points in lines.items():
            axes.plot(*zip(*points, strict=True), label=label)
        axes.set(xlabel=across, ylabel=up, ylim=(0, None))
        if log_x:
            xs = [x for x, _ in next(iter(lines.values()))]
            axes.set_xscale("log")
            axes.set_xticks(xs, labels=[f"{x:g}" for x in xs])
        if len(lines) > 1:
            axes.legend()


def draw_recoveries(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes bars as SVG: the slowest recovery of each kind in all runs, and what is promised."""
    slowest: dict[str, tuple[float, float]] = {}
    for row in rows.values():
        for what, told in row["recovered"].items():
            before = slowest.get(what, (0.0, 0.0))
            slowest[what] = max(before[0], told[0]), max(before[1], told[1])
    with _axes("recovery") as axes:
        names = sorted(slowest)
        drawn = axes.barh(names, [slowest[name][1] for name in names])
        for bar, name in zip(drawn, names, strict=True):
            (promised, seconds), middle = slowest[name], bar.get_y() + bar.get_height() / 2
            axes.plot([promised] * 2, [middle - 0.45, middle + 0.45], color="C1", linewidth=3)
            text = f"  {seconds:.1f} of {promised:.3g}"
            axes.text(max(seconds, promised), middle, text, verticalalignment="center")
        longest = max(map(max, slowest.values()))
        axes.set(xlabel="seconds; the stroke is the promise", xlim=(0, 1.25 * longest))
        axes.invert_yaxis()


@contextmanager
def _axes(name: str) -> Iterator[Axes]:
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fairlock"  # The same figures give the same file.
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    yield axes
    path = _IMAGES / f"scale-{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines())
    path.write_text(f"{text}\n")


def main() -> int:
    """Returns 1 if there are no figures yet."""
    if not FIGURES.exists():
        sys.stderr.write("run `make simulate` first: it measures what this draws\n")
        return 1
    figures = json.loads(FIGURES.read_text())
    if not figures["is_complete"]:
        sys.stderr.write("the last `make simulate` did not come to its end: run it again\n")
        return 1
    others = [
        json.loads(path.read_text()) for path in sorted(FIGURES.parent.glob("simulation-*.json"))
    ]
    waits, costs = waits_over_load(), cost_over_crowd()
    draw("waits", waits, across="load of the lock", up="seconds")
    across, up = "clients that ask at once (1 s of work each)", "cents for 1,000 locks"
    draw("cost", costs, across=across, up=up, log_x=True)
    across, up = "seconds since the first execution has ended", "% of the locks are taken"
    draw("drain", drain(), across=across, up=up)
    draw_recoveries(figures["rows"])
    page = _PAGE.read_text()
    for head, rows in {
        "command": [_run(each) for each in (figures, *others)],
        "scenario | what it stands for": [
            _scenario(*each) for each in sorted(figures["rows"].items(), key=lambda of: int(of[0]))
        ],
        "fault": _faults(figures["rows"].values()),
        "load": _points(waits),
        "clients": _points(costs),
        "scenario | what is switched off": [_control(each) for each in figures["controls"]],
    }.items():
        page = with_rows(page, head, rows)
    _PAGE.write_text(f"{page.rstrip()}\n")
    return 0


def with_rows(page: str, head: str, rows: Rows) -> str:
    """The page with these rows in the table whose head begins so."""
    before, begins, rest = page.partition(f"\n| {head} |")
    assert begins, f"the page has no table whose head begins with {head}"
    table, ends, after = rest.partition("\n\n")
    told = table.splitlines()[:2] + [f"| {' | '.join(map(str, row))} |" for row in rows]
    return before + begins + "\n".join(told) + ends + after


def _run(figures: Mapping[str, Any]) -> Sequence[object]:
    """What one command came to."""
    seconds = sum(row["cpu_seconds"] for row in figures["rows"].values())
    return (
        f"`{figures['command']}`",
        figures["runs"],
        f"{figures['requests']:,}",
        f"{figures['requests'] / seconds:,.0f}",
        figures["violations"],
        figures["digest"],
    )


def _scenario(number: str, row: Mapping[str, Any]) -> Sequence[object]:
    return (
        f"{number}: {row['title']}",
        row["promise"],
        f"{row['scale']:.2g}",
        row["seeds"],
        f"{row['hours']:.1f}",
        f"{row['requests']:,}",
        row["violations"],
        f"{row['cents']:.1f}",
    )


def _faults(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """How often each came, in all runs."""
    faults = sum((Counter[str](row["faults"]) for row in rows), Counter[str]())
    return [(what, f"{number:,}") for what, number in sorted(faults.items())]


def _points(lines: Lines) -> Rows:
    """Those of a plot: each place, and what each line has there."""
    columns = [[f"{y:.2g}" for _, y in points] for points in lines.values()]
    places = [f"{x:g}" for x, _ in next(iter(lines.values()))]
    return list(zip(places, *columns, strict=True))


def _control(control: Mapping[str, Any]) -> Sequence[object]:
    seeds, seconds = control["seeds"] or "not found", f"{control['seconds']:.1f}"
    return control["number"], control["name"], control["breaks"], seeds, seconds


if __name__ == "__main__":
    sys.exit(main())
