"""`fairlock run`: one at a time, and the command's own status."""

from __future__ import annotations

import json
import re
import signal
import sys

import pytest
from botocore.exceptions import NoCredentialsError

from fairlock import Lock, LockClient, create_table
from fairlock.cli import exit_codes, main
from fairlock.cli.target import rate_of
from fairlock.errors import LockStoreUnavailable
from fairlock.names import HELD_LOCKS_VARIABLE
from testbed.localaws import LocalAws
from tests.support.faulty_table import client_error
from tests.unit.cli.fleet import TABLE, Fleet, ForkedProcess, outcome, runs, until

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


# `fairlock run` inside `run`: one lock can only wait for itself, others are nested as usual.

RUN = (sys.executable, "-m", "fairlock", "run")
TELLS = f'printf %s "${HELD_LOCKS_VARIABLE}" > held.part; mv held.part held; read go'
"""Goes on when its input ends."""


Answer = tuple[int, str, str]


def inside(fleet: Fleet, *outer: str, inner: tuple[str, ...]) -> Answer:
    """What `run` with the words `inner` answers while one with the words `outer` runs."""
    [answered] = all_inside(fleet, *outer, inner=[inner])
    return answered


def all_inside(fleet: Fleet, *outer: str, inner: list[tuple[str, ...]]) -> list[Answer]:
    """The same of several, one after the other: with the environment of the outer one's command."""
    around = fleet.start("run", *outer, "--", "sh", "-c", TELLS)
    told = fleet.file("held")
    variable = {HELD_LOCKS_VARIABLE: told.read_text()}
    answered = [fleet.run("run", *each, **variable) for each in inner]
    told.unlink()
    assert outcome(around)[1:] == ("", "")
    return answered


def test_the_same_lock_is_refused_at_once_and_its_command_does_not_start(fleet: Fleet) -> None:
    """Without --max-wait, which would be two minutes."""
    ended = inside(fleet, "self", inner=("self", "--", "echo", "ran"))
    assert ended[:2] == (exit_codes.USAGE, "")
    assert "name: must be another lock than that of the `fairlock run` around" in ended[2]


def test_without_the_variable_it_waits_for_itself(fleet: Fleet, locks: LockClient) -> None:
    """The control."""
    with locks.hold("control"):
        words = ("run", "control", "--max-wait", "0.1", "--", "echo", "ran")
        status, output, errors = fleet.run(*words)
    assert (status, output) == (exit_codes.TAKEN, "")
    assert "not handed over" in errors


def test_it_is_refused_by_the_arn_of_the_table_and_two_levels_below(fleet: Fleet) -> None:
    table = f"arn:aws:dynamodb:us-east-1:000000000000:table/{TABLE}"
    inner = (*RUN, "deep", "--table", table, "--", "echo", "ran")
    ended = fleet.run("run", "deep", "--", *RUN, "between", "--", *inner)
    assert ended[:2] == (exit_codes.USAGE, "")


def test_another_lock_is_nested(fleet: Fleet) -> None:
    assert inside(fleet, "outer", inner=("inner", "--", "echo", "ran")) == (0, "ran\n", "")


def test_one_that_does_not_wait_is_told_that_the_lock_is_taken(fleet: Fleet) -> None:
    inner = ("skipped", "--max-wait", "0", "--taken-exit-code", "9", "--", "echo", "ran")
    assert inside(fleet, "skipped", inner=inner)[:2] == (9, "")


def test_a_second_permit_of_a_semaphore_is_granted(fleet: Fleet) -> None:
    pool = ("pool-of-two", "--limit", "2")
    assert inside(fleet, *pool, inner=(*pool, "--", "echo", "ran"))[:2] == (0, "ran\n")


@pytest.mark.parametrize("told", ["ended", "spoilt"])
def test_what_a_run_that_is_over_has_left_in_the_environment_refuses_nothing(
    fleet: Fleet, told: str
) -> None:
    """A process that outlives the command inherits the variable, and may lock later."""
    shows = f'printf %s "${HELD_LOCKS_VARIABLE}"'
    left = fleet.run("run", "outlived", "--", "sh", "-c", shows)[1]
    assert [held["name"] for held in json.loads(left)] == ["outlived"]
    later = {HELD_LOCKS_VARIABLE: left if told == "ended" else "{not JSON"}
    assert fleet.run("run", "outlived", "--", "echo", "ran", **later)[1] == "ran\n"


def test_readers_run_side_by_side_and_a_writer_is_told_that_the_lock_is_taken(fleet: Fleet) -> None:
    """The inner commands would wait for the outer one: those that may wait are refused at once."""
    shared, at_once, command = ("pages", "--shared"), ("--max-wait", "0"), ("--", "echo", "ran")
    inner = [
        (*shared, *at_once, *command),
        ("pages", *at_once, *command),
        (*shared, *command),
        (*shared, "--limit", "50", *command),
    ]
    assert [answer[:2] for answer in all_inside(fleet, *shared, inner=inner)] == [
        (0, "ran\n"),
        (exit_codes.TAKEN, ""),
        *[(exit_codes.USAGE, "")] * 2,
    ]


# A release that fails is told, and the command's status stands.

ENDS_WHEN_TOLD = "until [ -e gone ]; do sleep 0.02; done; exit $0"
TOLD = "is not released, its lease ends it"


@pytest.mark.parametrize("status", [0, 3])
def test_a_table_that_is_gone_after_the_command_has_run_is_told_beside_its_status(
    fleet: Fleet, status: int
) -> None:
    """The control is a lock that cannot be acquired: 78, and the command is not started."""
    words = ("run", "x", "--table", "short-lived", "--", "sh", "-c", ENDS_WHEN_TOLD, str(status))
    create_table(fleet.dynamodb, "short-lived")
    process = fleet.start(*words)
    until(lambda: fleet.dynamodb.scan(TableName="short-lived")["Count"])
    fleet.dynamodb.delete_table(TableName="short-lived")
    (fleet.home / "gone").touch()
    ended, _, errors = outcome(process)
    [told] = errors.splitlines()
    assert ended == status
    assert told.startswith(f"fairlock: lock 'x' {TOLD}")
    assert "ResourceNotFoundException" in told
    ended, _, errors = fleet.run(*words)
    assert (ended, errors.count(TOLD)) == (78, 0)


@pytest.mark.parametrize(
    "error",
    [client_error("ExpiredTokenException"), NoCredentialsError(), LockStoreUnavailable("timeout")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_release_raises_the_status_is_the_commands(
    error: Exception,
    aws: LocalAws,
    lock_table: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refuse(_lock: Lock) -> bool:
        raise error

    for name, value in {**aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Lock, "release", refuse)
    name = type(error).__name__
    words = ["fairlock", "run", name, "--max-wait", "0", "--", "sh", "-c", "echo ran; exit 3"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capfd.readouterr()
    assert (ended.value.code, told.out) == (3, "ran\n")
    assert told.err == f"fairlock: lock '{name}' {TOLD}: {error}\n"


@pytest.mark.parametrize("status", [0, 3])
def test_an_outage_that_outlasts_the_lease_is_a_loss(
    status: int,
    aws: LocalAws,
    lock_table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(lock: Lock) -> bool:
        lock._handle.lease.lose("its lease is over")  # noqa: SLF001 - as time does
        raise LockStoreUnavailable("timeout")

    for name, value in {**aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Lock, "release", refuse)
    words = ["fairlock", "run", f"lost-{status}", "--", "sh", "-c", f"exit {status}"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == (status or exit_codes.LOST)


# `fairlock pace`: waits for a slot, and becomes the command.


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


def test_a_rate_is_a_number_and_a_time() -> None:
    assert [rate_of(text) for text in ("10/1m", "1/1h", "5/60", "3/0.5s")] == [
        (10, 60.0),
        (1, 3600.0),
        (5, 60.0),
        (3, 0.5),
    ]
