"""What was wanted of a figure, and whether the run has reached it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from bench.bed import Figures


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for a figure, what was measured, and whether that is within the bound."""

    wanted: str
    measured: object
    is_met: bool

    @classmethod
    def at_most(cls, what: str, measured: float, most: float, unit: str = "") -> Goal:
        """The figure is to be no higher than that."""
        return cls(f"{what}: at most {most:g}{unit}", f"{measured:g}{unit}", measured <= most)


def lines(sections: Mapping[str, ModuleType], figures: Mapping[str, Figures]) -> list[str]:
    """How many goals were met, and which were not; those of no measured section do not count."""
    goals = [
        goal
        for name, module in sections.items()
        if name in figures and hasattr(module, "goals")
        for goal in module.goals(figures[name])
    ]
    if not goals:
        return []
    rows = [f"| {goal.wanted} | {goal.measured} |" for goal in goals if not goal.is_met]
    met = f"The run met {len(goals) - len(rows)} of {len(goals)} goals."
    table = ["", "| not met | measured |", "|---|---|", *rows] if rows else []
    return ["## Goals", "", met, *table]
