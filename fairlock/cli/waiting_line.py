"""Two lines that tell why a command began late: for whom it waits, and that it has the lock."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.cli import exit_codes
from fairlock.cli.lines import iso, owners_of
from fairlock.client.lock_client import LockClient
from fairlock.errors import FairlockError

_END_OF_THREAD_SECONDS: Final = 0.2
"""How long a lock that was granted waits for a line that is just being made."""


def waits_for(locks: LockClient, lock_name: str, *, seconds: float) -> str:
    """That the command waits, how long at most, and who holds the lock. Two reads, no write.

    An error is told in its place: a table that does not answer may be the reason of the wait. Empty
    if nobody holds or waits: then the acquire is only slow.
    """
    told = f"waiting for lock {lock_name!r}, for up to {seconds:g} s"
    try:
        found = locks.describe(lock_name)
    except (FairlockError, BotoCoreError, ClientError) as error:
        return f"{told}; who holds it is unknown: {error}"
    if found is None or not (found.holders or found.waiters.count):
        return ""
    if not found.holders:
        return f"{told}; nobody holds it, {found.waiters.count} waiting"
    since = iso(found.holders[0].acquired_at)
    show = f"`fairlock show {shlex.quote(lock_name)}` tells more"
    return f"{told}; held by {owners_of(found)} since {since}; {show}"


@contextmanager
def told_of_a_wait(
    after_seconds: float,
    lock_name: str,
    waits: Callable[[], str],
    *,
    monotonic: Callable[[], float],
) -> Iterator[None]:
    """Tells of the block if it takes longer than that: once meanwhile, and once when it succeeds.

    A block that is over is not held up by the line, nor by its reads; nothing is told any more.
    What prevents a line is no failure of the command: nobody may read its errors.

    Args:
        after_seconds: a wait that is shorter is not worth a line.
        lock_name: what the block waits for.
        waits: makes the line, or an empty one for none; called in a thread of its own.
        monotonic: tells the time.
    """
    if sys.stderr is None:
        yield
        return
    is_over, was_told = threading.Event(), threading.Event()

    def tell() -> None:
        line = waits()
        if line and not is_over.is_set():
            _say(line)
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
        _say(f"lock {lock_name!r} acquired after {monotonic() - began:.0f} s")


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # Closed, a pipe that nobody reads, a full disk.
        exit_codes.say(line)
