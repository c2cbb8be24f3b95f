"""Both engines side by side: for the terminal, and for docs/durable-conformance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from testbed.conformance.known_differences import Difference
from testbed.conformance.outcome import Outcome, Verdict

BEGIN: Final = "<!-- make conformance writes from here -->\n"
END: Final = "<!-- to here -->\n"


@dataclass(frozen=True)
class Cell:
    """A requirement on one engine.

    Attributes:
        outcome: how it ended.
        known: what is known to differ.
    """

    outcome: Outcome
    known: Difference | None = None

    @property
    def is_explained(self) -> bool:
        """As required, or different just as is known."""
        expected = Verdict.AS_REQUIRED if self.known is None else self.known.verdict
        return self.outcome.verdict is expected

    def __str__(self) -> str:
        """The verdict; of one that needs work, what was found too."""
        if self.is_explained:
            return self.outcome.verdict.value
        if self.known is not None and self.outcome.verdict is Verdict.AS_REQUIRED:
            return "known to differ, but as required"
        return f"{self.outcome.verdict.value}, not explained: {self.outcome.difference}"


@dataclass(frozen=True)
class Row:
    """A requirement on all engines.

    Attributes:
        name: like 1-1.
        suite: AWS's name for the requirements that begin with the same number.
        title: the requirement, in AWS's words.
        cells: by engine; none if it was not run.
        reason: why it was not run.
    """

    name: str
    suite: str
    title: str
    cells: Mapping[str, Cell]
    reason: str = ""


def table(rows: Iterable[Row], engines: Sequence[str]) -> str:
    """Each requirement on each engine."""
    head = ("", "requirement", *engines)
    body = [(row.name, row.title, *(_told(row, engine) for engine in engines)) for row in rows]
    return _markdown(head, body)


def _told(row: Row, engine: str) -> str:
    return str(row.cells[engine]) if row.cells else f"not run: {row.reason}"


def page(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """The part of the document that comes from a run: counts, what was not run, differences."""
    tried = [row for row in rows if row.cells]
    told = [f"* {engine}: {_counted(tried, engine)}" for engine in engines]
    left_out = {row.suite: row.reason for row in rows if not row.cells}
    told += [
        f"* not run: the {sum(row.suite == suite for row in rows)} of {suite}, because {reason}"
        for suite, reason in left_out.items()
    ]
    parts = ["\n".join(told)]
    differing = [(engine, row) for engine in engines for row in rows if _differs(row, engine)]
    if differing:
        head = ("engine", "requirements", "what it does", "relied on")
        parts.append(_markdown(head, _grouped(differing)))
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Answer:
    """What an engine answered to a question, and what it is known to answer."""

    found: str
    known: str

    def __str__(self) -> str:
        """The answer; of one that needs work, the known one too."""
        return self.found if self.found == self.known else f"{self.found}, not {self.known}"


def answers(rows: Iterable[tuple[str, Sequence[Answer], str]], engines: Sequence[str]) -> str:
    """What happens, what each engine answers, and what Fairlock makes of it."""
    head = ("what happens", *engines, "what Fairlock makes of it")
    told: dict[tuple[str, ...], list[str]] = {}
    for text, found, consequence in rows:
        told.setdefault((*map(str, found), consequence), []).append(text)
    body = [("; ".join(texts), *cells) for cells, texts in told.items()]
    return _markdown(head, body) + "\n"


def _counted(rows: Sequence[Row], engine: str) -> str:
    counts = Counter(row.cells[engine].outcome.verdict for row in rows)
    return ", ".join(f"{counts[each]} {each.value}" for each in Verdict if counts[each])


def _differs(row: Row, engine: str) -> bool:
    return bool(row.cells) and row.cells[engine].outcome.verdict is not Verdict.AS_REQUIRED


def _grouped(differing: Iterable[tuple[str, Row]]) -> list[tuple[str, ...]]:
    """One line for all requirements that differ for the same reason."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for engine, row in differing:
        known = row.cells[engine].known
        reason = known.reason if known else str(row.cells[engine])
        relied_on = known.relied_on if known else "not known"
        names.setdefault((engine, reason, relied_on), []).append(row.name)
    return [
        (engine, _named(found), reason, relied_on)
        for (engine, reason, relied_on), found in names.items()
    ]


def _named(requirements: Sequence[str]) -> str:
    """Those that differ for an unknown reason are few; known_differences.py names the others."""
    few = 3
    return ", ".join(requirements) if len(requirements) <= few else str(len(requirements))


def _markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def replaced(document: str, part: str) -> str:
    """The document with another part between its marks. Raises ValueError without the marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks the line {BEGIN.strip()!r} or {END.strip()!r}")
    return f"{before}{BEGIN}{part}{END}{after}"
