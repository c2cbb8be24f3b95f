"""The picture and the page stand for themselves: nothing is loaded, nothing is left out."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from examples.demo.colours import DARK, VARIABLES
from examples.demo.facts import Mode, Story
from examples.demo.page import page
from examples.demo.table import tables
from examples.demo.verdict import all_checks

FINISHED_AT = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture
def svg(drawn: tuple[str, bytes]) -> str:
    return drawn[0]


def test_the_svg_keeps_its_text_and_names_its_colours(svg: str) -> None:
    assert ">a-1</text>" in svg
    assert ">…0002</text>" in svg
    assert "CardDeclined</text>" in svg
    drawn = svg.split("</style>", 1)[1]
    bare = [colour for colour in VARIABLES if re.search(rf"(?<!, ){colour}", drawn)]
    assert bare == []


def test_every_colour_that_changes_with_the_theme_has_a_dark_twin() -> None:
    assert set(DARK) == set(VARIABLES)


def test_the_png_is_a_png_of_a_legible_size(drawn: tuple[str, bytes]) -> None:
    png = drawn[1]
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20]) == 1584


def test_the_page_says_that_all_checks_passed_and_shows_each(story: Story, svg: str) -> None:
    judged = all_checks(story, error="CardDeclined")
    html = page(story, judged, svg, finished_at=FINISHED_AT)
    assert 'class="badge good">all 24 checks passed<' in html
    assert html.count('<li class="check passed">') == 24
    assert "02 January 2030, 03:04 UTC" in html
    for rows in tables(story).values():
        for row in rows:
            assert f"<td>{row.cells[0]}</td>" in html


def test_the_page_of_a_bad_run_says_so(story: Story, svg: str) -> None:
    bad = replace(story, queue=replace(story.unguarded, title="Queue", mode=Mode.QUEUE))
    html = page(bad, all_checks(bad, error="CardDeclined"), svg, finished_at=FINISHED_AT)
    assert 'class="badge bad">8 of 24 checks FAILED<' in html
    assert html.count('<li class="check failed">') == 8


def test_the_page_loads_nothing_and_runs_nothing(story: Story, svg: str) -> None:
    html = page(story, all_checks(story, error="CardDeclined"), svg, finished_at=FINISHED_AT)
    assert "<script" not in html
    loaded = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#|data:)([^\"')\s>]+)", html)
    assert loaded == []


def test_what_comes_from_outside_is_escaped(story: Story, svg: str) -> None:
    broken = replace(story.failed.broken, error="<b>")
    bent = replace(story, failed=replace(story.failed, broken=broken))
    html = page(bent, all_checks(bent, error="<b>"), svg, finished_at=FINISHED_AT)
    assert "FAILED with &lt;b&gt;" in html
    assert "FAILED with <b>" not in html


def test_the_page_compares_the_runs_and_names_the_limits_of_this_one(
    story: Story, svg: str
) -> None:
    html = page(story, all_checks(story, error="CardDeclined"), svg, finished_at=FINISHED_AT)
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "lock idle between holders (median) - 500 ms 40 ms" in text
    assert "500 ms lock idle between holders: guard that polls" in text
    assert "40 ms lock idle between holders: guard with a queue" in text
    assert "50 ms from failed task to the next one inside" in text
    assert "600 ms from stopped execution to the next one inside" in text
    assert "when lease (6 s) and clock tolerance (2 s) are over" in text
    assert "every 10 s in this demo" in text
