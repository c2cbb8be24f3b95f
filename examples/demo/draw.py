"""From the picture's data to SVG and PNG with matplotlib.

The SVG names its colours as CSS variables and carries both a light and a dark set, so the same file
is legible on either background, alone or inside a page. Text stays text.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from examples.demo.colours import (
    ACCOUNT_COLOURS,
    BAD,
    CROWD,
    DARK,
    GRID,
    IDLE,
    INK,
    MUTED,
    PAPER,
    VARIABLES,
)
from examples.demo.lanes import Group, Kind, Lane, Panel, Picture, account_order

LANE_INCHES, GROUP_GAP_INCHES, FRAME_INCHES, LEGEND_INCHES = 0.27, 0.34, 1.2, 0.6
WIDTH_INCHES = 11.0
"""At the width of a README a point is then about a pixel, which keeps the text legible."""
SOLID, PALE = 0.64, 0.30
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fairlock",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "hatch.linewidth": 0.8,
}


def draw(picture: Picture) -> tuple[str, bytes]:
    """The picture as (SVG text, PNG bytes); the PNG has the light colours."""
    panels = (*picture.runs, picture.incidents)
    colours = {
        account_id: ACCOUNT_COLOURS[number % len(ACCOUNT_COLOURS)]
        for number, account_id in enumerate(account_order(panels))
    }
    with mpl.rc_context(STYLE):  # type: ignore[arg-type] # the stubs name every key
        figure = _figure(picture, colours)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None})
        figure.savefig(png, format="png", facecolor=PAPER, dpi=144)
    return themed(svg.getvalue()), png.getvalue()


def themed(svg: str) -> str:
    """Replace the drawing's colours by variables and define them for light and dark."""
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name}, {colour})")
    light = ";".join(f"--{name}:{colour}" for colour, name in VARIABLES.items())
    dark = ";".join(f"--{VARIABLES[colour]}:{shade}" for colour, shade in DARK.items())
    css = f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1<style>{css}</style>", svg, count=1)


def _figure(picture: Picture, colours: Mapping[str, str]) -> Figure:
    upper, lower = max(map(_lanes_height, picture.runs)), _lanes_height(picture.incidents)
    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12, hspace=0.02, wspace=0.03)
    height = upper + lower + 2 * FRAME_INCHES + LEGEND_INCHES
    figure = Figure(figsize=(WIDTH_INCHES, height), layout=layout)
    rows = figure.add_gridspec(2, 1, height_ratios=[upper, lower])
    seconds = _widths([panel.span for panel in picture.runs])
    columns = rows[0].subgridspec(1, len(picture.runs), width_ratios=seconds)
    for number, panel in enumerate(picture.runs):
        axes = figure.add_subplot(columns[0, number])
        _panel(axes, panel, colours, seconds=seconds[number])
    _panel(
        figure.add_subplot(rows[1]),
        picture.incidents,
        colours,
        seconds=picture.incidents.span * 1.02,
    )
    _legend(figure)
    return figure


def _legend(figure: Figure) -> None:
    figure.legend(
        handles=[
            Patch(color=MUTED, alpha=0.36, lw=0, label="waits for the lock"),
            Patch(color=MUTED, lw=0, label="inside (last digits of its fencing token)"),
            Patch(fc="none", ec=MUTED, hatch="////", label="stopped, until its lock was handed on"),
            Patch(color=CROWD, lw=0, label="more than one inside"),
            Patch(color=IDLE, lw=0, label="no one inside though others wait"),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        labelcolor=MUTED,
    )


def _lanes_height(panel: Panel) -> float:
    lanes = sum(len(group.lanes) for group in panel.groups)
    return lanes * LANE_INCHES + len(panel.groups) * GROUP_GAP_INCHES


def _widths(spans: Sequence[float]) -> list[float]:
    """Seconds shown per panel: one scale for all, but none so narrow that its notes do not fit."""
    longest = max(*spans, 1.0)
    return [max(span * 1.04, longest * 0.45) for span in spans]


def _panel(axes: Axes, panel: Panel, colours: Mapping[str, str], *, seconds: float) -> None:
    y, ticks, names = 0.0, [], []
    for group in panel.groups:
        y += GROUP_GAP_INCHES / LANE_INCHES
        top = y
        for lane in group.lanes:
            _lane(axes, lane, y + 0.5, colours[group.account_id])
            ticks.append(y + 0.5)
            names.append(lane.name)
            y += 1
        _group_frame(axes, group, (top, y), colours[group.account_id], seconds)
    axes.set(xlim=(-seconds * 0.008, seconds), ylim=(y + 0.25, 0))
    axes.set_yticks(ticks, names, color=INK)
    axes.set_xlabel("seconds since the first start", color=MUTED)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="both", length=0, labelcolor=INK)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(panel.title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=20)
    axes.text(
        0, 1, panel.subtitle, transform=axes.transAxes, va="bottom", color=MUTED, fontsize=9.5
    )


def _group_frame(
    axes: Axes, group: Group, rows: tuple[float, float], colour: str, seconds: float
) -> None:
    top, bottom = rows
    for stretches, shade in ((group.crowded, CROWD), (group.idle, IDLE)):
        for start, end in stretches:
            axes.add_patch(
                Rectangle((start, top), end - start, bottom - top, color=shade, zorder=0.5, lw=0)
            )
    axes.text(0, top - 0.12, group.account_id, color=colour, fontweight="bold", fontsize=10)
    axes.text(
        seconds, top - 0.12, group.note, ha="right",
        color=BAD if group.bad else MUTED, fontweight="bold" if group.bad else "normal",
    )  # fmt: skip


def _lane(axes: Axes, lane: Lane, y: float, colour: str) -> None:
    for bar in lane.bars:
        if bar.end <= bar.start:
            continue
        style: dict[str, Any] = {
            Kind.WAITING: {"height": PALE, "color": colour, "alpha": 0.36, "linewidth": 0},
            Kind.INSIDE: {"height": SOLID, "color": colour, "linewidth": 0},
            Kind.ORPHANED: {
                "height": SOLID, "facecolor": "none", "edgecolor": colour, "hatch": "////",
                "linewidth": 0.8,
            },
        }[bar.kind]  # fmt: skip
        axes.barh(y, bar.end - bar.start, left=bar.start, **style)
        if bar.kind is Kind.INSIDE and lane.label:
            axes.text(
                (bar.start + bar.end) / 2, y, lane.label,
                ha="center", va="center_baseline", color="white", fontsize=8, fontweight="bold",
            )  # fmt: skip
    if lane.bad:
        end = max((bar.end for bar in lane.bars), default=0.0)
        axes.annotate(
            f"✕ {lane.verdict}", (end, y), xytext=(7, 0), textcoords="offset points",
            va="center_baseline", color=BAD, fontweight="bold", fontsize=8.5,
        )  # fmt: skip
