"""Prints what a search finds: `python -m tests.model "the push comes before the state"`."""

from __future__ import annotations

import sys

from tests.model.configurations import CONFIGURATIONS
from tests.model.known_gaps import KNOWN_GAPS
from tests.model.mutants import MUTANTS
from tests.model.run import run_configuration, run_mutant
from tests.model.search import Report


def _names() -> str:
    sections = {
        "configurations": [c.name for c in CONFIGURATIONS],
        "known gaps": [c.name for c in KNOWN_GAPS],
        "mutants": list(MUTANTS),
    }
    return "\n".join(f"{title}:\n  " + "\n  ".join(names) for title, names in sections.items())


def _tell(report: Report) -> str:
    verdict = "all properties hold" if report.broken is None else f"BROKEN: {report.broken}"
    lines = [f"{report.name}: {report.states:,} states, {report.steps:,} steps; {verdict}"]
    return "\n".join([*lines, *report.trace])


def main(arguments: list[str]) -> int:
    """Runs the searches named, or lists them all."""
    if not arguments:
        sys.stdout.write(f'python -m tests.model "<name>"…, of which there are\n{_names()}\n')
    for name in arguments:
        report = run_mutant(name) if name in MUTANTS else run_configuration(name)
        sys.stdout.write(_tell(report) + "\n")
    return 0


sys.exit(main(sys.argv[1:])) if __name__ == "__main__" else None
