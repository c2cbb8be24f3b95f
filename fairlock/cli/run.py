"""`fairlock run`: the lock and the command, side by side.

acquire ──▶ granted ─▶ start ─▶ the command ends ──────────▶ release ─▶ its status
   │                     │  └──▶ a signal: passed on
   │                     ├─────▶ the lock is lost: TERM, then KILL ─▶ 76
   │                     └─────▶ max_hold is nearly over: the same ─▶ 124
   ├──▶ taken ──────────────────────────────────────────────▶ 75
   ├──▶ a newer version was granted ────────────────────────▶ 79
   └──▶ a signal: leaves the queue ─────────────────────────▶ 128 + n

A command that begins late is preceded by two lines: who holds the lock, and that it has it now.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.cli import exit_codes
from fairlock.cli.child_process import (
    Command,
    Interrupted,
    InterruptibleClock,
    SignalPipe,
    Terminal,
)
from fairlock.cli.lines import owners_of
from fairlock.cli.target import Target
from fairlock.client.arguments import default_owner_name
from fairlock.client.lock import Lock
from fairlock.client.lock_client import LockClient
from fairlock.clock import iso
from fairlock.errors import FairlockError, InvalidRequest, LockLost, LockWaitTimeout, Superseded
from fairlock.names import FENCING_TOKEN_VARIABLE, HELD_LOCKS_VARIABLE, LOCK_NAME_VARIABLE

_LAST_SECONDS: Final = 1.0
"""Between KILL and the end of max_hold, so that the next holder finds the command ended."""
_END_OF_THREAD_SECONDS: Final = 0.2
"""How long a lock that was granted waits for a line that is just being made."""


def waits_for(locks: LockClient, lock_name: str, *, seconds: float) -> str:
    """That the command waits, how long at most, and who holds the lock; empty if no owner does."""
    told = f"waiting for lock {lock_name!r}, for up to {seconds:g} s"
    try:
        found = locks.describe(lock_name)
    except (FairlockError, BotoCoreError, ClientError) as error:
        return f"{told}; who holds it is unknown: {error}"
    if found is None or not found.is_in_use:
        return ""
    if found.ceiling is not None:
        told += f"; it is {found.ceiling}"
    if not found.holders:
        return f"{told}; no one holds it, {found.waiters.count} waiting"
    since = iso(found.holders[0].acquired_at)
    show = f"`fairlock show {shlex.quote(lock_name)}` tells more"
    return f"{told}; held by {owners_of(found)} since {since}; {show}"


@contextmanager
def told_of_a_wait(
    after_seconds: float, end: str, waits: Callable[[], str], *, monotonic: Callable[[], float]
) -> Iterator[None]:
    """Tells of the block if it takes longer than that: once meanwhile, and once when it succeeds.

    The first line, or an empty one for none, is made by `waits` in a thread of its own, which holds
    up no block that is over; the second begins with `end`.
    """
    if sys.stderr is None:
        yield
        return
    is_over, was_told = threading.Event(), threading.Event()

    def tell() -> None:
        line = waits()
        if line and not is_over.is_set():
            exit_codes.say(line)
            was_told.set()

    began = monotonic()
    timer = threading.Timer(after_seconds, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        is_over.set()
        timer.join(_END_OF_THREAD_SECONDS)
    if was_told.is_set():
        exit_codes.say(f"{end} after {monotonic() - began:.0f} s")


_LONGEST_WAIT_SECONDS: Final = 1.0
"""A wait does not notice that the machine was suspended, so that none is long."""
UNTOLD_WAIT_SECONDS: Final = 3.0
"""A wait that is shorter is not worth a line, nor a mail of cron's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The arguments of `fairlock run`, as its options say."""

    target: Target
    name: str
    command: Sequence[str]
    lease: float
    max_wait: float | None
    limit: int
    owner_name: str | None
    data: Mapping[str, Any] | None
    max_hold: float | None
    only_newest: bool | int
    grace: float
    taken_exit_code: int
    superseded_exit_code: int
    quiet: bool
    shared: bool


def run(job: Job) -> int:
    """Runs the command under the lock; returns the exit status."""
    if job.max_hold is not None and job.max_hold <= job.grace + _LAST_SECONDS:
        rule = f"must be longer than the grace of {job.grace:g} s and {_LAST_SECONDS:g} s together"
        raise InvalidRequest(field="max_hold", rule=rule, value=job.max_hold)
    around = _held_around()
    _require_not_waiting_for_itself(job, around)
    with SignalPipe() as signals:
        clock = InterruptibleClock(signals)
        owner_name = job.owner_name or default_owner_name(Path(job.command[0]).name)
        client = job.target.locks(owner_name=owner_name, clock=clock)
        try:
            # The lock is released, or a message said why not.
            return _run(job, client, clock, signals, around)
        except BaseException as ended:
            client.close(release=True)
            if isinstance(ended, Interrupted):
                return exit_codes.SIGNAL + ended.signal
            raise
        finally:
            client.close()


def _run(
    job: Job,
    client: LockClient,
    clock: InterruptibleClock,
    signals: SignalPipe,
    around: Sequence[_Held],
) -> int:
    seconds = client.longest_wait(job.lease) if job.max_wait is None else job.max_wait
    told = told_of_a_wait(
        UNTOLD_WAIT_SECONDS,
        f"lock {job.name!r} acquired",
        lambda: waits_for(client, job.name, seconds=seconds),
        monotonic=clock.monotonic,
    )
    try:
        with nullcontext() if job.quiet else told:
            lock = client.acquire(
                job.name,
                lease=job.lease,
                max_wait=job.max_wait,
                limit=job.limit,
                data=job.data,
                max_hold=job.max_hold,
                only_newest=job.only_newest,
                # Another thread finds the loss. The pipe wakes this one, which ends the command.
                on_lost=lambda _lock, _reason: signals.wake_up(),
                shared=job.shared,
            )
    except LockWaitTimeout as error:
        exit_codes.say(f"{error}; the command was not started")
        return job.taken_exit_code
    except Superseded as error:
        exit_codes.say(f"{error}; the command was not started")
        return job.superseded_exit_code
    # A signal may have come while the grant was under way. The command must not start then: its
    # shell believes it ended. Our caller releases.
    clock.raise_if_signalled()
    held = _Held(name=job.name, table=job.target.identity(), process=os.getpid())
    environment = {
        **os.environ,
        LOCK_NAME_VARIABLE: lock.name,
        FENCING_TOKEN_VARIABLE: str(lock.fencing_token),
        HELD_LOCKS_VARIABLE: json.dumps([*around, held]),
    }
    with Terminal() as terminal:
        try:
            command = Command(job.command, environment, terminal)
        except OSError as error:
            # No command runs, so others need not wait for the end of the lease.
            return _release(lock, exit_codes.not_started(error, job.command))
        try:
            with terminal.given_away():
                status = _supervise(command, lock, signals, clock, grace=job.grace)
        except BaseException:
            # A defect of ours, or an interrupt: the release comes next, and the command must not
            # go on without its lock.
            command.send(signal.SIGKILL)
            raise
        finally:
            command.forget()
    # Last: whatever the command has started is over, so the next holder is alone.
    return _release(lock, status)


class _Held(TypedDict):
    """A lock that a `fairlock run` around this process holds, as it tells its command."""

    name: str
    table: str
    process: int


def _held_around() -> list[_Held]:
    """What the runs around this process hold; nothing if the variable is not as `run` writes it."""
    try:
        told = json.loads(os.environ.get(HELD_LOCKS_VARIABLE, "[]"))
        return [
            _Held(name=str(held["name"]), table=str(held["table"]), process=int(held["process"]))
            for held in told
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def _require_not_waiting_for_itself(job: Job, around: Sequence[_Held]) -> None:
    """Refuses a wait that only its own end could end.

    A `run` that has ended holds nothing: it may have left a process that inherited the variable.
    """
    if job.max_wait == 0:
        return
    wanted = (job.name, job.target.identity())
    mine = [each for each in around if (each["name"], each["table"]) == wanted]
    permits = sum(_is_alive(each["process"]) for each in mine)
    # A reader waits behind a writer that came in between, which waits for the run around this one.
    if permits and (job.shared or permits >= job.limit):
        rule = (
            "must be another lock than that of the `fairlock run` around this one, which waits "
            "for this command to end; --max-wait 0 does not wait"
        )
        raise InvalidRequest(field="name", rule=rule, value=job.name)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _supervise(
    command: Command, lock: Lock, signals: SignalPipe, clock: InterruptibleClock, *, grace: float
) -> int:
    """Passes signals on until the command has ended; ends it if it has to be without the lock."""
    end_at = clock.monotonic() + lock.hold_remaining - _LAST_SECONDS - grace
    kill_at, ended = math.inf, 0
    while (status := command.status()) is None:
        now = clock.monotonic()
        if not ended and (lock.lost.is_set() or now >= end_at):
            ended, why = exit_codes.LOST, "is lost"
            if not lock.lost.is_set():
                ended, why = exit_codes.MAX_HOLD_OVER, "has been held for nearly its max_hold"
            command.ask_to_end()  # First: the line may have to wait for its reader.
            exit_codes.say(f"lock {lock.name!r} {why}; the command is ended")
            kill_at = now + grace
        if now >= kill_at:
            command.send(signal.SIGKILL)
            kill_at = math.inf
        next_at = kill_at if ended else end_at
        for number in signals.wait(min(next_at - now, _LONGEST_WAIT_SECONDS)):
            command.ask_to_end(number)
        command.continue_if_stopped()
    if ended:
        command.send(signal.SIGKILL)  # To the processes that it has left behind.
    return ended or status


def _release(lock: Lock, status: int) -> int:
    """Releases the lock; returns the command's own failure, however the release ends."""
    try:
        if not lock.release():
            lock.check()
    except LockLost as error:
        if status != exit_codes.LOST:  # else it was reported when the command was ended
            exit_codes.say(error)
        return status or exit_codes.LOST
    except (FairlockError, BotoCoreError, ClientError) as error:
        exit_codes.say(f"lock {lock.name!r} is not released, its lease ends it: {error}")
        if lock.lost.is_set():  # The outage has outlasted the lease.
            return status or exit_codes.LOST
    return status
