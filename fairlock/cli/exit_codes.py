"""What `fairlock` tells the shell and its people: exit statuses, the ends of its help, log lines.

The statuses are those of the command, 128 + n if signal n ended it or the waiting for the lock, and
a few whose numbers are those of sysexits.h (BSD), of `timeout`, and of the shells.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NoReturn

import typer
from botocore.exceptions import BotoCoreError, ClientError
from typer.core import TyperCommand, TyperGroup

from fairlock.errors import (
    FairlockError,
    HolderChanged,
    InvalidRequest,
    LockItemMalformed,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.text import documented, printable

DECLINED: Final = 1
USAGE: Final = 64
UNKNOWN_LOCK: Final = 66
UNAVAILABLE: Final = 69
HOLDER_CHANGED: Final = 73
NOT_TOLD: Final = 74
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
    """Prints a message among the errors, as text that cannot command the terminal.

    What prevents a line changes nothing else: no one may read the errors, but a lock is to be
    released, and a status is to be told.
    """
    with suppress(OSError, ValueError):  # Closed, a pipe that is not read, a full disk.
        typer.echo(f"fairlock: {printable(in_shell_words(message))}", err=True)


_STACK: Final = "for the table of a stack, give --stack"
_IN_SHELL_WORDS: Final = {
    "the client for the table of a stack is made by from_stack": _STACK,
    "for the table of a stack make the client by from_stack": _STACK,
    'composite_name("customer", customer_id) refuses None and empty text': (
        '"customer/${customer_id:?}" refuses an empty one'
    ),
}


def in_shell_words(message: object) -> str:
    """A message of the client, which says what to write in a shell instead of Python."""
    text = str(message)
    for python, shell in _IN_SHELL_WORDS.items():
        text = text.replace(python, shell)
    return text


def not_started(error: OSError, command: Sequence[str]) -> int:
    """Says why a command cannot be started; returns the status that shells have for that."""
    why = str(error)
    if len(command) == 1 and " " in command[0]:
        why += f"; {command[0]!r} is one word: give the words separately, or use sh -c"
    say(why)
    return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_START


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


def give_up_errors_that_cannot_be_written() -> None:
    """At the end of the program: Python would fail to write them once more, and end with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = None


@contextmanager
def output() -> Iterator[None]:
    """Gives an output that cannot be written a status of its own: Typer's means "not released"."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # Python would fail to flush it once more.
        if not isinstance(error, BrokenPipeError):  # Its reader has seen enough.
            say(error)
        raise Ended(NOT_TOLD) from error


_AGAIN_AFTER_SECONDS: Final = 60.0


class NotTooOften(logging.Filter):
    """Lets the same message through once a minute: heartbeats may fail ever sooner."""

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

    def format(self, record: logging.LogRecord) -> str:
        """The message, with the traceback of a defect."""
        return in_shell_words(super().format(record))

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


PAGE: Final = "command-line.md"
_VERBATIM: Final = "\b\n"
"""At the beginning of a paragraph: the help does not wrap its lines."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What the help of one command ends with; the heading is the anchor of its part of the page."""

    examples: tuple[str, ...]
    statuses: Mapping[str, str]
    heading: str = ""


_TABLE: Final = {
    f"{UNAVAILABLE}": "the lock table did not answer",
    f"{CONFIGURATION}": "AWS refuses: no table, permission, credentials or region",
}
_STARTS: Final = {
    **{code: f"{text}; the command was not started" for code, text in _TABLE.items()},
    f"{CANNOT_START}": "the command cannot be started",
    f"{NOT_FOUND}": "the command was not found",
}
_EVERY: Final = {f"{USAGE}": "wrong usage; nothing was done"}
_TELLS: Final = {f"{NOT_TOLD}": "the output cannot be written; what it tells of was done"}
_READS: Final = {"0": "done", **_TABLE, **_TELLS}

ENDINGS: Final[Mapping[str, Ending]] = {
    "fairlock": Ending(
        (
            "fairlock run nightly-report -- ./report.sh",
            "fairlock ls",
            "fairlock show nightly-report",
            "fairlock doctor",
        ),
        {"0": "done; each command's --help lists its own statuses"},
    ),
    "run": Ending(
        (
            "fairlock run nightly-report -- ./report.sh --all",
            "fairlock run nightly-report --max-wait 0 --taken-exit-code 0 -- ./report.sh",
            "fairlock run exports --limit 5 --lease 2m --max-wait 1h -- ./export.sh",
        ),
        {
            "0-255": "the command's own; 128 + n if signal n ended it",
            **_STARTS,
            f"{TAKEN}": "the lock is taken; the command was not started",
            f"{LOST}": "the lock was lost; the command was ended, or was not alone",
            f"{MAX_HOLD_OVER}": "--max-hold was nearly over; the command was ended",
            f"{SUPERSEDED}": "a newer version was granted; the command was not started",
        },
        "run-a-command",
    ),
    "pace": Ending(
        (
            "fairlock pace vendor --rate 10/1m -- ./call.sh",
            "fairlock pace report --rate 1/1h --max-wait 0 --late-exit-code 0 -- ./report.sh",
        ),
        {
            "0-255": "the command's own",
            **_STARTS,
            f"{TAKEN}": "the slot is too late; the command was not started",
        },
        "take-turns-at-a-pace",
    ),
    "ls": Ending(
        (
            "fairlock ls",
            "fairlock ls --prefix customer/ --waiting",
            "fairlock ls --json --stack Fairlock",
        ),
        _READS,
        "see-locks",
    ),
    "show": Ending(
        ("fairlock show customer/7", "fairlock show customer/7 --json"),
        {**_READS, f"{UNKNOWN_LOCK}": "the table knows no such lock"},
        "see-locks",
    ),
    "watch": Ending(
        (
            "fairlock watch",
            "fairlock watch customer/7 deploy/production --every 2s",
            "fairlock watch --json --prefix deploy/",
        ),
        _READS,
        "see-locks",
    ),
    "release": Ending(
        (
            "fairlock release customer/7 --force --reason 'its machine is gone'",
            "fairlock release customer/7 --force --yes --token 1900000040000001",
            "fairlock release customer/7 --owner -",
        ),
        {
            **_READS,
            f"{DECLINED}": "the answer was no; nothing was released",
            f"{UNKNOWN_LOCK}": "the table knows no such lock, or it is free",
            f"{HOLDER_CHANGED}": "another owner holds it by now; nothing was released",
            f"{LOST}": "--owner: this owner does not hold the lock",
        },
        "free-a-lock",
    ),
    "limit": Ending(
        ("fairlock limit vendor 3 --reason 'vendor asks for less'",), _READS, "pause-and-limit"
    ),
    "pause": Ending(
        ("fairlock pause deploy/production --reason 'freeze until Monday'",),
        _READS,
        "pause-and-limit",
    ),
    "resume": Ending(("fairlock resume deploy/production",), _READS, "pause-and-limit"),
    "empty-queue": Ending(
        ("fairlock empty-queue customer/7", "fairlock empty-queue customer/7 --yes --json"),
        {
            **_READS,
            f"{DECLINED}": "the answer was no; nothing was removed",
            f"{UNKNOWN_LOCK}": "the table knows no such lock",
        },
        "empty-a-queue",
    ),
    "doctor": Ending(
        ("fairlock doctor", "fairlock doctor --table locks --json"),
        {
            "0": "the table is fit to lock with",
            f"{DECLINED}": "there is a failure",
            f"{CONFIGURATION}": "AWS was not asked: there is no region, for instance",
            **_TELLS,
        },
        "examine-a-table",
    ),
    "create-table": Ending(
        (
            "fairlock create-table locks",
            "fairlock create-table locks --recovery --protection --json",
        ),
        {"0": "the table is there", **_TABLE, **_TELLS},
    ),
    "asl": Ending(
        (
            "fairlock asl --task task.json --lock-name nightly-report",
            "fairlock asl --task task.json --lock-name '$.customer_id' --max-wait 10m",
        ),
        {"0": "done", **{code: f"--stack: {text}" for code, text in _TABLE.items()}, **_TELLS},
        "guard-a-workflow-without-the-cdk",
    ),
}


def ending(command: str) -> str:
    """The text below the options in a command's help."""
    wanted = ENDINGS[command]
    numbered = {**_EVERY, **wanted.statuses}.items()
    statuses = dict(sorted(numbered, key=lambda status: int(status[0].partition("-")[0])))
    width = max(map(len, statuses))
    parts = {
        "Examples": wanted.examples,
        "Exit statuses": tuple(f"{code:<{width}}  {text}" for code, text in statuses.items()),
    }
    told = ["\n  ".join((f"{heading}:", *lines)) for heading, lines in parts.items()]
    anchor = f"#{wanted.heading}" if wanted.heading else ""
    told.append(f"More: {documented(PAGE)}{anchor}")
    return "\n\n".join(f"{_VERBATIM}{part}" for part in told)


class Command(TyperCommand):
    """A command whose ending is made when its help is shown, and not at each start."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's, not public
        """Writes the ending of this command's help."""
        self.epilog = ending(str(self.name))
        super().format_epilog(ctx, formatter)


class Group(TyperGroup):
    """The command `fairlock` itself, as above."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - same
        """Writes the ending of the whole help."""
        self.epilog = ending(str(self.name))
        super().format_epilog(ctx, formatter)
