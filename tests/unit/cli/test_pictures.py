"""The picture in docs/command-line.md shows what the command shows."""

from __future__ import annotations

import pytest

from tests.unit.cli.pictures import PICTURE, WIDTHS, draw


def test_the_picture_in_the_document_is_what_watch_shows_today() -> None:
    """Run `python -m tests.unit.cli.pictures` after a change of the table."""
    assert draw("watch", 80) == PICTURE.read_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_ls_shows_the_same_rows_as_watch(width: int) -> None:
    cells = ["customer/1234", "Billing:run-1", "1/1", "3/5", "over", "4m&#160;00s"]
    for command in ("ls", "watch"):
        assert [cell for cell in cells if cell not in draw(command, width)] == []
