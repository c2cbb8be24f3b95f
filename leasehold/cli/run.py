"""`leasehold run`: the lock and the command, side by side.

acquire ──▶ granted ─▶ start ─▶ the command ends ──────────▶ release ─▶ its status
   │                     │  └──▶ a signal: passed on
   │                     └─────▶ the lock is lost: TERM, then KILL ─▶ 76
   ├──▶ taken ──────────────────────────────────────────────▶ 75
   └──▶ a signal: leaves the queue ─────────────────────────▶ 128 + n
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from leasehold.cli import exit_codes
from leasehold.cli.child_process import Command
from leasehold.cli.signal_pipe import Interrupted, InterruptibleClock, SignalPipe
from leasehold.cli.target import Target
from leasehold.cli.terminal import Terminal
from leasehold.cli.waiting_line import told_of_a_wait, waits_for
from leasehold.client.arguments import default_owner_name
from leasehold.client.lock import Lock
from leasehold.client.lock_client import LockClient
from leasehold.errors import LeaseholdError, LockLost, LockWaitTimeout

_LONGEST_WAIT_SECONDS: Final = 1.0
"""A wait does not notice that the machine was suspended, so that none is long."""
_UNTOLD_WAIT_SECONDS: Final = 3.0
"""A wait that is shorter is not worth a line, nor a mail of cron's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The arguments of `leasehold run`, as its options say."""

    target: Target
    name: str
    command: Sequence[str]
    lease: float
    wait: float | None
    limit: int
    owner_name: str | None
    data: Mapping[str, Any] | None
    grace: float
    if_taken: int
    quiet: bool


def run(job: Job) -> int:
    """Runs the command under the lock; returns the exit status."""
    with SignalPipe() as signals:
        clock = InterruptibleClock(signals)
        owner_name = job.owner_name or default_owner_name(Path(job.command[0]).name)
        client = job.target.locks(owner_name=owner_name, clock=clock)
        try:
            return _run(
                job, client, clock, signals
            )  # The lock is released, or it was told why not.
        except BaseException as ended:
            client.close(release=True)
            if isinstance(ended, Interrupted):
                return exit_codes.SIGNAL + ended.signal
            raise
        finally:
            client.close()


def _run(job: Job, client: LockClient, clock: InterruptibleClock, signals: SignalPipe) -> int:
    seconds = client.longest_wait(job.lease) if job.wait is None else job.wait
    told = told_of_a_wait(
        _UNTOLD_WAIT_SECONDS,
        job.name,
        lambda: waits_for(client, job.name, seconds=seconds),
        monotonic=clock.monotonic,
    )
    try:
        with nullcontext() if job.quiet else told:
            lock = client.acquire(
                job.name,
                lease=job.lease,
                wait=job.wait,
                limit=job.limit,
                data=job.data,
                on_lost=lambda _lock, _reason: signals.wake_up(),
            )
    except LockWaitTimeout as error:
        exit_codes.say(f"{error}; the command was not started")
        return job.if_taken
    clock.raise_if_signalled()
    environment = {
        **os.environ,
        "LEASEHOLD_LOCK_NAME": lock.name,
        "LEASEHOLD_FENCING_TOKEN": str(lock.fencing_token),
    }
    with Terminal() as terminal:
        try:
            command = Command(job.command, environment, terminal)
        except OSError as error:
            exit_codes.say(error)
            missing = isinstance(error, FileNotFoundError)
            return _release(lock, exit_codes.NOT_FOUND if missing else exit_codes.CANNOT_START)
        try:
            with terminal.given_away():
                status = _supervise(command, lock, signals, clock, grace=job.grace)
        except BaseException:
            command.send(signal.SIGKILL)  # A defect of ours: it must not outlive its lock.
            raise
        finally:
            command.forget()
    return _release(lock, status)


def _supervise(
    command: Command, lock: Lock, signals: SignalPipe, clock: InterruptibleClock, *, grace: float
) -> int:
    """Passes signals on until the command has ended; ends the command if the lock is lost."""
    kill_at = math.inf
    while (status := command.status()) is None:
        left = kill_at - clock.monotonic()
        if left <= 0:
            command.send(signal.SIGKILL)
            left = math.inf
        for number in signals.wait(min(left, _LONGEST_WAIT_SECONDS)):
            command.ask_to_end(number)
        command.continue_if_stopped()
        if kill_at == math.inf and lock.lost.is_set():
            exit_codes.say(f"lock {lock.name!r} is lost; the command is ended")
            command.ask_to_end()
            kill_at = clock.monotonic() + grace
    if kill_at == math.inf:
        return status
    command.send(signal.SIGKILL)  # To the processes that it has left behind.
    return exit_codes.LOST


def _release(lock: Lock, status: int) -> int:
    """Releases the lock; returns the command's own failure, however the release ends."""
    try:
        if not lock.release():
            lock.check()
    except LockLost as error:
        if status != exit_codes.LOST:  # else it was told when the command was ended
            exit_codes.say(error)
        return status or exit_codes.LOST
    except (LeaseholdError, BotoCoreError, ClientError) as error:
        exit_codes.say(f"lock {lock.name!r} is not released, its lease ends it: {error}")
    return status
