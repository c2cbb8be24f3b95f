"""`fairlock run`: one at a time, and the command's own status."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import NoCredentialsError

from fairlock import Lock, LockClient
from fairlock.cli import exit_codes
from fairlock.cli.child_process import Interrupted, InterruptibleClock, SignalPipe
from fairlock.cli.target import rate_of
from fairlock.errors import LockStoreUnavailable
from fairlock.names import HELD_LOCKS_VARIABLE
from tests.support import LOCK, Operations, acquire, release
from tests.support.faulty_table import REQUESTS, client_error, fault, refusal
from tests.unit.cli.conftest import Run
from tests.unit.cli.fleet import Fleet, ForkedProcess, outcome, until
from tests.unit.client.doubles import Table

ALONE = "mkdir $0 || exit 3; until [ -e go ]; do sleep 0.02; done; rmdir $0"
"""Fails if another caller is at it."""
TRAPPING = """
trap 'touch interrupted' INT; trap 'echo stopped; exit 3' TERM
touch ready; while :; do sleep 0.05; done
"""


def test_the_commands_status_output_and_environment_are_its_own(fleet: Fleet) -> None:
    show = 'echo "$FAIRLOCK_LOCK_NAME $FAIRLOCK_FENCING_TOKEN"; echo oops >&2; exit 7'
    status, output, errors = fleet.run("run nightly -- sh -c", show)
    state = fleet.state("nightly")
    assert (status, output, errors) == (7, f"nightly {state.fencing_token}\n", "oops\n")
    assert state.held == 0


def test_commands_under_one_lock_run_one_at_a_time_while_those_under_two_collide(
    fleet: Fleet, locks: LockClient
) -> None:
    """All locks are held until all wait, so that those who may begin at the same time do so."""

    def start(name: str, directory: str) -> ForkedProcess:
        return fleet.start(f"run {name} --max-wait 120 -- sh -c", ALONE, directory)

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


def test_a_lock_that_is_taken_has_a_status_of_its_own(fairlock: Run, store: Operations) -> None:
    for name in ("anna", "ben"):
        store.acquire(acquire(name, lock_name="pool", limit=2))
    line = "run pool --limit 2 --max-wait 0"
    status, output, errors = fairlock(f"{line} -- echo ran")
    assert (status, output) == (exit_codes.TAKEN, "") == (75, "")
    assert re.search(r": held by anna since \d{4}-[^,]+, ben since \d{4}-", errors)
    assert fairlock(f"{line} --taken-exit-code 9 -- echo ran")[:2] == (9, "")
    store.release(release("anna", lock_name="pool"))
    assert fairlock(f"{line} -- echo ran") == (0, "ran\n", "")


def test_a_lock_is_renewed_for_as_long_as_the_command_runs_and_others_see_whose_it_is(
    fleet: Fleet, locks: LockClient
) -> None:
    command = "touch ready; while [ ! -e enough ]; do sleep 0.05; done"
    line = "run long --lease 2 --owner-name 'nightly job' --data '{\"host\": 7}' -- sh -c"
    process = fleet.started(line, command)
    [first] = fleet.state("long").holders
    until(lambda: fleet.state("long").holders[0].expires_at_ms > first.expires_at_ms + 2000)
    assert locks.try_acquire("long") is None
    (fleet.home / "enough").touch()
    assert outcome(process)[0] == 0
    assert (first.owner_name, first.data) == ("nightly job", '{"host":7}')


@pytest.mark.parametrize("ignored", [False, True])
def test_signals_are_passed_on_unless_they_are_ignored_from_the_start(
    fleet: Fleet, *, ignored: bool
) -> None:
    """As with `nohup` and for the background jobs of a shell."""
    words = [sys.executable, "-m", "fairlock", "run", "signalled", "--", "sh", "-c", TRAPPING]
    first = 'trap "" INT; ' if ignored else ""
    process = fleet.popen(["sh", "-c", f'{first}exec "$@"', "sh", *words])
    fleet.file("ready")
    process.send_signal(signal.SIGINT)
    if not ignored:
        fleet.file("interrupted")
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[:2] == (3, "stopped\n")
    assert (fleet.home / "interrupted").exists() is not ignored
    assert fleet.state("signalled").held == 0


def test_what_a_failed_test_leaves_running_is_ended(fleet: Fleet) -> None:
    ignore = "trap '' TERM INT; echo $$ > pid; touch ready; while :; do sleep 0.05; done"
    process = fleet.started("run left -- sh -c", ignore)
    assert fleet.runs("pid")
    with pytest.raises(AssertionError, match="it has not ended"):
        process.wait(0.01)
    fleet.end()
    until(lambda: not fleet.runs("pid"))


@pytest.mark.parametrize(
    ("number", "status", "waiters"),
    [(signal.SIGTERM, 128 + signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL, 1)],
)
def test_a_signal_while_it_waits_leaves_the_queue_and_starts_nothing(
    fleet: Fleet, locks: LockClient, number: signal.Signals, status: int, waiters: int
) -> None:
    """The control is killed, and stays in the queue."""
    name = f"busy-{number}"
    with locks.hold(name):
        process = fleet.start(f"run {name} -- touch ran")
        until(lambda: fleet.waiters(name) == 1)
        process.send_signal(number)
        assert outcome(process) == (status, "", "")
        assert fleet.waiters(name) == waiters
    assert not (fleet.home / "ran").exists()


def test_a_signal_while_the_lock_is_granted_releases_it_and_starts_nothing(
    fairlock: Run, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = LockClient.acquire

    def acquire_beside_a_signal(*given: Any, **options: Any) -> Lock:  # noqa: ANN401 - as for `acquire`
        lock = granted(*given, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return lock

    command = Mock()
    monkeypatch.setattr("fairlock.cli.run.Command", command)
    monkeypatch.setattr(LockClient, "acquire", acquire_beside_a_signal)
    assert fairlock("run x -- echo ran") == (128 + signal.SIGTERM, "", "")
    command.assert_not_called()
    assert table.state("x").holders == ()


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


# The clock of `fairlock run`: a wait in the main thread is ended by a signal, or by its alarm.

LONG = 30.0
"""Seconds, of which no test waits more than a moment."""


@pytest.fixture
def signals() -> Iterator[SignalPipe]:
    with SignalPipe() as pipe:
        yield pipe


@pytest.fixture
def clock(signals: SignalPipe) -> InterruptibleClock:
    return InterruptibleClock(signals)


@pytest.mark.parametrize("way", ["wait", "alarm"])
def test_the_first_signal_ends_a_wait_in_the_main_thread_and_no_later_one_that_of_the_cleanup(
    clock: InterruptibleClock, way: str
) -> None:
    """What has been interrupted once leaves the queue undisturbed."""
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(Interrupted) as ended:
        (clock if way == "wait" else clock.alarm()).wait(LONG)
    assert ended.value.signal == signal.SIGTERM
    assert time.monotonic() < began + LONG / 2
    os.kill(os.getpid(), signal.SIGTERM)
    clock.alarm().wait(0.01)


def test_an_alarm_that_rings_ends_the_wait_that_is_under_way_or_the_next(
    clock: InterruptibleClock,
) -> None:
    began, alarm = time.monotonic(), clock.alarm()
    alarm.ring()
    alarm.wait(LONG)
    ringing = threading.Timer(0.05, alarm.ring)
    ringing.start()
    alarm.wait(LONG)
    ringing.join(LONG)
    assert time.monotonic() < began + LONG / 2
    alarm.wait(0.01)
    assert time.monotonic() > began + 0.05


def test_another_thread_waits_for_its_alarm_and_no_signal(clock: InterruptibleClock) -> None:
    alarm, done = clock.alarm(), threading.Event()

    def wait() -> None:
        alarm.wait(LONG)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    alarm.ring()
    assert done.wait(LONG / 2)
    thread.join(LONG)


# `fairlock run` inside `run`: one lock can only wait for itself, others are nested as usual.

INSIDE = "printenv " + HELD_LOCKS_VARIABLE
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/locks"


@pytest.mark.parametrize(
    ("outer", "inner", "ended"),
    [
        ("self", "self", (exit_codes.USAGE, "")),  # Without --max-wait, which would be two minutes.
        ("self, between", f"self --table {ARN}", (exit_codes.USAGE, "")),
        ("self", "self --max-wait 0 --taken-exit-code 9", (9, "")),
        ("outer", "inner", (0, "ran\n")),
        ("pool --limit 2", "pool --limit 2", (0, "ran\n")),
        ("pages --shared", "pages --shared --max-wait 0", (0, "ran\n")),
        ("pages --shared", "pages --max-wait 0", (exit_codes.TAKEN, "")),
        ("pages --shared", "pages --shared", (exit_codes.USAGE, "")),
        ("pages --shared", "pages --shared --limit 50", (exit_codes.USAGE, "")),
    ],
)
def test_a_wait_for_a_run_around_it_is_refused_at_once_and_no_other(
    outer: str,
    inner: str,
    fairlock: Run,
    store: Operations,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ended: tuple[int, str],
) -> None:
    for line in outer.split(", "):
        monkeypatch.setenv(HELD_LOCKS_VARIABLE, fairlock(f"run {line} -- {INSIDE}").out)
    name, _, option = outer.partition(", ")[0].partition(" ")
    held = {"--shared": {"shared": True, "limit": 20}, "--limit 2": {"limit": 2}}.get(option, {})
    store.acquire(acquire("outer", lock_name=name, **held))
    answer = fairlock(f"run {inner} -- echo ran")
    assert answer[:2] == ended
    told = "name: must be another lock than that of the `fairlock run` around" in answer.err
    assert told == (answer.status == exit_codes.USAGE)


def test_without_the_variable_it_waits_for_itself(fairlock: Run, store: Operations) -> None:
    """The control."""
    store.acquire(acquire("outer"))
    answer = fairlock(f"run {LOCK} --max-wait 0.1 -- echo ran")
    assert answer[:2] == (exit_codes.TAKEN, "")


@pytest.mark.parametrize("told", ["ended", "spoilt"])
def test_what_a_run_that_is_over_has_left_in_the_environment_refuses_nothing(
    fleet: Fleet, told: str
) -> None:
    """A process that outlives the command inherits the variable, and may lock later."""
    left = fleet.run(f"run outlived -- {INSIDE}")[1]
    assert [held["name"] for held in json.loads(left)] == ["outlived"]
    later: Any = {HELD_LOCKS_VARIABLE: left if told == "ended" else "{not JSON"}
    assert fleet.run("run outlived -- echo ran", **later)[1] == "ran\n"


# A release that fails is told, and the command's status stands.


TOLD = "fairlock: lock 'x' is not released, its lease ends it: "


@pytest.mark.parametrize("status", [0, 3])
def test_a_table_that_is_gone_after_the_command_has_run_is_told_beside_its_status(
    status: int, fairlock: Run, table: Table
) -> None:
    gone = refusal("ResourceNotFoundException")
    table.will(fault(gone, range(2, 999), of=REQUESTS))
    ended, output, errors = fairlock(f"run x -- sh -c 'echo ran; exit {status}'")
    assert (ended, output, errors.count("\n")) == (status, "ran\n", 1)
    assert errors.startswith(TOLD)
    assert "ResourceNotFoundException" in errors


@pytest.mark.parametrize(
    "error",
    [client_error("ExpiredTokenException"), NoCredentialsError(), LockStoreUnavailable("timeout")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_release_raises_the_status_is_the_commands(
    error: Exception, fairlock: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lock, "release", Mock(side_effect=error))
    assert fairlock("run x -- sh -c 'echo ran; exit 3'") == (3, "ran\n", f"{TOLD}{error}\n")


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("answers", [True, False])
def test_a_lock_that_is_lost_when_the_command_has_ended_is_a_loss_unless_that_failed(
    status: int, fairlock: Run, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Another owner had it, or no one answers for longer than the lease."""

    def refuse(lock: Lock) -> bool:
        lock._handle.lease.lose("its lease is over")  # noqa: SLF001 - as time does
        if answers:
            return False
        raise LockStoreUnavailable("timeout")

    monkeypatch.setattr(Lock, "release", refuse)
    ended = fairlock(f"run x -- sh -c 'exit {status}'")
    assert ended.status == (status or exit_codes.LOST)


# `fairlock pace`: waits for a slot, and becomes the command.


def test_it_becomes_the_command_which_ends_with_its_own_status(fleet: Fleet) -> None:
    process = fleet.start("pace becomes --rate 10/1m -- sh -c 'echo $$; exit 7'")
    assert outcome(process) == (7, f"{process.pid}\n", "")


def test_a_slot_that_is_too_late_starts_nothing(fleet: Fleet) -> None:
    hourly = "pace hourly --rate 1/1h --max-wait 0"
    assert fleet.run(f"{hourly} -- true")[0] == 0
    status, out, errors = fleet.run(f"{hourly} -- echo ran")
    assert (status, out) == (exit_codes.TAKEN, "")
    assert "pace 'hourly': the next slot begins in 3" in errors
    assert errors.endswith("nothing was reserved; the command was not started\n")
    assert fleet.run(f"{hourly} --late-exit-code 0 -- echo ran")[:2] == (0, "")


def test_a_long_wait_for_a_slot_is_told_unless_quiet(fleet: Fleet) -> None:
    lines = [f"pace {name} --rate 1/6s --max-wait 60" for name in ("told", "untold --quiet")]
    assert [fleet.run(f"{line} -- true")[0] for line in lines] == [0, 0]
    telling, quiet = (fleet.start(f"{line} -- true") for line in lines)
    waits, begins = outcome(telling)[2].splitlines()
    assert waits == "fairlock: waiting for a slot of pace 'told', for up to 60 s"
    assert re.fullmatch(r"fairlock: slot of pace 'told' begins after \d+ s", begins)
    assert outcome(quiet) == (0, "", "")


def test_the_command_is_not_deaf_to_a_closed_pipe(fleet: Fleet) -> None:
    """Python ignores SIGPIPE, and a program that is started inherits what is ignored."""
    _, out, _ = fleet.run("pace pipes --rate 10/1m -- grep SigIgn /proc/self/status")
    ignored = int(out.split()[1], 16)
    assert not ignored & 1 << 12  # SIGPIPE is 13.


def test_paces_are_no_locks_for_ls_and_show(fleet: Fleet) -> None:
    assert fleet.run("pace unseen --rate 1/1h -- true")[0] == 0
    assert "unseen" not in fleet.run("ls --free")[1]
    assert fleet.run("show unseen")[0] == exit_codes.UNKNOWN_LOCK


def test_a_rate_is_a_number_and_a_time() -> None:
    assert [rate_of(text) for text in ("10/1m", "1/1h", "5/60", "3/0.5s")] == [
        (10, 60.0),
        (1, 3600.0),
        (5, 60.0),
        (3, 0.5),
    ]
