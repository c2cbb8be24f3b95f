"""What others have stored cannot command the terminal on which it is shown."""

from __future__ import annotations

import json
import os
import unicodedata
from typing import Any, cast

import pytest

from fairlock import LockClient, LockWaitTimeout
from fairlock.cli import exit_codes, lines, listing
from fairlock.client.arguments import default_owner_name
from fairlock.testing.fake_table import MemoryTable
from fairlock.text import printable
from tests.support import LOCK, FakeClock, acquire, store_over

CLEAR_SCREEN = "\x1b[2J"
OTHER_DIRECTION = "\N{RIGHT-TO-LEFT OVERRIDE}"
INVISIBLE = "\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}"
EVIL = f"anna{CLEAR_SCREEN}\x9b31m{OTHER_DIRECTION}\r{INVISIBLE}"
Output = pytest.CaptureFixture[str]


@pytest.fixture
def table() -> MemoryTable:
    """A lock whose holder and waiter have labels and data that not Fairlock has written."""
    table, data = MemoryTable(), json.dumps({"why": EVIL}, ensure_ascii=False)
    store = store_over(table, FakeClock())
    store.acquire(acquire("anna", owner_name=EVIL, data=data))
    store.acquire(acquire("ben", owner_name=EVIL, waits=True))
    return table


def show(table: MemoryTable, lock_name: str = LOCK) -> int:
    with LockClient("locks", client=cast("Any", table), clock=FakeClock()) as locks:
        return listing.show(locks, "lock table 'locks'", lock_name)


def commands(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}]


def test_show_prints_no_character_that_a_terminal_obeys(table: MemoryTable, capsys: Output) -> None:
    assert show(table) == 0
    output = capsys.readouterr().out
    assert output.count(r"owner: anna\x1b[2J\x9b31m\u202e\r\u200b\u2028") == 2
    assert r"\u202e" in output.split("data: ")[1]
    assert commands(output) == []


def test_data_that_is_no_json_is_shown_as_it_is_stored_and_commands_nothing(
    capsys: Output,
) -> None:
    table = MemoryTable()
    store_over(table, FakeClock()).acquire(acquire("anna", data="{" + EVIL))
    assert show(table) == 0
    output = capsys.readouterr().out
    assert r"data: {anna\x1b[2J" in output
    assert commands(output) == []


def test_show_without_its_protection_would_clear_the_screen(
    table: MemoryTable, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "printable", lambda text: text)
    show(table)
    output = capsys.readouterr().out
    assert {"\x9b", "\r", OTHER_DIRECTION, "\N{ZERO WIDTH SPACE}"} <= set(commands(output))


def test_the_name_of_the_holder_in_a_message_is_printable_too(
    table: MemoryTable, capsys: Output
) -> None:
    with LockClient("locks", client=cast("Any", table), clock=FakeClock()) as locks:
        with pytest.raises(LockWaitTimeout) as caught:
            locks.acquire(LOCK, max_wait=0)
        assert commands(str(caught.value)) == []
        assert caught.value.holders[0].owner_name == EVIL, "the attribute is what was stored"
    exit_codes.say(f"told: {EVIL}")
    assert commands(capsys.readouterr().err) == []


def test_a_lock_that_no_one_has_used_has_a_status_of_its_own(capsys: Output) -> None:
    assert show(MemoryTable(), "mispelt") == exit_codes.UNKNOWN_LOCK == 66
    told = capsys.readouterr()
    assert told.err.startswith("fairlock: lock table 'locks' knows no lock 'mispelt': it was")
    assert told.out == ""


def test_an_owner_without_a_name_is_said_to_have_none(capsys: Output) -> None:
    table = MemoryTable()
    store_over(table, FakeClock()).acquire(acquire("anna", owner_name=""))
    assert show(table) == 0
    assert "  owner: (no name)\n" in capsys.readouterr().out


@pytest.mark.parametrize("letter", ["a", "ß", "日", "😀", " ", "\u0301", "\\"])
def test_what_is_harmless_is_shown_as_it_is(letter: str) -> None:
    assert printable(letter) == letter


def test_a_lone_surrogate_is_shown_as_its_escape() -> None:
    assert printable("a\ud800") == r"a\ud800"


def test_the_label_of_the_command_line_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: f"host{CLEAR_SCREEN}")
    assert commands(default_owner_name(f"program{OTHER_DIRECTION}")) == []


@pytest.mark.parametrize("error", [OSError("no name"), UnicodeDecodeError("idna", b"", 0, 1, "?")])
def test_a_machine_without_a_name_is_no_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr("socket.gethostname", fail)
    assert default_owner_name("program") == f"unknown-host:{os.getpid()}:program"
