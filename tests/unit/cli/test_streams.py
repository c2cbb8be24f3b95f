"""Commands whose streams are closed, full or not read, that are stopped, or end with Ctrl-C."""

from __future__ import annotations

import signal
import sys

import pytest

from fairlock import LockClient
from fairlock.cli import exit_codes
from tests.unit.cli.fleet import (
    FULL,
    Fleet,
    Outcome,
    Process,
    closed,
    outcome,
    state_of,
    until,
    until_renewed,
)

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
    "numbers", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2), "by a shell"], ids=str
)
def test_streams_that_are_closed_stay_closed_for_the_command(
    fleet: Fleet, numbers: tuple[int, ...] | str
) -> None:
    """What we open for ourselves takes their numbers, and is not handed down."""
    tells = (sys.executable, "-S", "-c", TELLS)
    if isinstance(numbers, str):
        shell = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "fairlock")
        process: Process = fleet.popen([*shell, "run", "closed", "--", *tells])
        left = ""
    else:
        process = fleet.start("run closed --", *tells, streams=closed(*numbers))
        left = "".join(str(number) for number in range(3) if number not in numbers)
    assert outcome(process) == (5, "", "")
    assert fleet.file("told").read_text() == left
    assert fleet.state("closed").held == 0


@pytest.mark.parametrize("numbers", [(1,), (2,), (0, 1, 2)], ids=str)
def test_a_pace_starts_its_command_although_streams_are_closed(
    fleet: Fleet, numbers: tuple[int, ...]
) -> None:
    line = f"pace 'closed {numbers}' --rate 10/1m -- sh -c 'touch ran; exit 5'"
    assert fleet.run(line, streams=closed(*numbers)) == (5, "", "")
    assert (fleet.home / "ran").exists()


@pytest.mark.parametrize(
    ("options", "status"),
    [("--force --yes", exit_codes.UNKNOWN_LOCK), ("--owner -", exit_codes.USAGE)],
)
def test_a_release_says_what_is_wrong_although_its_input_is_closed(
    fleet: Fleet, options: str, status: int
) -> None:
    ended, _, errors = fleet.run(f"release closed {options}", streams=closed(0))
    assert (ended, errors.count("\n")) == (status, 1)


def test_a_name_that_the_output_cannot_write_is_shown_by_its_escapes(
    fleet: Fleet, locks: LockClient
) -> None:
    words = [sys.executable, "-m", "fairlock", "ls", "--prefix", "caf\u00e9"]
    with locks.hold("caf\u00e9"):
        status, output, errors = outcome(fleet.popen(words, PYTHONIOENCODING="ascii"))
    assert (status, output.partition("\t")[0], errors) == (0, "caf\\xe9", "")


def test_a_command_keeps_its_status_although_no_line_can_be_written_of_its_lock(
    fleet: Fleet,
) -> None:
    """The release finds that the lock is lost."""
    waits = "touch ready; until [ -e gone ]; do sleep 0.02; done; exit 3"
    process = fleet.started("run full -- sh -c", waits, streams=FULL)
    fleet.lose("full")
    (fleet.home / "gone").touch()
    assert outcome(process)[0] == 3


def test_a_lock_that_is_taken_has_its_status_although_no_line_can_be_written(
    fleet: Fleet, locks: LockClient
) -> None:
    """The control writes to the same device, and is told so."""
    with locks.hold("full"):
        ended = fleet.run("run full --max-wait 0 -- true", streams=FULL)
    assert ended[0] == exit_codes.TAKEN
    control = fleet.popen(["sh", "-c", "echo told 2>/dev/full >&2"])
    assert outcome(control)[0] != 0


def told_to(fleet: Fleet, reader: str, line: str) -> Outcome:
    """What becomes of a command whose output no one can read."""
    if reader != "gone":
        return fleet.run(line, streams={1: reader})
    # The shell opens the pipe for both, and goes on when its reader has gone.
    gone = 'mkfifo "$0" && { sleep 0.01 <"$0" & } && exec 3>"$0" && wait && exec "$@" >&3 3>&-'
    shell = ["sh", "-c", gone, str(fleet.home / "pipe"), sys.executable, "-m", "fairlock"]
    return outcome(fleet.popen([*shell, *line.split()]))


@pytest.mark.parametrize("reader", ["/dev/full", "gone"])
@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("ls", 1),
        ("show told", 1),
        ("doctor", 1),
        ("release told --force --yes", 0),  # The status 1 would say that nothing was released.
        ("release told --force --yes --json", 0),
    ],
)
def test_an_output_that_cannot_be_written_has_a_status_of_its_own(
    fleet: Fleet, locks: LockClient, reader: str, line: str, held: int
) -> None:
    locks.acquire("told")
    status, _, errors = told_to(fleet, reader, line)
    assert (status, fleet.state("told").held) == (exit_codes.NOT_TOLD, held)
    assert ("No space left" in errors) == (reader != "gone")
    assert "Traceback" not in errors
    fleet.lose("told")


def test_a_stopped_command_can_be_ended(fleet: Fleet) -> None:
    """It notices no signal before it goes on; before, no one makes it go on: the control."""
    process = fleet.start("run stopped --lease 2 -- sh -c", STOPS_ITSELF)
    fleet.file("pid")
    until(lambda: state_of(fleet.home / "pid") == "T")
    until_renewed(fleet, "stopped")
    assert state_of(fleet.home / "pid") == "T"
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[0] == 128 + signal.SIGTERM
    assert not (fleet.home / "went-on").exists()


def test_a_watch_without_a_terminal_tells_each_change_at_once_and_ends_with_ctrl_c(
    fleet: Fleet, locks: LockClient
) -> None:
    lock = locks.acquire("watched")
    process = fleet.start("watch watched --every 0.5")
    until(lambda: "held by 1 of 1" in process.output.read_text())
    lock.release()
    until(lambda: "free" in process.output.read_text())
    process.send_signal(signal.SIGINT)
    status, output, errors = outcome(process)
    assert (status, output.count("\n"), errors) == (0, 2, "")
