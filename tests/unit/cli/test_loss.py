"""A command whose lock is lost is ended, with all that it has started."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from botocore.exceptions import NoCredentialsError

from fairlock.aws.retry import misconfigured
from fairlock.cli.child_process import Interrupted, InterruptibleClock, SignalPipe
from fairlock.cli.exit_codes import LogLines, NotTooOften
from fairlock.errors import FairlockError
from fairlock.protocol.schema import lock_key
from tests.unit.cli.fleet import TABLE, Fleet, outcome, runs, until

POLITE = (
    "echo $$ > pid; trap 'touch stopped; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
)
STUBBORN = """
trap '' TERM
(trap '' TERM; while :; do sleep 0.05; done) & echo $! > child
echo $$ > pid; touch ready
while :; do sleep 0.05; done
"""


def lose(fleet: Fleet, name: str) -> None:
    """The holder vanishes from the table; the next heartbeat finds that out."""
    fleet.dynamodb.delete_item(TableName=TABLE, Key=lock_key(name))


def test_a_command_whose_lock_is_lost_may_end_by_itself(fleet: Fleet) -> None:
    process = fleet.start("run", "polite", "--lease", "2", "--", "sh", "-c", POLITE)
    fleet.file("ready")
    lose(fleet, "polite")
    status, _, errors = outcome(process)
    assert status == 76
    ours = [line for line in errors.splitlines() if line != "Terminated"]  # of the shell
    assert ours == [
        "fairlock: lock 'polite' is lost: another owner has it, or it was freed by force",
        "fairlock: lock 'polite' is lost; the command is ended",
    ]
    assert (fleet.home / "stopped").exists()
    assert not runs(fleet.home / "pid")


def test_a_command_that_does_not_end_is_killed_with_all_it_has_started(fleet: Fleet) -> None:
    options = ("--lease", "2", "--grace", "0.3")
    process = fleet.start("run", "stubborn", *options, "--", "sh", "-c", STUBBORN)
    fleet.file("ready")
    lose(fleet, "stubborn")
    assert outcome(process)[0] == 76
    until(lambda: not runs(fleet.home / "pid") and not runs(fleet.home / "child"))


def test_while_the_lock_is_held_nothing_is_ended(fleet: Fleet) -> None:
    """The control: TERM by itself does not end it, so what ended it above was the KILL."""
    options = ("--lease", "2", "--grace", "0.3")
    process = fleet.start("run", "kept", *options, "--", "sh", "-c", STUBBORN)
    fleet.file("ready")
    process.send_signal(signal.SIGTERM)
    [first] = fleet.state("kept").holders
    until(lambda: fleet.state("kept").holders[0].revision > first.revision + 1)
    assert runs(fleet.home / "pid")
    assert runs(fleet.home / "child")
    assert process.poll() is None
    os.killpg(int((fleet.home / "pid").read_text()), signal.SIGKILL)
    assert outcome(process)[0] == 128 + signal.SIGKILL


def test_a_process_that_was_frozen_for_longer_than_its_lease_ends_the_command(
    fleet: Fleet,
) -> None:
    process = fleet.start("run", "frozen", "--lease", "3", "--", "sh", "-c", POLITE)
    fleet.file("ready")
    process.send_signal(signal.SIGSTOP)
    [holder] = fleet.state("frozen").holders
    until(lambda: time.time() * 1000 > holder.expires_at_ms + 1000)
    assert runs(fleet.home / "pid")
    process.send_signal(signal.SIGCONT)
    assert outcome(process)[0] == 76
    assert (fleet.home / "stopped").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of this death")
def test_a_command_ends_with_fairlock_even_if_that_is_killed(fleet: Fleet) -> None:
    """The control is a process that the command has started: no one ends that."""
    script = "sleep 600 & echo $! > descendant; echo $$ > command; exec sleep 600"
    process = fleet.start("run", "killed", "--", "sh", "-c", script)
    command = fleet.file("command")
    until(lambda: command.read_text().strip())
    assert runs(command)
    process.kill()
    until(lambda: not runs(command))
    assert runs(fleet.file("descendant"))


SHORT = ("--lease", "1", "--grace", "0.3", "--max-hold", "2.5")
"""A command that has 1.2 s before TERM."""


def test_a_command_gets_term_before_its_max_hold_is_over_and_the_lock_is_released(
    fleet: Fleet,
) -> None:
    process = fleet.start("run", "capped", *SHORT, "--", "sh", "-c", POLITE)
    status, _, errors = outcome(process)
    assert status == 124
    told = "fairlock: lock 'capped' has been held for nearly its max_hold; the command is ended"
    assert told in errors.splitlines()
    assert "is lost" not in errors
    assert (fleet.home / "stopped").exists()
    assert fleet.state("capped").held == 0


def test_a_command_that_ignores_term_is_killed_before_another_may_begin(fleet: Fleet) -> None:
    process = fleet.start("run", "capped", *SHORT, "--", "sh", "-c", STUBBORN)
    fleet.file("ready")
    after = "for p in pid child; do cat /proc/$(cat $p)/status; done | grep State > still; true"
    next_one = fleet.start("run", "capped", "--lease", "2", "--", "sh", "-c", after)
    assert outcome(process)[0] == 124
    assert outcome(next_one)[0] == 0
    states = (fleet.home / "still").read_text().splitlines()
    assert all("Z" in state for state in states)  # A zombie that no one has asked about.


def test_without_max_hold_it_runs_on(fleet: Fleet) -> None:
    """The control: nothing else ends it after that time."""
    process = fleet.start("run", "kept", *SHORT[:4], "--", "sh", "-c", POLITE)
    fleet.file("ready")
    [holder] = fleet.state("kept").holders
    until(lambda: time.time() * 1000 > holder.acquired_at_ms + 3500)
    assert runs(fleet.home / "pid")
    assert process.poll() is None


def test_a_command_that_ends_in_time_keeps_its_status(fleet: Fleet) -> None:
    assert fleet.run("run", "capped", *SHORT, "--", "sh", "-c", "exit 7")[0] == 7


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
def test_the_first_signal_ends_a_wait_in_the_main_thread(
    clock: InterruptibleClock, way: str
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(Interrupted) as ended:
        (clock if way == "wait" else clock.alarm()).wait(LONG)
    assert ended.value.signal == signal.SIGTERM
    assert time.monotonic() < began + LONG / 2


def test_a_signal_does_not_end_the_alarm_of_the_cleanup(clock: InterruptibleClock) -> None:
    """The control: what has been interrupted once leaves the queue undisturbed."""
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        clock.alarm().wait(LONG)
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


# What the client logs is told in lines that a person on call can read.

TOLD = "lock 'nightly': heartbeat failed"


def record(
    error: Exception | None = None, *, at: float = 0, message: str = TOLD
) -> logging.LogRecord:
    """As `logger.exception` makes it."""
    found = None if error is None else (type(error), error, None)
    made = logging.LogRecord("fairlock", logging.ERROR, "a.py", 1, message, None, found)
    made.created = at
    return made


def told(error: Exception) -> list[str]:
    return LogLines().format(record(error)).splitlines()


def test_an_error_with_advice_is_told_without_its_traceback() -> None:
    error = misconfigured(NoCredentialsError(), table_name="locks", region="eu-west-1")
    assert told(error) == [f"fairlock: {TOLD}", f"fairlock: {error}"]
    assert "check the AWS credentials" in str(error)


def test_a_defect_is_told_by_its_class() -> None:
    """The control: only errors of ours say what to do."""
    first, *rest = told(ZeroDivisionError("a defect"))
    assert first == f"fairlock: {TOLD}"
    assert rest == ["ZeroDivisionError: a defect"]


def test_what_others_have_stored_cannot_command_the_terminal() -> None:
    assert "\x1b" not in "".join(told(FairlockError("evil\x1b[2J")))


def test_the_same_message_is_told_once_a_minute() -> None:
    let_through = NotTooOften().filter
    times = [0.0, 0.5, 59.9, 60.0, 119.9, 7200.0]
    assert [let_through(record(at=at)) for at in times] == [True, False, False, True, False, True]


def test_another_message_or_another_error_is_told_at_once() -> None:
    let_through = NotTooOften().filter
    throttled, refused = FairlockError("throttled"), FairlockError("refused")
    assert [let_through(record(each)) for each in (throttled, refused, throttled)] == [
        True,
        True,
        False,
    ]
    assert let_through(record(message="lock 'nightly' is lost: its lease is over"))
