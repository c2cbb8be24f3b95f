"""A person at a terminal is told that a command waits; a cron job is not."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from leasehold.cli import exit_codes
from leasehold.cli.waiting_line import told_after

BOUND = 30


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    event = threading.Event()
    monkeypatch.setattr(exit_codes, "say", lambda _message: event.set())
    return event


def test_who_waits_for_long_is_told(told: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with told_after(0, "waiting"):
        assert told.wait(BOUND)


def test_who_gets_the_lock_soon_is_told_nothing_and_no_thread_is_left(
    told: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    before = threading.active_count()
    with told_after(BOUND, "waiting"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert not told.is_set()


@pytest.mark.parametrize("errors", [io.StringIO(), None])
def test_errors_that_go_to_a_file_or_nowhere_get_no_line(
    errors: io.StringIO | None, told: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", errors)
    before = threading.active_count()
    with told_after(0, "waiting"):
        assert threading.active_count() == before
    assert not told.is_set()
