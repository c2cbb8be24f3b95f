"""`python -m bench.dashboard`: draws the dashboard of `LockMonitoring` from its definition.

The graphs, their metrics and statistics are those that the construct declares; the
values are those of `dashboard_hours`. Writes docs/images/dashboard.svg.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from aws_cdk import App, Stack
from aws_cdk.assertions import Template
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from bench.dashboard_hours import HOURS, Data, simulate
from fairlock.cdk import LockMonitoring, LockService
from fairlock.names import NAMESPACE

_PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "images" / "dashboard.svg"
_FUNCTIONS: Final = ("Acquire", "Heartbeat", "Release", "Reap")
_PERIOD_SECONDS: Final = 300
_COLUMNS: Final = 3
_STATISTICS: Final[dict[str, Callable[[list[float]], float]]] = {
    "Sum": sum,
    "Maximum": max,
    "p50": statistics.median,
    "p95": lambda values: sorted(values)[round(0.95 * (len(values) - 1))],
}

Json = dict[str, Any]
Series = dict[float, float]
"""Values by the second at which their period begins."""


def definition() -> list[Json]:
    """The properties of each graph, with the names of resources where AWS has references."""
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(App(outdir=folder), "Fairlock")
        LockMonitoring(stack, "Monitoring", service=LockService(stack, "Locks"))
        found = Template.from_stack(stack).find_resources("AWS::CloudWatch::Dashboard")
    [dashboard] = found.values()
    _, parts = dashboard["Properties"]["DashboardBody"]["Fn::Join"]
    body = "".join(part if isinstance(part, str) else _reference(part) for part in parts)
    return [each["properties"] for each in json.loads(body)["widgets"]]


def _reference(part: Json) -> str:
    """`Ref: LocksAcquireF90405C5` is Acquire."""
    [named] = part.values()
    text = named if isinstance(named, str) else named[0]
    return next((name for name in (*_FUNCTIONS, "Table") if name in text), text)


def series_of(rows: list[list[Any]], data: Data) -> dict[str, Series]:
    """What a graph shows, by label."""
    return {
        options.get("label", metric[1]): _statistic(metric, options, data)
        for *metric, options in rows
    }


def _statistic(metric: list[str], options: Json, data: Data) -> Series:
    namespace, name, _, value = metric
    key = (name, "") if namespace == NAMESPACE else (name, value)
    period = options.get("period", _PERIOD_SECONDS)
    values: dict[float, list[float]] = {}
    for second, each in data.get(key, ()):
        values.setdefault(second // period * period, []).append(each)
    return {begin: _STATISTICS[options["stat"]](each) for begin, each in sorted(values.items())}


def draw(graphs: list[Json], data: Data, path: Path) -> None:
    """Draws all graphs, three a row, as CloudWatch does."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "fairlock", "svg.fonttype": "none", "font.size": 7})
    rows = -(-len(graphs) // _COLUMNS)
    figure = Figure(figsize=(13, 2.3 * rows), layout="constrained")
    for place, graph in enumerate(graphs, 1):
        axes = figure.add_subplot(rows, _COLUMNS, place)
        _draw_graph(axes, graph, series_of(graph["metrics"], data))
    figure.savefig(path, metadata={"Date": None})
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines())
    path.write_text(re.sub(r'="[^"]*"', _rounded, text) + "\n")


def _rounded(attribute: re.Match[str]) -> str:
    """Coordinates to a tenth of a point."""
    return re.sub(r"(\d\.\d)\d+", r"\1", attribute[0])


def _draw_graph(axes: Axes, graph: Json, shown: dict[str, Series]) -> None:
    axes.set_title(graph["title"], loc="left", fontsize=8, fontweight="bold")
    for label, series in shown.items():
        hours = [begin / 3600 for begin in series]
        marker = "." if len(series) == 1 else ""
        axes.plot(hours, list(series.values()), marker=marker, linewidth=1, label=label)
    is_flat = not any(value for one in shown.values() for value in one.values())
    axes.set(xlim=(0, HOURS), ylim=(0, 1 if is_flat else None))
    axes.locator_params(nbins=5)
    if graph["title"].endswith("(ms)"):
        highest = max((value for one in shown.values() for value in one.values()), default=1.0)
        step = next(each for each in _STEPS_MS if highest <= 5 * each)
        axes.yaxis.set_major_locator(MultipleLocator(step))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _as_time(value)))
    axes.grid(visible=True, alpha=0.3)
    if any(shown.values()):
        axes.legend(loc="upper left", fontsize=6, framealpha=0.6)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="gray")


_STEPS_MS: Final = [
    *(10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000, 30_000),
    *(60_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 86_400_000),
]


def _as_time(milliseconds: float) -> str:
    """A time as people say it; the console shows milliseconds."""
    for unit, length in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length:
            return f"{milliseconds / length:.3g} {unit}"
    return f"{milliseconds:.3g} ms"


if __name__ == "__main__":
    draw(definition(), simulate(), _PICTURE)
