"""Prints what a search finds: `python -m tests.model "the push comes before the state"`."""

from __future__ import annotations

import sys

from tests.model.search import Report
from tests.model.searches import BY_NAME_ONLY, MUTANTS, SEARCHES, run_named


def _names() -> str:
    sections = {"searches": [*SEARCHES], "large": [*BY_NAME_ONLY], "mutants": [*MUTANTS]}
    return "\n".join("\n  ".join((f"{title}:", *names)) for title, names in sections.items())


def _tell(report: Report) -> str:
    verdict = "all invariants hold" if report.broken is None else f"BROKEN: {report.broken}"
    first = f"{report.name}: {report.states:,} states, {report.steps:,} moves; {verdict}"
    return "\n".join([first, *report.trace])


def main(arguments: list[str]) -> int:
    """Runs the searches named, or lists them all."""
    if not arguments:
        sys.stdout.write(f'python -m tests.model "<name>"…, of which there are\n{_names()}\n')
    for name in arguments:
        sys.stdout.write(_tell(run_named(name)) + "\n")
    return 0


sys.exit(main(sys.argv[1:])) if __name__ == "__main__" else None
