"""`make test` runs the controls after each change that could alter their outcome."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.localaws import controls


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the controls depend on, in which they have passed."""
    for folder in controls.FOLDERS:
        shutil.copytree(controls.CHECKOUT / folder, tmp_path / folder)
    shutil.copy(controls.CHECKOUT / "requirements.txt", tmp_path)
    (tmp_path / "leasehold").mkdir()
    (tmp_path / controls.RECORD).write_text(controls.digest(tmp_path))
    return tmp_path


def append(name: str) -> Callable[[Path], object]:
    def change(checkout: Path) -> None:
        path = checkout / name
        path.write_text(f"{path.read_text() if path.exists() else ''}# changed\n")

    return change


def move_pin(checkout: Path) -> None:
    pins = checkout / "requirements.txt"
    pins.write_text(pins.read_text().replace("ministack==1.5.33", "ministack==1.5.34"))


@pytest.mark.parametrize(
    ("change", "due"),
    [
        (lambda _: None, False),
        (append("leasehold/module.py"), False),
        (append("localaws/README.md"), False),
        (move_pin, True),
        (append("localaws/corrections/callbacks.py"), True),
        (append("localaws/corrections/new.py"), True),
        (append("tests/localaws/test_callbacks.py"), True),
        (lambda checkout: (checkout / "localaws/scope.py").unlink(), True),
        (lambda checkout: (checkout / controls.RECORD).unlink(), True),
    ],
)
def test_controls_are_due_after_a_change_of_the_emulator_or_of_their_own(
    checkout: Path, change: Callable[[Path], object], *, due: bool
) -> None:
    change(checkout)
    assert controls.are_due(checkout) is due


def test_the_checkout_itself_has_a_record() -> None:
    assert (controls.CHECKOUT / controls.RECORD).exists()
