"""The page: one file that opens from disk, with nothing loaded from anywhere."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template

from examples.demo.bill import idle, side_by_side
from examples.demo.checks import Check
from examples.demo.facts import Story
from examples.demo.handovers import idle_between
from examples.demo.ledger import statements
from examples.demo.table import HEADINGS, Row, tables

TEMPLATE = Path(__file__).with_name("page.html")


def page(
    story: Story, judged: Mapping[str, Sequence[Check]], svg: str, *, finished_at: datetime
) -> str:
    """The page's HTML; `finished_at` is an aware time."""
    failures = sum(not check.passed for checks in judged.values() for check in checks)
    total = sum(len(checks) for checks in judged.values())
    verdict = f"{failures} of {total} checks FAILED" if failures else f"all {total} checks passed"
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        verdict=verdict,
        verdict_class="bad" if failures else "good",
        when=finished_at.astimezone(UTC).strftime("%d %B %Y, %H:%M UTC"),
        tiles="".join(_tiles(story)),
        svg=svg[svg.index("<svg") :],
        checks="".join(_checks(title, checks) for title, checks in judged.items()),
        tables="".join(_table(title, rows) for title, rows in tables(story).items()),
        bill=_bill(story),
        lease=story.limits.lease_seconds,
        tolerance=story.limits.clock_tolerance_seconds,
        fallback=story.limits.fallback_seconds,
    )


def _tiles(story: Story) -> Iterable[str]:
    for run in story.runs:
        books = statements(run)
        lost, changes = sum(len(s.lost) for s in books), sum(s.changes for s in books)
        yield _tile(f"{lost} of {changes}", f"updates lost: {run.title.lower()}", bad=bool(lost))
    for run in (story.polling, story.queue):
        found = idle(run)
        text = f"lock idle between holders: {run.title.lower()}"
        yield _tile(found or "never", text, bad=not found)
    for incident in (story.failed, story.stopped):
        gap = idle_between(incident.broken, incident.following)
        text = f"from {incident.title} to the next one inside"
        yield _tile(str(gap or "never"), text, bad=gap is None)


def _tile(figure: str, text: str, *, bad: bool) -> str:
    return (
        f'<div class="tile"><strong class="{"bad" if bad else "good"}">{escape(figure)}</strong>'
        f"{escape(text)}</div>"
    )


def _checks(title: str, checks: Iterable[Check]) -> str:
    items = "".join(
        f'<li class="check {"passed" if c.passed else "failed"}">'
        + ('<b class="good">✓</b>' if c.passed else '<b class="bad">✗</b>')
        + f'<span>{escape(c.claim)}</span><span class="muted">{escape(c.evidence)}</span></li>'
        for c in checks
    )
    return f'<div><h3>{escape(title)}</h3><ul class="checks">{items}</ul></div>'


def _table(title: str, rows: Iterable[Row]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in HEADINGS)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="bad">{escape(cell)}</td>'
            if row.bad and HEADINGS[column] == "outcome"
            else f"<td>{escape(cell)}</td>"
            for column, cell in enumerate(row.cells)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<h3>{escape(title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _bill(story: Story) -> str:
    head = "".join(f'<th scope="col">{escape(run.title)}</th>' for run in story.runs)
    body = "".join(
        f'<tr><th scope="row">{escape(line)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for line, cells in side_by_side(story.runs).items()
    )
    return (
        f'<div class="scroll"><table id="bill"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
