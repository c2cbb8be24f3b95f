"""`fairlock run`: one at a time, and the command's own status."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from fairlock import LockClient
from fairlock.cli import exit_codes
from tests.unit.cli.fleet import Fleet, outcome, runs, until
from tests.unit.cli.forks import ForkedProcess

ALONE = "mkdir $0 || exit 3; until [ -e go ]; do sleep 0.02; done; rmdir $0"
"""Fails if another caller is at it."""
TRAPPING = """
trap 'touch interrupted' INT; trap 'echo stopped; exit 3' TERM
touch ready; while :; do sleep 0.05; done
"""


def test_the_commands_status_output_and_environment_are_its_own(fleet: Fleet) -> None:
    show = 'echo "$FAIRLOCK_LOCK_NAME $FAIRLOCK_FENCING_TOKEN"; echo oops >&2; exit 7'
    status, output, errors = fleet.run("run", "nightly", "--", "sh", "-c", show)
    state = fleet.state("nightly")
    assert (status, output, errors) == (7, f"nightly {state.fencing_token}\n", "oops\n")
    assert state.held == 0


def test_commands_under_one_lock_run_one_at_a_time_while_those_under_two_collide(
    fleet: Fleet, locks: LockClient
) -> None:
    """All locks are held until all wait, so that those who may begin at the same time do so."""

    def start(name: str, directory: str) -> ForkedProcess:
        return fleet.start("run", name, "--max-wait", "120", "--", "sh", "-c", ALONE, directory)

    held = [locks.acquire(name) for name in "abc"]
    under_one = [start(name, "one") for name in "aa"]
    under_two = [start(name, "two") for name in "bc"]
    until(lambda: [fleet.waiters(name) for name in "abc"] == [2, 1, 1])
    for lock in held:
        lock.release()
    try:
        until(lambda: any(process.poll() is not None for process in under_two))
        fleet.file("one")
        assert (fleet.state("a").held, fleet.waiters("a")) == (1, 1)
    finally:
        (fleet.home / "go").touch()
    assert [outcome(process)[0] for process in under_one] == [0, 0]
    assert sorted(outcome(process)[0] for process in under_two) == [0, 3]


def test_a_lock_that_is_taken_has_a_status_of_its_own(fleet: Fleet, locks: LockClient) -> None:
    held = [locks.acquire("pool", limit=2) for _ in range(2)]
    words = ("run", "pool", "--limit", "2", "--max-wait", "0")
    refused = [
        fleet.start(*words, *more, "--", "touch", "ran")
        for more in ((), ("--taken-exit-code", "9"))
    ]
    outcomes = [outcome(process) for process in refused]
    assert [status for status, _, _ in outcomes] == [75, 9]
    held_since = r"operator since \d{4}-[^,]+, operator since \d{4}-"
    assert re.search(f": held by {held_since}", outcomes[0][2])
    assert not (fleet.home / "ran").exists()
    held[0].release()
    assert fleet.run(*words, "--", "touch", "ran")[0] == 0
    assert (fleet.home / "ran").exists()


def test_a_lock_is_renewed_for_as_long_as_the_command_runs_and_others_see_whose_it_is(
    fleet: Fleet, locks: LockClient
) -> None:
    command = "touch ready; while [ ! -e enough ]; do sleep 0.05; done"
    options = ("--lease", "2", "--owner-name", "nightly job", "--data", '{"host": 7}')
    process = fleet.start("run", "long", *options, "--", "sh", "-c", command)
    fleet.file("ready")
    [first] = fleet.state("long").holders
    until(lambda: fleet.state("long").holders[0].expires_at_ms > first.expires_at_ms + 2000)
    assert locks.try_acquire("long") is None
    (fleet.home / "enough").touch()
    assert outcome(process)[0] == 0
    assert (first.owner_name, first.data) == ("nightly job", '{"host":7}')


def test_signals_are_passed_on_and_the_commands_answer_is_the_status(fleet: Fleet) -> None:
    process = fleet.start("run", "signalled", "--", "sh", "-c", TRAPPING)
    fleet.file("ready")
    process.send_signal(signal.SIGINT)
    fleet.file("interrupted")
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[:2] == (3, "stopped\n")
    assert fleet.state("signalled").held == 0


def test_a_signal_that_is_ignored_from_the_start_stays_ignored(fleet: Fleet) -> None:
    """As with `nohup` and for the background jobs of a shell. The control is the test above."""
    words = ["-m", "fairlock", "run", "ignoring", "--", "sh", "-c", TRAPPING]
    process = fleet.popen(["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, *words])
    fleet.file("ready")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[:2] == (3, "stopped\n")
    assert not (fleet.home / "interrupted").exists()


def test_what_a_failed_test_leaves_running_is_ended(fleet: Fleet) -> None:
    ignore = "trap '' TERM INT; echo $$ > pid; touch ready; while :; do sleep 0.05; done"
    fleet.start("run", "left", "--", "sh", "-c", ignore)
    fleet.file("ready")
    assert runs(fleet.home / "pid")
    fleet.end()
    until(lambda: not runs(fleet.home / "pid"))


def test_a_signal_while_it_waits_leaves_the_queue_and_starts_nothing(
    fleet: Fleet, locks: LockClient
) -> None:
    with locks.hold("busy"):
        process = fleet.start("run", "busy", "--", "touch", "ran")
        until(lambda: fleet.waiters("busy") == 1)
        process.send_signal(signal.SIGTERM)
        assert outcome(process) == (128 + signal.SIGTERM, "", "")
        assert fleet.waiters("busy") == 0
    assert not (fleet.home / "ran").exists()


def test_a_waiter_that_is_killed_would_stay_in_the_queue(fleet: Fleet, locks: LockClient) -> None:
    with locks.hold("kill"):
        process = fleet.start("run", "kill", "--", "true")
        until(lambda: fleet.waiters("kill") == 1)
        process.kill()
        assert outcome(process)[0] == -signal.SIGKILL
        assert fleet.waiters("kill") == 1


def test_the_commands_status_is_known_although_our_parent_ignores_its_children(
    fleet: Fleet,
) -> None:
    """A process whose parent ignores SIGCHLD does so, too; the kernel then forgets statuses."""
    ignore = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    words = [sys.executable, "-m", "fairlock", "run", "a", "--", "sh", "-c", "exit 7"]
    process = fleet.popen(
        [sys.executable, "-c", f"{ignore} os.execv(sys.argv[1], sys.argv[1:])", *words]
    )
    status, _, errors = outcome(process)
    assert (status, errors) == (7, "")


def test_a_superseded_command_is_not_started_and_has_a_status_of_its_own(fleet: Fleet) -> None:
    assert fleet.run("run", "newest", "--only-newest", "7", "--", "true")[0] == 0
    status, out, errors = fleet.run("run", "newest", "--only-newest", "6", "--", "echo", "ran")
    assert (status, out) == (exit_codes.SUPERSEDED, "")
    assert errors == (
        "fairlock: lock 'newest': version 6 is superseded, 7 was granted the lock; "
        "the command was not started\n"
    )
    ignored = ("--superseded-exit-code", "0")
    assert fleet.run("run", "newest", "--only-newest", "6", *ignored, "--", "false")[0] == 0
    assert fleet.run("run", "newest", "--only-newest", "now", "--", "true")[0] == 0
    assert "newest version granted: 1" in fleet.run("show", "newest")[1]


@pytest.mark.parametrize("version", ["7.5", "-1", "latest", ""])
def test_a_version_that_is_none_is_wrong_usage(fleet: Fleet, version: str) -> None:
    status, _, errors = fleet.run("run", "wrong", f"--only-newest={version}", "--", "true")
    assert (status, "--only-newest" in errors) == (exit_codes.USAGE, True)
