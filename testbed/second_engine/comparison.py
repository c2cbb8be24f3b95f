"""How tests ended on two engines, side by side, and whose the differences are."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SAME: Final = ""
_WORSE: Final = {"failure": "failed", "error": "error", "skipped": "skipped"}

Outcomes = Mapping[str, Sequence[str]]
"""By case: how each of its variants ended, "passed" or worse."""


def outcomes_of(junit_xml: Path) -> dict[str, list[str]]:
    """The outcomes that pytest has written. The variants of a parametrized test are one case."""
    outcomes: dict[str, list[str]] = {}
    # Written by the pytest that this program has started.
    for case in ET.parse(junit_xml).getroot().iter("testcase"):  # noqa: S314
        name = _name(str(case.get("classname")), str(case.get("name")))
        worse = [_WORSE[child.tag] for child in case if child.tag in _WORSE]
        outcomes.setdefault(name, []).append((worse or ["passed"])[0])
    return outcomes


def _name(module: str, test: str) -> str:
    """`tests.e2e.guard.test_data` and `test_any_json[1]` are the case `guard/data: any json`."""
    folder, file = module.split(".")[-2:]
    sentence = test.partition("[")[0].removeprefix("test_").replace("_", " ")
    return f"{folder}/{file.removeprefix('test_')}: {sentence}"


@dataclass(frozen=True)
class Difference:
    """A difference that is known.

    Attributes:
        whose: the engine that is not like AWS.
        reason: what it does.
        failed: how many variants of the case fail on the second engine.
    """

    whose: str
    reason: str
    failed: int = 1


@dataclass(frozen=True)
class Row:
    """One case on both engines.

    Attributes:
        difference: empty if both ended alike.
        is_explained: whether the row needs no work: alike and passed, or different as is known.
    """

    case: str
    first: str
    second: str
    difference: str
    is_explained: bool


def compare(first: Outcomes, second: Outcomes, known: Mapping[str, Difference]) -> list[Row]:
    """All cases of both engines, in the order of the first.

    Not explained: a case that one engine has not run, or that fails on the first, a difference
    that is not known, or in more or fewer variants than is known, and a known one that is gone.
    """
    cases = dict.fromkeys([*first, *second, *known])
    return [
        _row(case, first.get(case, ()), second.get(case, ()), known.get(case)) for case in cases
    ]


def _row(case: str, first: Sequence[str], second: Sequence[str], known: Difference | None) -> Row:
    passes = bool(first) and set(first) == {"passed"}
    alike = Counter(first) == Counter(second)
    if known and passes and _fails_in(second, known.failed, of=len(first)):
        difference, is_explained = f"{known.whose}: {known.reason}", True
    elif known and alike:
        difference, is_explained = "known, but gone", False
    elif alike:
        difference, is_explained = SAME if passes else "fails on both", passes
    else:
        difference, is_explained = "not explained", False
    return Row(case, _summary(first), _summary(second), difference, is_explained=is_explained)


def _fails_in(outcomes: Sequence[str], failed: int, *, of: int) -> bool:
    expected = Counter({"failed": failed, "passed": of - failed})
    return +expected == Counter(outcomes)


def _summary(outcomes: Sequence[str]) -> str:
    """`passed`, `39 passed`, or `2 failed, 1 passed`."""
    if not outcomes:
        return "not run"
    if len(outcomes) == 1:
        return outcomes[0]
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(outcomes).items()))


def table(title: str, rows: Sequence[Row], engines: tuple[str, str]) -> str:
    """The rows as a table in Markdown, and how many of them need work."""
    head = ("case", *engines, "difference and whose")
    body = [(row.case, row.first, row.second, row.difference) for row in rows]
    lines = [" | ".join(cells) for cells in (head, ("---",) * len(head), *body)]
    explained = sum(row.is_explained for row in rows)
    alike = sum(row.difference == SAME for row in rows)
    counts = (
        f"{len(rows)} cases: {alike} alike, {explained - alike} different as is known, "
        f"{len(rows) - explained} to explain"
    )
    return "\n".join([f"## {title}", "", *(f"| {line} |" for line in lines), "", counts])
