"""Prints what a search finds: `python -m tests.model "the push comes before the state"`."""

from __future__ import annotations

import sys

from tests.model.catalogue import run_configuration, run_mutant
from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.contention.mutants import MUTANTS
from tests.model.executions.mutants import SCENE_MUTANTS, explore_mutant
from tests.model.executions.scenes import SCENES
from tests.model.explore import Explored, explore
from tests.model.known_gaps import KNOWN_GAPS
from tests.model.search import Report

_SCENES = {scene.name: scene for scene in SCENES}


def _names() -> str:
    sections = {
        "configurations": [c.name for c in CONFIGURATIONS],
        "known gaps": [c.name for c in KNOWN_GAPS],
        "mutants": list(MUTANTS),
        "ends of executions": list(_SCENES),
        "mutants of those": list(SCENE_MUTANTS),
    }
    return "\n".join(f"{title}:\n  " + "\n  ".join(names) for title, names in sections.items())


def _tell(report: Report) -> str:
    verdict = "all properties hold" if report.broken is None else f"BROKEN: {report.broken}"
    lines = [f"{report.name}: {report.states:,} states, {report.steps:,} steps; {verdict}"]
    return "\n".join([*lines, *report.trace])


def _tell_explored(name: str, found: Explored) -> str:
    verdict = "all promises hold" if found.broken is None else f"BROKEN: {found.broken}"
    orders = f", {found.orders:,} orders" if found.orders else ""
    return "\n".join([f"{name}: {found.states:,} states{orders}; {verdict}", *found.trace])


def _run(name: str) -> str:
    if name in _SCENES:
        return _tell_explored(name, explore(_SCENES[name]))
    if name in SCENE_MUTANTS:
        return _tell_explored(name, explore_mutant(name))
    return _tell(run_mutant(name) if name in MUTANTS else run_configuration(name))


def main(arguments: list[str]) -> int:
    """Runs the searches named, or lists them all."""
    if not arguments:
        sys.stdout.write(f'python -m tests.model "<name>"…, of which there are\n{_names()}\n')
    for name in arguments:
        sys.stdout.write(_run(name) + "\n")
    return 0


sys.exit(main(sys.argv[1:])) if __name__ == "__main__" else None
