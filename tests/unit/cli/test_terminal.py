"""The terminal belongs to the command, to the pipeline, or to no one: nothing hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.unit.cli.fleet import Fleet, outcome, state_of, until, until_renewed

CTRL_Z = "\x1a"
AT_A_TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
AT_A_TERMINAL_OF_ANOTHER_SESSION = """
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
    status, output, _ = outcome(process, f"{CTRL_Z}hello\n")
    assert (status, "got hello" in output) == (5, True)


OTHER_ASKS = 'until [ -e ready ]; do sleep 0.02; done; read answer </dev/tty; echo "got $answer"'


@pytest.mark.parametrize(
    "line",
    [
        '$RUN asks -- sh -c "$ASKS" </dev/null',
        '$RUN asks -- sh -c "$ASKS" >out; ended=$?; cat out; (exit $ended)',
        'set -o pipefail; $RUN asks -- sh -c "$ASKS" | cat',
        f'{{ {OTHER_ASKS}; }} | $RUN pipe -- sh -c "touch ready; cat; exit 5"',
    ],
)
def test_a_command_and_others_in_the_pipeline_may_ask_at_the_terminal(
    line: str, at_a_terminal: AtATerminal
) -> None:
    """Wherever the command's input and output are, one after the other."""
    status, output, _ = outcome(at_a_terminal(line), "hello\n")
    assert (status, "got hello" in output) == (5, True)


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


RUN_WORKS = '$RUN z --lease 2 -- $PYTHON "$WORKS"'


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (RUN_WORKS, 5),
        (f"{RUN_WORKS} </dev/null", 5),
        ('$PYTHON "$WORKS"', 128 + signal.SIGTSTP),  # The control: it is not under a lock.
    ],
)
def test_ctrl_z_suspends_neither_the_command_nor_the_renewal_of_its_lock(
    line: str, status: int, fleet: Fleet, at_a_terminal: AtATerminal
) -> None:
    process = at_a_terminal(line)
    fleet.file("ready")
    type_in(process, CTRL_Z)
    if status == 5:
        until_renewed(fleet, "z")
        (fleet.home / "enough").touch()
    assert outcome(process)[0] == status


def test_a_terminal_that_controls_another_session_is_left_alone(fleet: Fleet) -> None:
    """As after `setsid` and `su -c`: it is the input, and no one's jobs are controlled by it."""
    words = [sys.executable, "-m", "fairlock", "run", "a", "--", "sh", "-c", "test -t 0 && exit 5"]
    process = fleet.popen([sys.executable, "-c", AT_A_TERMINAL_OF_ANOTHER_SESSION, *words])
    status, _, errors = outcome(process)
    assert (status, errors) == (5, "")
