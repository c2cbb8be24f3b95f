"""What `fairlock` tells the shell: exit statuses, and what is logged meanwhile as lines for people.

The statuses are those of the command, 128 + n if signal n ended it or the waiting for the lock, and
a few of `fairlock` that few programs use. `endings.py` says why a command ends with which. The
numbers are those of sysexits.h (BSD), of `timeout`, and of the shells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, NoReturn

import typer
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.errors import (
    FairlockError,
    HolderChanged,
    InvalidRequest,
    LockItemMalformed,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.text import printable

DECLINED: Final = 1
USAGE: Final = 64
UNKNOWN_LOCK: Final = 66
UNAVAILABLE: Final = 69
HOLDER_CHANGED: Final = 73
TAKEN: Final = 75
LOST: Final = 76
CONFIGURATION: Final = 78
SUPERSEDED: Final = 79
MAX_HOLD_OVER: Final = 124
CANNOT_START: Final = 126
NOT_FOUND: Final = 127
SIGNAL: Final = 128


class Ended(SystemExit):
    """Ends the program with a status that was chosen here, and not by the parser of options."""


def say(message: object) -> None:
    """Prints a message among the errors, so that the command's output stays its own.

    A message may hold what others stored: nothing in it reaches the terminal that could
    command it. What prevents a line changes nothing else: no one may read the errors, but a lock is
    to be released, and a status is to be told.
    """
    with suppress(OSError, ValueError):  # Closed, a pipe that is not read, a full disk.
        typer.echo(f"fairlock: {printable(str(message))}", err=True)


def end(status: int, message: object) -> NoReturn:
    """Prints a message and ends the program."""
    say(message)
    raise Ended(status)


@contextmanager
def statuses() -> Iterator[None]:
    """Turns errors of the lock and of AWS into their statuses."""
    try:
        yield
    except InvalidRequest as error:
        end(USAGE, error)
    except HolderChanged as error:
        end(HOLDER_CHANGED, error)
    except LockStoreUnavailable as error:
        end(UNAVAILABLE, error)
    except (LockStoreMisconfigured, LockItemMalformed, BotoCoreError, ClientError) as error:
        end(CONFIGURATION, error)


_AGAIN_AFTER_SECONDS: Final = 60.0


class NotTooOften(logging.Filter):
    """Lets the same message through once a minute.

    Credentials that are over fail at each heartbeat, and heartbeats come ever sooner towards the
    end of the lease.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message was not shown within the last minute."""
        error = record.exc_info[1] if record.exc_info else None
        text, now = f"{record.getMessage()} {error}", record.created
        recent = {each: at for each, at in self._told.items() if now - at < _AGAIN_AFTER_SECONDS}
        if text in recent:
            return False
        # Heartbeats log in several threads: another one may read the old dictionary now.
        self._told = {**recent, text: now}
        return True


class LogLines(logging.Formatter):
    """Names the program in each message, and tells an error of ours without its traceback."""

    def __init__(self) -> None:
        super().__init__("fairlock: %(message)s")

    def formatException(  # noqa: N802 - logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """The error in a line, or the traceback of a defect."""
        if isinstance(ei[1], FairlockError):
            return f"fairlock: {printable(str(ei[1]))}"
        return super().formatException(ei)


def log_lines() -> None:
    """Prints warnings among the errors, unless the process has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogLines())
    handler.addFilter(NotTooOften())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
