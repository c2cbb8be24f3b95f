"""The picture and the page stand for themselves: nothing is loaded, nothing is left out."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from matplotlib.image import imread

import examples.demo
from examples.demo.colours import DARK, PAPER, VARIABLES
from examples.demo.facts import Mode
from examples.demo.lanes import Bar, Group, Kind, Lane, incident_panel, picture, run_panel
from examples.demo.page import page
from examples.demo.table import tables
from examples.demo.verdict import all_checks
from tests.demo.builders import POLLING, QUEUE, STORY, UNGUARDED

FINISHED_AT = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def drawn() -> tuple[str, bytes]:
    """The story's picture as (SVG, PNG)."""
    from examples.demo.draw import draw  # noqa: PLC0415 - matplotlib: two seconds to import

    return draw(picture(STORY))


@pytest.fixture
def html(svg: str) -> str:
    judged = all_checks(STORY, error="CardDeclined")
    return page(STORY, judged, svg, finished_at=FINISHED_AT)


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


def test_the_page_says_that_all_checks_passed_and_shows_each(html: str) -> None:
    assert 'class="badge good">all 24 checks passed<' in html
    assert html.count('<li class="check passed">') == 24
    assert "02 January 2030, 03:04 UTC" in html
    cells = [row.cells[0] for rows in tables(STORY).values() for row in rows]
    assert [cell for cell in cells if f"<td>{cell}</td>" not in html] == []


def test_the_page_of_a_bad_run_says_so(svg: str) -> None:
    bad = replace(STORY, queue=replace(UNGUARDED, title="Queue", mode=Mode.QUEUE))
    html = page(bad, all_checks(bad, error="CardDeclined"), svg, finished_at=FINISHED_AT)
    assert 'class="badge bad">8 of 24 checks FAILED<' in html
    assert html.count('<li class="check failed">') == 8


def test_the_page_loads_nothing_and_runs_nothing(html: str) -> None:
    assert "<script" not in html
    loaded = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#|data:)([^\"')\s>]+)", html)
    assert loaded == []


def test_what_comes_from_outside_is_escaped(svg: str) -> None:
    broken = replace(STORY.failed.broken, error="<b>")
    bent = replace(STORY, failed=replace(STORY.failed, broken=broken))
    html = page(bent, all_checks(bent, error="<b>"), svg, finished_at=FINISHED_AT)
    assert "FAILED with &lt;b&gt;" in html
    assert "FAILED with <b>" not in html


def test_the_page_compares_the_runs_and_names_the_limits_of_this_one(html: str) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    said = [
        "lock idle between holders (median) - 500 ms 40 ms",
        "500 ms lock idle between holders: guard that polls",
        "40 ms lock idle between holders: guard with a queue",
        "50 ms from failed task to the next one inside",
        "600 ms from stopped execution to the next one inside",
        "when lease (6 s) and clock tolerance (2 s) are over",
        "every 10 s in this demo",
    ]
    assert [words for words in said if words not in text] == []


# The page in a real browser: opened from disk, in light and in dark.

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
browser_needed = pytest.mark.skipif(
    BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH"
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-sync", "--disable-background-networking", "--disable-component-update"),
    *("--hide-scrollbars", "--window-size=1300,1200"),
)


@pytest.fixture
def page_path(html: str, tmp_path: Path) -> Path:
    path = tmp_path / "index.html"
    path.write_text(html, encoding="utf-8")
    return path


def browse(page_path: Path, *flags: str) -> str:
    assert BROWSER is not None
    profile = page_path.parent / "profile"
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={profile}", *flags, page_path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    shutil.rmtree(profile, ignore_errors=True)
    return done.stdout


@browser_needed
def test_the_browser_shows_verdict_picture_and_every_check(page_path: Path) -> None:
    dom = browse(page_path, "--dump-dom")
    assert "<title>Fairlock demo: all 24 checks passed</title>" in dom
    assert dom.count('<li class="check passed">') == 24
    picture_in_dom = dom[dom.index('<figure id="picture"') : dom.index("</figure>")]
    assert picture_in_dom.count(">…0002</text>") == 6
    assert ">✕ CardDeclined</text>" in picture_in_dom


@browser_needed
@pytest.mark.parametrize(
    ("flag", "paper"), [("--force-light-mode", PAPER), ("--force-dark-mode", DARK[PAPER])]
)
def test_the_browser_paints_the_page_in_both_themes(
    page_path: Path, tmp_path: Path, flag: str, paper: str
) -> None:
    shot = tmp_path / "shot.png"
    browse(page_path, flag, f"--screenshot={shot}")
    pixels = (imread(shot)[..., :3] * 255).round().astype(int)
    assert "#{:02x}{:02x}{:02x}".format(*pixels[2, 2]) == paper
    # A page that stayed blank, or an SVG that stayed black, has next to no colours.
    assert len({tuple(pixel) for pixel in pixels[::3, ::3].reshape(-1, 3)}) > 100


# The picture's data says who waited and who was inside, and marks what went wrong.


def test_an_unguarded_account_shows_the_crowd_and_the_lost_update() -> None:
    (group,) = run_panel(UNGUARDED).groups
    first, second = (
        Bar(kind=Kind.INSIDE, start=0.05, end=0.85),
        Bar(kind=Kind.INSIDE, start=0.25, end=1.05),
    )
    assert group == Group(
        account_id="alice",
        lanes=(
            Lane(name="a-1", bars=(first,), verdict="lost", bad=True),
            Lane(name="a-2", bars=(second,)),
        ),
        note="balance 980, not 970",
        bad=True,
        crowded=((0.25, 0.85),),
    )


def test_a_guarded_account_shows_turns_in_order_of_entry_with_their_tokens() -> None:
    group, _ = run_panel(POLLING).groups
    assert (group.account_id, [lane.name for lane in group.lanes]) == ("alice", ["1", "2", "3"])
    assert [lane.label for lane in group.lanes] == ["…0000", "…0001", "…0002"]
    assert group.lanes[1].bars == (
        Bar(kind=Kind.WAITING, start=0.0, end=1.6),
        Bar(kind=Kind.INSIDE, start=1.6, end=2.6),
    )
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


def test_every_run_has_a_panel_that_says_what_it_cost() -> None:
    shown = picture(STORY)
    assert [(panel.title, panel.subtitle) for panel in shown.runs] == [
        ("Without the guard", "no lock · 1 transition"),
        ("Guard that polls", "500 ms between holders · 5 to 11 transitions"),
        ("Guard with a queue", "40 ms between holders · 4 transitions"),
    ]
    assert shown.runs[1].span == pytest.approx(4.1)


def test_the_time_in_which_no_one_was_inside_though_others_waited_is_shown() -> None:
    assert run_panel(POLLING).groups[0].idle == ((1.1, 1.6), (2.6, 3.1))
    assert run_panel(QUEUE).groups[0].idle == ((1.1, 1.14), (2.14, 2.18))
    assert [group.idle for group in incident_panel(STORY).groups] == [
        ((1.1, 1.15),),
        ((1.0, 1.6),),
    ]


@pytest.mark.parametrize(("at", "which"), [(0, "failed"), (1, "stopped")])
def test_a_next_one_that_never_got_in_is_shown_as_bad(at: int, which: str) -> None:
    incident = getattr(STORY, which)
    never = replace(incident, following=replace(incident.following, calls=()))
    group = incident_panel(replace(STORY, **{which: never})).groups[at]
    assert [bar.kind for bar in group.lanes[0].bars] == [Kind.WAITING, Kind.INSIDE]
    assert (group.note, group.bad) == ("no one waited and got in", True)


# The demo's own description names its modules.

FOLDER = Path(examples.demo.__file__).parent


def modules_named_in(text: str | None) -> set[str]:
    """The words in code style of the list."""
    items = re.findall(r"^\* (.*?):", text or "", re.MULTILINE | re.DOTALL)
    return {name for item in items for name in re.findall(r"`(\w+)`", item)}


def test_the_description_names_each_module_and_no_other() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__"}
    assert modules_named_in(examples.demo.__doc__) == modules
