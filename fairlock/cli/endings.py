"""How the help of each command ends: examples, exit statuses, and the page that says more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from fairlock.cli import exit_codes
from fairlock.text import documented

PAGE: Final = "command-line.md"
_VERBATIM: Final = "\b\n"
"""At the beginning of a paragraph: the help does not wrap its lines."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What the help of one command ends with.

    Attributes:
        examples: whole command lines.
        statuses: what each exit status means, beside those of every command.
        heading: of the page, as an anchor.
    """

    examples: tuple[str, ...]
    statuses: Mapping[str, str]
    heading: str = ""


_TABLE: Final = {
    f"{exit_codes.UNAVAILABLE}": "the lock table did not answer",
    f"{exit_codes.CONFIGURATION}": "AWS refuses: no table, permission, credentials or region",
}
_EVERY: Final = {f"{exit_codes.USAGE}": "wrong usage; nothing was done"}
_READS: Final = {"0": "done", **_TABLE}

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
            **{code: f"{text}; the command was not started" for code, text in _TABLE.items()},
            f"{exit_codes.TAKEN}": "the lock is taken; the command was not started",
            f"{exit_codes.LOST}": "the lock was lost; the command was ended, or was not alone",
            f"{exit_codes.MAX_HOLD_OVER}": "--max-hold was nearly over; the command was ended",
            f"{exit_codes.SUPERSEDED}": "a newer version was granted; the command was not started",
            f"{exit_codes.CANNOT_START}": "the command cannot be started",
            f"{exit_codes.NOT_FOUND}": "the command was not found",
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
            **{code: f"{text}; the command was not started" for code, text in _TABLE.items()},
            f"{exit_codes.TAKEN}": "the slot is too late; the command was not started",
            f"{exit_codes.CANNOT_START}": "the command cannot be started",
            f"{exit_codes.NOT_FOUND}": "the command was not found",
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
        {**_READS, f"{exit_codes.UNKNOWN_LOCK}": "the table knows no such lock"},
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
            f"{exit_codes.DECLINED}": "the answer was no; nothing was released",
            f"{exit_codes.UNKNOWN_LOCK}": "the table knows no such lock, or it is free",
            f"{exit_codes.HOLDER_CHANGED}": "another owner holds it by now; nothing was released",
            f"{exit_codes.LOST}": "--owner: this owner does not hold the lock",
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
            f"{exit_codes.DECLINED}": "the answer was no; nothing was removed",
            f"{exit_codes.UNKNOWN_LOCK}": "the table knows no such lock",
        },
        "empty-a-queue",
    ),
    "doctor": Ending(
        ("fairlock doctor", "fairlock doctor --table locks --json"),
        {
            "0": "the table is fit to lock with",
            f"{exit_codes.DECLINED}": "there is a failure",
            f"{exit_codes.CONFIGURATION}": "AWS was not asked: there is no region, for instance",
        },
        "examine-a-table",
    ),
    "create-table": Ending(
        (
            "fairlock create-table locks",
            "fairlock create-table locks --recovery --protection --json",
        ),
        {"0": "the table is there", **_TABLE},
    ),
    "asl": Ending(
        (
            "fairlock asl --task task.json --lock-name nightly-report",
            "fairlock asl --task task.json --lock-name '$.customer_id' --max-wait 10m",
        ),
        {"0": "done", **{code: f"--stack: {text}" for code, text in _TABLE.items()}},
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
    told = [
        "\n".join((f"{heading}:", *(f"  {line}" for line in lines)))
        for heading, lines in parts.items()
    ]
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
