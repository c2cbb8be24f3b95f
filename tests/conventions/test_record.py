"""`make test` repeats what a record stands for after each change that could alter its outcome."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.record import CHECKOUT, RECORDS, Record

LISTS_ITS_MODULES = """
import sys
from pathlib import Path
for path in Path("tests/model").glob("test_*.py"):
    __import__(f"tests.model.{path.stem}")
print(*(m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)), sep="\\n")
"""
NOT_DECIDING = {"tests/__init__.py"}


@pytest.fixture(params=RECORDS)
def record(request: pytest.FixtureRequest) -> Record:
    return RECORDS[request.param]


@pytest.fixture
def checkout(tmp_path: Path, record: Record) -> Path:
    """A copy of what decides the outcome, in which the tests have passed."""
    for path in record.files():
        copy = tmp_path / path.relative_to(CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(CHECKOUT / "requirements.txt", tmp_path)
    record.write(tmp_path)
    return tmp_path


def folder_of(checkout: Path, record: Record) -> Path:
    """A folder whose Python files count."""
    return record.files(checkout)[0].parent


def append(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{path.read_text() if path.exists() else ''}# changed\n")


def move_pin(pins: Path, name: str) -> None:
    pins.write_text(pins.read_text().replace(f"\n{name}==", f"\n{name}==9"))


@pytest.mark.parametrize(
    "change",
    [
        lambda _, __: None,
        lambda checkout, _: append(checkout / "fairlock/cdk/module.py"),
        lambda checkout, record: append(folder_of(checkout, record) / "README.md"),
        lambda checkout, _: move_pin(checkout / "requirements.txt", "rich"),
    ],
)
def test_tests_are_not_due_while_nothing_that_decides_has_changed(
    checkout: Path, record: Record, change: Callable[[Path, Record], None]
) -> None:
    change(checkout, record)
    assert not record.is_due(checkout)


@pytest.mark.parametrize(
    "change",
    [
        lambda checkout, record: append(folder_of(checkout, record) / "new.py"),
        lambda checkout, record: append((checkout / record.path).parent / "new.py"),
        lambda checkout, record: record.files(checkout)[0].unlink(),
        lambda checkout, record: move_pin(
            checkout / "requirements.txt", record.pins.partition("|")[0]
        ),
        lambda checkout, record: (checkout / record.path).unlink(),
    ],
)
def test_tests_are_due_after_a_change_of_what_decides_their_outcome(
    checkout: Path, record: Record, change: Callable[[Path, Record], None]
) -> None:
    change(checkout, record)
    assert record.is_due(checkout)


def test_all_that_the_searches_import_of_this_repository_decides_whether_they_are_due() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", LISTS_ITS_MODULES],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.split()
    ours = {
        Path(path).relative_to(CHECKOUT).as_posix()
        for path in listed
        if Path(path).is_relative_to(CHECKOUT) and ".venv" not in path
    }
    deciding = {path.relative_to(CHECKOUT).as_posix() for path in RECORDS["model"].files()}
    assert "fairlock/store/acquire.py" in ours
    assert ours - deciding <= NOT_DECIDING


def test_this_checkout_has_all_records() -> None:
    assert [name for name, record in RECORDS.items() if not (CHECKOUT / record.path).exists()] == []
