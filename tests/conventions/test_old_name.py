"""The project has one name: the one that it had before is in the changelog only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLD_NAME = "lease" + "hold"
TELLS_OF_IT = {"CHANGELOG.md"}


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - the developer's own git
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]


def with_the_old_name(files: Iterable[Path], root: Path) -> Iterator[str]:
    """Files that have the old name in them, or in their own."""
    for path in files:
        name = path.relative_to(root).as_posix()
        if OLD_NAME in name.lower() or OLD_NAME.encode() in path.read_bytes().lower():
            yield name


def test_the_old_name_is_in_the_changelog_only() -> None:
    assert set(with_the_old_name(tracked_files(), ROOT)) <= TELLS_OF_IT


def test_the_old_name_is_found_in_any_case_in_a_text_and_in_a_file_name(tmp_path: Path) -> None:
    for name, content in (
        ("text.md", f"The {OLD_NAME.title()} stack"),
        ("picture.svg", f"<text>{OLD_NAME.upper()}_TABLE_NAME</text>"),
        (f"{OLD_NAME}.txt", "nothing"),
        ("lease.md", "A lease is held."),
    ):
        (tmp_path / name).write_text(content)
    found = set(with_the_old_name(tmp_path.iterdir(), tmp_path))
    assert found == {"text.md", "picture.svg", f"{OLD_NAME}.txt"}
