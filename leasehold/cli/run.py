"""`leasehold run`: the lock and the command, side by side.

acquire ──▶ granted ─▶ start ─▶ the command ends ──────────▶ release ─▶ its status
   │                     │  └──▶ a signal: passed on
   │                     └─────▶ the lock is lost: TERM, then KILL ─▶ 76
   ├──▶ taken ──────────────────────────────────────────────▶ 75
   └──▶ a signal: leaves the queue ─────────────────────────▶ 128 + n
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from leasehold.cli import exit_codes as _exits
from leasehold.cli.child_process import Command
from leasehold.cli.signal_pipe import Bell, Interrupted, InterruptibleClock
from leasehold.cli.terminal import Terminal
from leasehold.client.lock import Lock
from leasehold.client.lock_client import LockClient
from leasehold.errors import LockLost, LockStoreUnavailable, LockWaitTimeout

_LONGEST_NAP_SECONDS: Final = 1.0
"""A wait does not notice that the machine was suspended; so none is long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done.

    Attributes:
        command: its words.
        grace: seconds from TERM to KILL, if the lock is lost.
        if_taken: the exit status if it is taken.
    """

    table: str
    name: str
    command: Sequence[str]
    lease: float
    wait: float | None
    limit: int
    owner_name: str | None
    data: Mapping[str, Any] | None
    grace: float
    if_taken: int


def run(job: Job) -> int:
    """Does it; returns the exit status."""
    with Bell() as bell:
        clock = InterruptibleClock(bell)
        owner_name = job.owner_name or _owner_name(job.command[0])
        # One that looks but once, and ends, must not have to watch a lease for its whole length.
        client = LockClient(job.table, owner_name=owner_name, clock=clock, takeover="stored_expiry")
        try:
            return _run(job, client, clock, bell)  # It has released, or has told why it has not.
        except BaseException as ended:
            client.close(release=True)
            if isinstance(ended, Interrupted):
                return _exits.SIGNAL + ended.signal
            raise
        finally:
            client.close()


def _run(job: Job, client: LockClient, clock: InterruptibleClock, bell: Bell) -> int:
    try:
        lock = client.acquire(
            job.name,
            lease=job.lease,
            wait=job.wait,
            limit=job.limit,
            data=job.data,
            on_lost=lambda _lock: bell.ring(),
        )
    except LockWaitTimeout as error:
        _exits.say(error)
        return job.if_taken
    clock.let_through(bell.wait(0))
    with Terminal() as terminal:
        try:
            command = Command(job.command, {**os.environ, **_environment(lock)}, terminal)
        except OSError as error:
            _exits.say(error)
            missing = isinstance(error, FileNotFoundError)
            return _give_back(lock, _exits.NOT_FOUND if missing else _exits.CANNOT_START)
        try:
            with command.at_the_terminal():
                status = _accompany(command, lock, bell, clock, grace=job.grace)
        except BaseException:
            command.send(signal.SIGKILL)  # A defect of ours: it must not outlive its lock.
            raise
        finally:
            command.bury()
    return _give_back(lock, status)


def _owner_name(program: str) -> str:
    """As that of `LockClient`, but for the command."""
    name = f"{socket.gethostname()}:{os.getpid()}:{Path(program).name}"
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:256]


def _environment(lock: Lock) -> dict[str, str]:
    return {
        "LEASEHOLD_LOCK_NAME": lock.name,
        "LEASEHOLD_FENCING_TOKEN": str(lock.fencing_token),
    }


def _accompany(
    command: Command, lock: Lock, bell: Bell, clock: InterruptibleClock, *, grace: float
) -> int:
    """Passes signals on until the command has ended; ends it if the lock is lost."""
    kill_at: float | None = None
    while (status := command.status()) is None:
        nap = _LONGEST_NAP_SECONDS
        if kill_at is not None:
            nap = min(nap, kill_at - clock.monotonic())
            if nap <= 0:
                command.send(signal.SIGKILL)
                nap = _LONGEST_NAP_SECONDS
        for number in bell.wait(nap):
            command.ask_to_end(number)
        command.go_on()
        if kill_at is None and lock.lost.is_set():
            _exits.say(f"lock {lock.name!r} is lost; the command is ended")
            command.ask_to_end()
            kill_at = clock.monotonic() + grace
    if kill_at is None:
        return status
    command.send(signal.SIGKILL)  # To those that it has left behind.
    return _exits.LOST


def _give_back(lock: Lock, status: int) -> int:
    """Releases; the command's own failure stands, whatever becomes of the lock."""
    try:
        if not lock.release():
            lock.check()
    except LockLost as error:
        _exits.say(error)
        return status or _exits.LOST
    except (LockStoreUnavailable, BotoCoreError, ClientError) as error:
        _exits.say(f"lock {lock.name!r} is not released, its lease ends it: {error}")
    return status
