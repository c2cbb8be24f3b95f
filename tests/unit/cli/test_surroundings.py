"""Commands where streams are closed, that another caller has stopped, or ends with Ctrl-C."""

from __future__ import annotations

import signal
import sys

import pytest

from fairlock import LockClient
from tests.unit.cli.fleet import Fleet, outcome, state_of, until, until_renewed

STOPS_ITSELF = "echo $$ > pid; kill -STOP $$; touch went-on; exit 3"
TELLS = """
import os, sys
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
left = [str(number) for number in range(3) if is_open(number)]
open("told", "w").write("".join(left))
sys.exit(5)
"""


@pytest.mark.parametrize(
    ("closed", "left"),
    [
        ("", "012"),
        ("<&-", "12"),
        (">&-", "02"),
        ("2>&-", "01"),
        ("<&- >&-", "2"),
        ("<&- >&- 2>&-", ""),
    ],
)
def test_streams_that_are_closed_stay_closed_for_the_command(
    fleet: Fleet, closed: str, left: str
) -> None:
    """What we open for ourselves takes their numbers, and is not handed down."""
    words = [sys.executable, "-m", "fairlock", "run", "closed", "--", sys.executable, "-c", TELLS]
    process = fleet.popen(["sh", "-c", f'exec "$@" {closed}', "sh", *words])
    assert outcome(process) == (5, "", "")
    assert fleet.file("told").read_text() == left
    assert fleet.state("closed").held == 0


def test_a_stopped_command_can_be_ended(fleet: Fleet) -> None:
    """It notices no signal before it goes on; before, no one makes it go on: the control."""
    process = fleet.start("run", "stopped", "--lease", "2", "--", "sh", "-c", STOPS_ITSELF)
    fleet.file("pid")
    until(lambda: state_of(fleet.home / "pid") == "T")
    until_renewed(fleet, "stopped")
    assert state_of(fleet.home / "pid") == "T"
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[0] == 128 + signal.SIGTERM
    assert not (fleet.home / "went-on").exists()


def test_a_watch_in_a_pipe_tells_each_change_at_once_and_ends_with_ctrl_c(
    fleet: Fleet, locks: LockClient
) -> None:
    lock = locks.acquire("watched")
    process = fleet.start("watch", "watched", "--every", "0.5")
    assert process.stdout is not None
    assert "held by 1 of 1" in process.stdout.readline()
    lock.release()
    assert "free" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert outcome(process) == (0, "", "")
