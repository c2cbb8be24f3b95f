"""The pictures of docs/performance.md, from the figures of one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.bed import Figures
from bench.workflows import POLL, QUEUE

_SIZE_INCHES = (6.4, 3.2)


def draw(figures: dict[str, Figures], folder: Path) -> list[Path]:
    """Draws what was measured; what was not is left out."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fairlock"  # The same figures give the same file.
    drawings: dict[str, tuple[str, Callable[[Axes, Any], None]]] = {
        "waiters": ("waiting", _waiters),
        "cost": ("hand_off", _cost),
        "heartbeats": ("held", _heartbeats),
        "permits": ("permits", _permits),
    }
    paths = []
    for name, (section, plot) in drawings.items():
        if section in figures:
            paths.append(folder / f"performance-{name}.svg")
            _save(paths[-1], figures[section], plot)
    return paths


def _save(path: Path, figures: Figures, plot: Callable[[Axes, Any], None]) -> None:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    plot(axes, figures)
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines())
    path.write_text(f"{text}\n")


def _waiters(axes: Axes, figures: Figures) -> None:
    sizes = [int(size) for size in figures]
    for name in ("median", "p95"):
        axes.plot(sizes, [f["interval_ms"][name] for f in figures.values()], "o-", label=name)
    axes.set(xscale="log", xlabel="waiting clients", ylabel="ms between two grants", ylim=(0, None))
    axes.legend()


def _cost(axes: Axes, figures: Figures) -> None:
    for machine, label in ((QUEUE, "queue"), (POLL, "polling")):
        waits = figures[f"{machine} wait"]
        cost = [f["usd"] for f in waits.values()]
        axes.plot([int(seconds) for seconds in waits], cost, "o-", label=label)
    axes.set(xlabel="seconds of waiting", ylabel="USD a million executions", ylim=(0, None))
    axes.legend()


def _heartbeats(axes: Axes, figures: Figures) -> None:
    rows = [(int(size.replace(",", "")), f) for size, f in figures.items() if size != "all"]
    sizes = [size for size, _ in rows]
    axes.plot(sizes, [f["heartbeats_per_second"] for _, f in rows], "o-")
    axes.set(xlabel="locks held by one client", ylabel="heartbeats a second", ylim=(0, None))


def _permits(axes: Axes, figures: Figures) -> None:
    permits = [int(each) for each in figures]
    for name in ("acquire", "join", "hand_off"):
        label = name.replace("_", "-")
        axes.plot(permits, [f[name] for f in figures.values()], "o-", label=label)
    axes.set(xlabel="permits that are out", ylabel="write units", ylim=(0, None))
    axes.legend()
