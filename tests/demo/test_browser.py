"""The page in a real browser: opened from disk, in light and in dark."""

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from matplotlib.image import imread

from examples.demo.colours import DARK, PAPER
from examples.demo.facts import Story
from examples.demo.page import page
from examples.demo.verdict import all_checks

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1300,1200",
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH"
)


@pytest.fixture
def page_path(story: Story, drawn: tuple[str, bytes], tmp_path: Path) -> Path:
    judged = all_checks(story, error="CardDeclined")
    html = page(story, judged, drawn[0], finished_at=datetime.now(UTC))
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


def test_the_browser_shows_verdict_picture_and_every_check(page_path: Path) -> None:
    dom = browse(page_path, "--dump-dom")
    assert "<title>Fairlock demo: all 24 checks passed</title>" in dom
    assert dom.count('<li class="check passed">') == 24
    picture_in_dom = dom[dom.index('<figure id="picture"') : dom.index("</figure>")]
    assert picture_in_dom.count(">…0002</text>") == 6
    assert ">✕ CardDeclined</text>" in picture_in_dom


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
