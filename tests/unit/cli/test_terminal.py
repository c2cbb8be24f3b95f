"""The terminal belongs to the command, to the pipeline, or to no one: nothing hangs."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlock.cli import exit_codes
from fairlock.cli.run import told_of_a_wait, waits_for
from tests.support import LOCK, FakeClock, Operations, acquire
from tests.support.faulty_table import lost_reply
from tests.unit.cli.conftest import client_of
from tests.unit.cli.fleet import SECONDS, Fleet, outcome, state_of, until, until_renewed
from tests.unit.client.doubles import Table

CTRL_Z = "\x1a"
AT_A_TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
AT_SOMEBODY_ELSES_TERMINAL = """
import os, pty, sys
master, slave = pty.openpty()
os.set_inheritable(master, True)
os.dup2(slave, 0)
os.setsid()
os.execv(sys.argv[1], sys.argv[1:])
"""
READS_A_LINE = """
import os, pathlib, time
while os.tcgetpgrp(0) != os.getpgrp():
    time.sleep(0.01)
pathlib.Path("ready").touch()
print("got", input())
raise SystemExit(5)
"""
ASKS = "echo $$ > pid; read answer </dev/tty; echo got $answer; exit 5"
"""As ssh does for a password, wherever its input comes from."""
WORKS = """
import pathlib, time
pathlib.Path("ready").touch()
while not pathlib.Path("enough").exists():
    time.sleep(0.02)
raise SystemExit(5)
"""
"""One process: a shell that is just starting another by `vfork` cannot be stopped."""

AtATerminal = Callable[[str], "subprocess.Popen[str]"]


def type_in(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


@pytest.fixture
def at_a_terminal(fleet: Fleet) -> AtATerminal:
    """Starts a line of a shell that has a terminal and controls jobs, as people use it.

    (Of a single command it would not make a job, but become the command.)
    """

    def start(line: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", AT_A_TERMINAL, "bash", "-mc", f"{line}; exit $?"]
        run, works = f"{sys.executable} -m fairlock run", f"{sys.executable} -c"
        return fleet.popen(words, RUN=run, ASKS=ASKS, PYTHON=works, WORKS=WORKS)

    return start


def test_the_command_may_read_from_the_terminal_and_is_not_suspended(fleet: Fleet) -> None:
    """It is in a process group of its own, which the kernel stops if it reads in the background."""
    words = ["run", "tty", "--", sys.executable, "-c", READS_A_LINE]
    process = fleet.popen(
        [sys.executable, "-c", AT_A_TERMINAL, sys.executable, "-m", "fairlock", *words]
    )
    fleet.file("ready")
    output, _ = process.communicate(f"{CTRL_Z}hello\n", timeout=SECONDS)
    assert (process.returncode, "got hello" in output) == (5, True)


@pytest.mark.parametrize("redirected", ["</dev/null", ">out", "| cat"])
def test_a_command_may_ask_at_the_terminal_wherever_its_input_and_output_are(
    redirected: str, fleet: Fleet, at_a_terminal: AtATerminal
) -> None:
    process = at_a_terminal(f'set -o pipefail; $RUN asks -- sh -c "$ASKS" {redirected}')
    output, _ = process.communicate("hello\n", timeout=SECONDS)
    if redirected == ">out":
        output = fleet.file("out").read_text()
    assert (process.returncode, "got hello" in output) == (5, True)


def test_in_the_background_it_is_stopped_until_the_shell_brings_it_to_the_foreground(
    fleet: Fleet, at_a_terminal: AtATerminal
) -> None:
    """The control, too: so the kernel treats a group that has not been given the terminal."""
    line = '$RUN bg --lease 2 -- sh -c "$ASKS" </dev/null & until [ -e go ]; do sleep 0.02; done'
    process = at_a_terminal(f"{line}; fg")
    type_in(process, "hello\n")
    fleet.file("pid")
    until(lambda: state_of(fleet.home / "pid") == "T")
    until_renewed(fleet, "bg")
    assert state_of(fleet.home / "pid") == "T"
    (fleet.home / "go").touch()
    status, output, _ = outcome(process)
    assert (status, "got hello" in output) == (5, True)


def test_others_in_the_pipeline_may_ask_while_the_command_does_not(
    at_a_terminal: AtATerminal,
) -> None:
    line = 'until [ -e ready ]; do sleep 0.02; done; read answer </dev/tty; echo "got $answer"'
    process = at_a_terminal(f'{{ {line}; }} | $RUN pipe -- sh -c "touch ready; cat; exit 5"')
    output, _ = process.communicate("hello\n", timeout=SECONDS)
    assert (process.returncode, "got hello" in output) == (5, True)


def test_others_in_the_pipeline_that_ask_meanwhile_are_stopped_and_the_lock_is_renewed(
    fleet: Fleet, at_a_terminal: AtATerminal
) -> None:
    """The kernel stops their process group, which is ours too; but not us."""
    asks_as_well = (
        'sh -c "until [ -e ready ]; do sleep 0.02; done; echo \\$\\$ > other;'
        ' read answer </dev/tty; echo other got \\$answer > told"'
    )
    command = 'read answer </dev/tty; echo $answer > first; exec $PYTHON "$WORKS"'
    process = at_a_terminal(f"$RUN both --lease 2 -- sh -c '{command}' | {asks_as_well}")
    type_in(process, "one\n")
    fleet.file("other")
    until(lambda: state_of(fleet.home / "other") == "T")
    until_renewed(fleet, "both")
    (fleet.home / "enough").touch()
    type_in(process, "two\n")
    outcome(process)
    assert (fleet.home / "first").read_text() == "one\n"
    assert (fleet.home / "told").read_text() == "other got two\n"


@pytest.mark.parametrize("redirected", ["", "</dev/null"])
def test_ctrl_z_suspends_neither_the_command_nor_the_renewal_of_its_lock(
    redirected: str, fleet: Fleet, at_a_terminal: AtATerminal
) -> None:
    process = at_a_terminal(f'$RUN z --lease 2 -- $PYTHON "$WORKS" {redirected}')
    fleet.file("ready")
    type_in(process, CTRL_Z)
    until_renewed(fleet, "z")
    (fleet.home / "enough").touch()
    assert outcome(process)[0] == 5


def test_ctrl_z_suspends_what_is_not_under_a_lock(fleet: Fleet, at_a_terminal: AtATerminal) -> None:
    """The control."""
    process = at_a_terminal('$PYTHON "$WORKS"')
    fleet.file("ready")
    type_in(process, CTRL_Z)
    assert outcome(process)[0] == 128 + signal.SIGTSTP


def test_a_terminal_that_controls_another_session_is_left_alone(fleet: Fleet) -> None:
    """As after `setsid` and `su -c`: it is the input, and no one's jobs are controlled by it."""
    words = [sys.executable, "-m", "fairlock", "run", "a", "--", "sh", "-c", "test -t 0 && exit 5"]
    process = fleet.popen([sys.executable, "-c", AT_SOMEBODY_ELSES_TERMINAL, *words])
    status, _, errors = outcome(process)
    assert (status, errors) == (5, "")


# The reader of a command's errors, as of a CI log, is told that it waits, and for whom.

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
