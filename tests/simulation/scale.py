"""Writes docs/scale.md and its plots from the figures of `make simulate`, and sweeps of its own.

A sweep raises the load of one lock step by step, in the same simulated world.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

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

_ROOT: Final = Path(__file__).resolve().parents[2]
_IMAGES: Final = _ROOT / "docs" / "images"
_WORK_SECONDS: Final = 1.0
_LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
_CROWDS: Final = (2, 5, 10, 20, 50, 100)

_TEMPLATE: Final = """\
# What it can carry, and how fast it heals

`make simulate` runs the real code over models of AWS's services, in virtual time. `make scale`
writes this page from what that measured. The models are ours: the figures show what the design
does under the quotas and faults that AWS documents, not what AWS does.

`{command}` made {requests} requests in {runs} runs, {rate} a second of CPU time; {violations}
broken promises; {found} of {controls} controls found. Each scenario's seeds begin with 1. The same
command on the same sources prints the same digest: {digest}.
{others}

## Scenarios

| scenario | what it stands for | scale | runs | hours | requests | violations | cents |
|---|---|---|---|---|---|---|---|
{scenarios}

The faults of all runs:

| fault | times |
|---|---|
{faults}

## How fast faults heal

The slowest of all runs, without those that met a lost, late or refused request meanwhile. A death
counts from the end of the lease, which counts from the last renewal.

![The slowest recovery of each kind beside its promise](images/scale-recovery.svg)

## Wait over load

300 clients come at random, and hold one lock for a second on average. With a load of 0.8 their
work takes 80 % of the time. The ideal queue has no end, and no time for hand-offs; with a load near
1 so few clients wait less than its mean.

![Wait over load](images/scale-waits.svg)

{waits}

A waiting client finds its grant by polling, after about a tenth of the time that the holder held.
So a lock carries a little less than its work alone would allow.

## Cost over load

Clients ask within a second for one lock, and each holds it for a second. The peer is arithmetic:
a client that tries one conditional write each second, and needs two more to acquire and release.

![Cost over the number of clients](images/scale-cost.svg)

{costs}

## Many ends at once

100,000 executions that hold a lock each end within a minute (scenario 4, in a world of a fiftieth
of that size and of AWS's default quotas). Each lock has to be free within its lease + 5 minutes,
which is 360 s.

![Locks that are still taken over time](images/scale-drain.svg)

## Where the design ends

* **One name** carries 500 locks a second without waiters, and 66 if all wait
  ([costs](costs.md#permits-against-rate)). If you need more, use several names.
* **One queue** has 1,000 waiters. Further callers poll outside of it, at least every 5 s, and
  enter as places become free. Their order is not kept.
* **One table** starts with 4,000 write units a second and grows to 40,000, which is 20,000 locks
  a second ([costs](costs.md#many-ends-at-once)). If you need more, use several tables.

## Controls

Each control switches one protection off. A run must then find the promise broken.

| scenario | what is switched off | broken | runs | seconds of CPU |
|---|---|---|---|---|
{list_of_controls}

"""


class Line(NamedTuple):
    """One line of a plot: its name, and its points."""

    name: str
    points: Sequence[tuple[float, float]]


def _sweep(play: Callable[[World], None], *, seed: int = 1) -> Result:
    scenario = Scenario(
        number=0,
        title="a sweep",
        promise="",
        faults=Faults(database=Database(partitions=1)),
        play=play,
        scale=1.0,
    )
    return run(scenario, seed=seed)


def _arrivals(world: World, *, load: float, permits: int) -> None:
    """Clients that come at random, each for one turn, as invocations of a function do."""
    at = 0.0
    for number in range(300):
        at += world.random.expovariate(load * permits / _WORK_SECONDS)
        actor = ClientActor(world, f"comer {number}")
        work = world.random.expovariate(1 / _WORK_SECONDS)
        take = partial(actor.take, "hot", work, max_wait=3_600, limit=permits)
        world.begin(at, actor.process, take)
    world.run(at_most=86_400)


def _crowd(world: World, *, waiters: int) -> None:
    """So many clients ask within a second, and each works for a second."""
    for number in range(waiters):
        actor = ClientActor(world, f"comer {number}")
        take = partial(actor.take, "hot", _WORK_SECONDS, max_wait=3_600)
        world.begin(world.random.random(), actor.process, take)
    world.run(at_most=86_400)


def waits_over_load() -> list[Line]:
    """The mean wait and the 95th percentile, and the mean of an ideal queue."""
    mean, late = [], []
    for load in _LOADS:
        waits = sorted(_sweep(partial(_arrivals, load=load, permits=1)).waits)
        mean.append((load, statistics.mean(waits)))
        late.append((load, waits[int(0.95 * len(waits))]))
    # Of a queue with random arrivals and random work (M/M/1), without any time for hand-offs.
    ideal = [(load, _WORK_SECONDS * load / (1 - load)) for load in _LOADS]
    return [
        Line("mean", mean),
        Line("95th percentile", late),
        Line("mean of an ideal queue", ideal),
    ]


def cost_over_crowd() -> list[Line]:
    """Cents for a thousand locks, over how many wait; and of a peer that tries once a second."""
    ours, peers = [], []
    for waiters in _CROWDS:
        result = _sweep(partial(_crowd, waiters=waiters))
        ours.append((float(waiters), result.cents / waiters * 1_000))
        # It acquires and releases, and each second of its wait it tries a conditional write.
        waited = waiters / 2 * _WORK_SECONDS
        peers.append((float(waiters), (2 + waited) * WRITE_DOLLARS * 100 * 1_000))
    return [Line("Fairlock", ours), Line("a peer that tries once a second", peers)]


def drain() -> list[Line]:
    """The share of the locks of ended executions that are taken, over the time since the first."""
    freed = run(MASS_STOP, seed=1, scale=0.02).figures["drain"]
    moments = [10.0 * step for step in range(int(max(freed) / 10) + 2)]
    taken = [100 * sum(at > moment for at in freed) / len(freed) for moment in moments]
    return [Line("still taken", list(zip(moments, taken, strict=True)))]


def draw(path: Path, lines: Sequence[Line], *, across: str, up: str, log_x: bool = False) -> None:
    """Writes a plot of lines as SVG."""
    with _axes(path) as axes:
        for line in lines:
            axes.plot(*zip(*line.points, strict=True), label=line.name)
        axes.set(xlabel=across, ylabel=up, ylim=(0, None))
        if log_x:
            xs = [x for x, _ in lines[0].points]
            axes.set_xscale("log")
            axes.set_xticks(xs, labels=[f"{x:g}" for x in xs])
        if len(lines) > 1:
            axes.legend()


def draw_bars(path: Path, bars: Sequence[tuple[str, float, float]], *, across: str) -> None:
    """Writes bars as SVG: the slowest beside what is promised."""
    with _axes(path) as axes:
        drawn = axes.barh([name for name, *_ in bars], [seconds for _, seconds, _ in bars])
        for bar, (_, seconds, promised) in zip(drawn, bars, strict=True):
            middle = bar.get_y() + bar.get_height() / 2
            axes.plot([promised] * 2, [middle - 0.45, middle + 0.45], color="C1", linewidth=3)
            right = max(seconds, promised)
            axes.text(
                right, middle, f"  {seconds:.1f} of {promised:.3g}", verticalalignment="center"
            )
        axes.set(xlabel=across, xlim=(0, 1.25 * max(max(one[1:]) for one in bars)))
        axes.invert_yaxis()


@contextmanager
def _axes(path: Path) -> Iterator[Axes]:
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fairlock"  # The same figures give the same file.
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    yield axes
    figure.savefig(path, metadata={"Date": None})
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines())
    path.write_text(f"{text}\n")


def recoveries(rows: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """The slowest recovery of each kind in all runs, and what is promised."""
    slowest: dict[str, tuple[float, float]] = {}
    for row in rows.values():
        for what, (promised, seconds) in row["recovered"].items():
            before = slowest.get(what, (0.0, 0.0))
            slowest[what] = max(before[0], promised), max(before[1], seconds)
    return [(what, seconds, promised) for what, (promised, seconds) in sorted(slowest.items())]


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
    waits, costs, bars = waits_over_load(), cost_over_crowd(), recoveries(figures["rows"])
    _IMAGES.mkdir(exist_ok=True)
    draw(_IMAGES / "scale-waits.svg", waits, across="load of the lock", up="seconds")
    across, up = "clients that ask at once (1 s of work each)", "cents for 1,000 locks"
    draw(_IMAGES / "scale-cost.svg", costs, across=across, up=up, log_x=True)
    across, up = "seconds since the first execution has ended", "% of the locks are taken"
    draw(_IMAGES / "scale-drain.svg", drain(), across=across, up=up)
    draw_bars(_IMAGES / "scale-recovery.svg", bars, across="seconds; the stroke is the promise")
    (_ROOT / "docs" / "scale.md").write_text(_page(figures, others, waits, costs))
    return 0


def _further(others: Sequence[Mapping[str, Any]]) -> str:
    """What other runs came to, at other seeds and sizes."""
    if not others:
        return ""
    rows = [
        f"| `{each['command']}` | {each['runs']} | {each['requests']:,} | {each['violations']} "
        f"| {each['digest']} |"
        for each in others
    ]
    head = [
        "| further runs | runs | requests | broken promises | digest |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(["", *head, *rows, ""])


def _page(
    figures: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]],
    waits: Sequence[Line],
    costs: Sequence[Line],
) -> str:
    rows: Mapping[str, Any] = figures["rows"]
    requests = sum(row["requests"] for row in rows.values())
    faults: Counter[str] = Counter()
    for row in rows.values():
        faults.update(row["faults"])
    found = sum(each["seeds"] is not None for each in figures["controls"])
    return _TEMPLATE.format(
        requests=f"{requests:,}",
        runs=sum(row["seeds"] for row in rows.values()),
        rate=f"{requests / sum(row['cpu_seconds'] for row in rows.values()):,.0f}",
        violations=sum(row["violations"] for row in rows.values()),
        found=found,
        controls=len(figures["controls"]),
        command=figures["command"],
        digest=figures["digest"],
        others=_further(others),
        scenarios="\n".join(
            f"| {number}: {row['title']} | {row['promise']} | {row['scale']:.2g} "
            f"| {row['seeds']} | {row['hours']:.1f} "
            f"| {row['requests']:,} | {row['violations']} | {row['cents']:.1f} |"
            for number, row in sorted(rows.items(), key=lambda each: int(each[0]))
        ),
        faults="\n".join(f"| {what} | {number:,} |" for what, number in sorted(faults.items())),
        waits="\n".join(_table("load", waits, "s")),
        costs="\n".join(_table("clients", costs, "cents")),
        list_of_controls="\n".join(
            f"| {each['number']} | {each['name']} | {each['breaks']} "
            f"| {each['seeds'] or 'not found'} | {each['seconds']:.1f} |"
            for each in figures["controls"]
        ),
    )


def _table(across: str, lines: Sequence[Line], unit: str) -> list[str]:
    names = " | ".join(f"{line.name}, {unit}" for line in lines)
    rows = [f"| {across} | {names} |", "|---" * (len(lines) + 1) + "|"]
    for number, (x, _) in enumerate(lines[0].points):
        values = " | ".join(f"{line.points[number][1]:.2g}" for line in lines)
        rows.append(f"| {x:g} | {values} |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
