"""The picture and the page stand for themselves: nothing is loaded, nothing is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import examples.demo
from examples.demo.colours import VARIABLES
from examples.demo.facts import Mode, Story
from examples.demo.lanes import Bar, Group, Kind, Lane, incident_panel, picture, run_panel
from examples.demo.page import page
from examples.demo.table import tables
from examples.demo.verdict import all_checks
from tests.demo.builders import POLLING, STORY, UNGUARDED

FINISHED_AT = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def svg() -> str:
    """The story's picture."""
    from examples.demo.draw import draw  # noqa: PLC0415 - matplotlib: two seconds to import

    return draw(picture(STORY))[0]


def html_of(story: Story, svg: str, *, error: str = "CardDeclined") -> str:
    return page(story, all_checks(story, error=error), svg, finished_at=FINISHED_AT)


def test_the_svg_keeps_its_text_and_names_its_colours(svg: str) -> None:
    for text in (">a-1</text>", ">…0002</text>", "CardDeclined</text>"):
        assert text in svg
    drawn = svg.split("</style>", 1)[1]
    assert [colour for colour in VARIABLES if re.search(rf"(?<!, ){colour}", drawn)] == []


SAID = (
    "02 January 2030, 03:04 UTC",
    "lock idle between holders (median) - 500 ms 40 ms",
    "500 ms lock idle between holders: guard that polls",
    "40 ms lock idle between holders: guard with a queue",
    "50 ms from failed task to the next one inside",
    "600 ms from stopped execution to the next one inside",
    "when lease (6 s) and clock tolerance (2 s) are over",
    "every 10 s in this demo",
)


def test_the_page_shows_each_check_compares_the_runs_names_their_limits_and_loads_nothing(
    svg: str,
) -> None:
    html = html_of(STORY, svg)
    assert 'class="badge good">all 24 checks passed<' in html
    assert html.count('<li class="check passed">') == 24
    cells = [row.cells[0] for rows in tables(STORY).values() for row in rows]
    assert [cell for cell in cells if f"<td>{cell}</td>" not in html] == []
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert [words for words in SAID if words not in text] == []
    assert "<script" not in html
    assert re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#|data:)([^\"')\s>]+)", html) == []


def test_the_page_of_a_bad_run_says_so(svg: str) -> None:
    bad = replace(STORY, queue=replace(UNGUARDED, title="Queue", mode=Mode.QUEUE))
    html = html_of(bad, svg)
    assert 'class="badge bad">8 of 24 checks FAILED<' in html
    assert html.count('<li class="check failed">') == 8


def test_what_comes_from_outside_is_escaped(svg: str) -> None:
    broken = replace(STORY.failed.broken, error="<b>")
    html = html_of(replace(STORY, failed=replace(STORY.failed, broken=broken)), svg, error="<b>")
    assert "FAILED with &lt;b&gt;" in html
    assert "FAILED with <b>" not in html


# The picture's data says who waited and who was inside, and marks what went wrong.


def inside(start: float, end: float) -> Bar:
    return Bar(kind=Kind.INSIDE, start=start, end=end)


def test_an_unguarded_account_shows_the_crowd_and_the_lost_update() -> None:
    (group,) = run_panel(UNGUARDED).groups
    assert group == Group(
        account_id="alice",
        lanes=(
            Lane(name="a-1", bars=(inside(0.05, 0.85),), verdict="lost", bad=True),
            Lane(name="a-2", bars=(inside(0.25, 1.05),)),
        ),
        note="balance 980, not 970",
        bad=True,
        crowded=((0.25, 0.85),),
    )


def test_a_guarded_account_shows_turns_in_order_of_entry_with_their_tokens() -> None:
    group, _ = run_panel(POLLING).groups
    assert (group.account_id, [lane.name for lane in group.lanes]) == ("alice", ["1", "2", "3"])
    assert [lane.label for lane in group.lanes] == ["…0000", "…0001", "…0002"]
    assert group.lanes[1].bars == (Bar(kind=Kind.WAITING, start=0.0, end=1.6), inside(1.6, 2.6))
    assert (group.note, group.bad, group.crowded) == ("balance 940, correct", False, ())


def test_a_stopped_execution_blocks_its_lock_until_it_is_handed_on() -> None:
    failed, stopped = incident_panel(STORY).groups
    assert [(lane.name, lane.verdict) for lane in failed.lanes] == [
        ("dave-1", "CardDeclined"),
        ("dave-2", ""),
    ]
    assert [bar.kind for bar in failed.lanes[0].bars] == [Kind.WAITING, Kind.INSIDE]
    assert failed.note == "next one in after 50 ms"
    assert stopped.lanes[0].verdict == "stopped"
    assert stopped.lanes[0].bars[-1] == Bar(kind=Kind.ORPHANED, start=1.0, end=1.6)
    assert stopped.note == "next one in after 600 ms (by its lease: 7.1 s)"


# The demo's own description names its modules.


def test_the_description_names_each_module_and_no_other() -> None:
    items = re.findall(r"^\* (.*?):", examples.demo.__doc__ or "", re.MULTILINE | re.DOTALL)
    named = {name for item in items for name in re.findall(r"`(\w+)`", item)}
    modules = {path.stem for path in Path(examples.demo.__file__).parent.glob("*.py")}
    assert named == modules - {"__init__", "__main__"}
