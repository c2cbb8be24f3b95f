"""The package is a few files, each a page that can be read from top to bottom, under one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 125
MOST_LINES = 450


def files() -> list[Path]:
    return sorted((ROOT / "fairlock").rglob("*.py"))


def names_of_several(paths: Iterable[Path]) -> list[str]:
    """Names that more than one file has; each package has an `__init__.py`."""
    names = Counter(path.name for path in paths)
    return sorted(name for name, count in names.items() if count > 1 and name != "__init__.py")


def too_long(paths: Iterable[Path]) -> list[str]:
    return [path.name for path in paths if len(path.read_text().splitlines()) > MOST_LINES]


def test_a_name_of_a_file_occurs_once_in_the_package() -> None:
    assert names_of_several(files()) == []


def test_the_package_has_few_files() -> None:
    assert len(files()) <= MOST_FILES


def test_no_file_is_too_long_to_be_read_as_a_page() -> None:
    assert too_long(files()) == []


def test_a_second_file_of_a_name_and_a_long_one_are_found(tmp_path: Path) -> None:
    for name, lines in (("a/x.py", 1), ("b/x.py", 1), ("b/y.py", MOST_LINES + 1)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("pass\n" * lines)
    paths = sorted(tmp_path.rglob("*.py"))
    assert (names_of_several(paths), too_long(paths)) == (["x.py"], ["y.py"])
