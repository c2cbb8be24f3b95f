"""The reader of a command's errors, as of a CI log, is told that it waits, and for whom."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlock.cli import exit_codes
from fairlock.cli.run import told_of_a_wait, waits_for
from tests.support import LOCK, FakeClock, acquire
from tests.support.faults import lost_reply
from tests.support.operations import Operations
from tests.unit.cli.support import client_of
from tests.unit.client.support.doubles import Table

BOUND = 30
WAITS = f"waiting for lock {LOCK!r}, for up to 60 s; "
HELD = re.escape(f"{WAITS}held by ") + r"(.*) since \S+Z; (.*)"


class Unread(io.StringIO):
    """A pipe that no one reads any more once the lock is there."""

    def write(self, text: str) -> int:
        if "acquired" in text:
            raise BrokenPipeError
        return super().write(text)


@dataclass
class Lines:
    """What was told."""

    told: list[str] = field(default_factory=list)
    first: threading.Event = field(default_factory=threading.Event)

    def say(self, line: object) -> None:
        self.told.append(str(line))
        self.first.set()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    monkeypatch.setattr(exit_codes, "say", lines.say)
    return lines


def told(after_seconds: float, line: str = "waiting") -> Any:  # noqa: ANN401 - a context
    end = f"lock {LOCK!r} acquired"
    return told_of_a_wait(after_seconds, end, lambda: line, monotonic=iter((0.0, 42.4)).__next__)


def test_a_long_wait_is_told_once_and_the_lock_at_its_end(lines: Lines) -> None:
    with told(0):
        assert lines.first.wait(BOUND)
    assert lines.told == ["waiting", f"lock {LOCK!r} acquired after 42 s"]


def test_a_wait_that_fails_has_no_second_line(lines: Lines) -> None:
    def fail() -> None:
        with told(0):
            assert lines.first.wait(BOUND)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fail()
    assert lines.told == ["waiting"]


@pytest.mark.parametrize(("after_seconds", "line"), [(BOUND, "waiting"), (0, "")])
def test_a_short_wait_and_one_for_no_one_are_not_told_and_no_thread_is_left(
    after_seconds: float, line: str, lines: Lines
) -> None:
    before = threading.active_count()
    with told(after_seconds, line):
        pass
    assert threading.active_count() == before
    assert lines.told == []


def test_a_line_that_is_late_holds_nothing_up_and_is_not_told(lines: Lines) -> None:
    """The table does not answer the reads any more, but has answered the acquire."""
    asked, may_go_on = threading.Event(), threading.Event()

    def waits() -> str:
        asked.set()
        assert may_go_on.wait(BOUND)
        return "waiting"

    before = set(threading.enumerate())
    with told_of_a_wait(0, "the end", waits, monotonic=time.monotonic):
        assert asked.wait(BOUND)
    [late] = set(threading.enumerate()) - before
    may_go_on.set()
    late.join(BOUND)
    assert lines.told == []


@pytest.mark.parametrize("nobody", [Unread(), None])
def test_errors_that_no_one_reads_are_no_failure(
    nobody: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", nobody)
    with told(0):
        ends = time.monotonic() + BOUND
        while nobody is not None and not nobody.getvalue():
            assert time.monotonic() < ends, "it was not told"


def test_the_line_names_the_holders_and_since_when(
    store: Operations, table: Table, clock: FakeClock
) -> None:
    with client_of(table, clock) as locks:
        assert waits_for(locks, LOCK, seconds=60) == ""
        store.acquire(acquire("anna", limit=2))
        store.acquire(acquire("berta", limit=2))
        writes = table.writes()
        found = re.fullmatch(HELD, waits_for(locks, LOCK, seconds=60))
        assert found is not None
        assert found.groups() == ("anna +1", "`fairlock show nightly-report` tells more")
        assert table.writes() == writes


def test_a_table_that_does_not_answer_is_told_too(table: Table, clock: FakeClock) -> None:
    with client_of(table, clock) as locks:
        table.outage = lost_reply()
        line = waits_for(locks, LOCK, seconds=60)
    assert line.startswith(f"{WAITS}who holds it is unknown: ")
