"""`fairlock pace`: waits for a slot, and becomes the command."""

from __future__ import annotations

import re

import pytest

from fairlock.cli import exit_codes
from fairlock.cli.target import rate_of
from tests.unit.cli.fleet import Fleet


def test_it_becomes_the_command_which_ends_with_its_own_status(fleet: Fleet) -> None:
    line = ("pace", "becomes", "--rate", "10/1m", "--")
    assert fleet.run(*line, "sh", "-c", "echo $$; exit 7")[0] == 7
    process = fleet.start("pace", "same-process", "--rate", "10/1m", "--", "sh", "-c", "echo $$")
    out, errors = process.communicate(timeout=60)
    assert (out.strip(), errors) == (str(process.pid), "")


def test_a_slot_that_is_too_late_starts_nothing(fleet: Fleet) -> None:
    hourly = ("pace", "hourly", "--rate", "1/1h", "--max-wait", "0")
    assert fleet.run(*hourly, "--", "true")[0] == 0
    status, out, errors = fleet.run(*hourly, "--", "echo", "ran")
    assert (status, out) == (exit_codes.TAKEN, "")
    assert "pace 'hourly': the next slot begins in 3" in errors
    assert errors.endswith("nothing was reserved; the command was not started\n")
    assert fleet.run(*hourly, "--late-exit-code", "0", "--", "echo", "ran")[:2] == (0, "")


def test_a_long_wait_for_a_slot_is_told_unless_quiet(fleet: Fleet) -> None:
    line = ("pace", "told", "--rate", "1/4s", "--max-wait", "60")
    fleet.run(*line, "--", "true")
    errors = fleet.run(*line, "--", "true")[2]
    assert re.fullmatch(
        "fairlock: waiting for a slot of pace 'told', for up to 60 s\n"
        "fairlock: slot of pace 'told' begins after [3-9] s\n",
        errors,
    )
    assert fleet.run(*line, "--quiet", "--", "true")[1:] == ("", "")


def test_the_command_is_not_deaf_to_a_closed_pipe(fleet: Fleet) -> None:
    """Python ignores SIGPIPE, and a program that is started inherits what is ignored."""
    command = ("sh", "-c", "grep SigIgn /proc/self/status")
    _, out, _ = fleet.run("pace", "pipes", "--rate", "10/1m", "--", *command)
    ignored = int(out.split()[1], 16)
    assert not ignored & 1 << 12  # SIGPIPE is 13.


@pytest.mark.parametrize(("command", "status"), [("nosuch", 127), ("/dev/null", 126)])
def test_a_command_that_cannot_be_started_is_told_as_shells_do(
    fleet: Fleet, command: str, status: int
) -> None:
    assert fleet.run("pace", f"start-{status}", "--rate", "10/1m", "--", command)[0] == status


def test_paces_are_no_locks_for_ls_and_show(fleet: Fleet) -> None:
    assert fleet.run("pace", "unseen", "--rate", "1/1h", "--", "true")[0] == 0
    assert "unseen" not in fleet.run("ls", "--free")[1]
    assert fleet.run("show", "unseen")[0] == exit_codes.UNKNOWN_LOCK


@pytest.mark.parametrize("rate", ["10", "10/", "/60", "x/60", "-1/60", "1.5/60", "10/soon"])
def test_a_rate_that_is_none_is_wrong_usage(fleet: Fleet, rate: str) -> None:
    status, _, errors = fleet.run("pace", "wrong", f"--rate={rate}", "--", "true")
    assert (status, "--rate" in errors) == (exit_codes.USAGE, True)


def test_a_rate_is_a_number_and_a_time() -> None:
    assert [rate_of(text) for text in ("10/1m", "1/1h", "5/60", "3/0.5s")] == [
        (10, 60.0),
        (1, 3600.0),
        (5, 60.0),
        (3, 0.5),
    ]
