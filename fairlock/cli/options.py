"""The options that several commands have, and how a time is written on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final

import typer

LockName = Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.")]
Table = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        help="Name or ARN of the lock table; else FAIRLOCK_TABLE_NAME names it.",
    ),
]
Stack = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        help="Instead of --table: the stack whose lock service it is, such as Fairlock.",
    ),
]
Profile = Annotated[str | None, typer.Option(help="Profile of the AWS configuration.")]
Region = Annotated[str | None, typer.Option(help="AWS region of the table.")]
EndpointUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Another address than that of AWS.")
]
Prefix = Annotated[str | None, typer.Option(help="Only lock names that begin so.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]

TIME: Final = "TIME"
"""How the help names a value that `seconds` parses."""
_TIME: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_EXAMPLES: Final = "seconds such as 90, or a number with a unit such as 30s, 10m, 2h or 1d"


def seconds(*, least: float = 0) -> Callable[[object], float]:
    """A parser of times: a plain number is seconds; s, m, h and d are units."""

    def parse(value: object) -> float:
        given = _TIME.fullmatch(str(value))
        found = None if given is None else float(given[1]) * _SECONDS[given[2]]
        if found is None or found < least:
            bound = f" of at least {least:g} s" if least else ""
            raise typer.BadParameter(f"{str(value)!r} must be a time{bound}: {_EXAMPLES}")
        return found

    return parse


def whole_seconds(*, least: int = 0) -> Callable[[object], int]:
    """The same for times that AWS takes in whole seconds."""
    parse_any = seconds(least=least)

    def parse(value: object) -> int:
        found = parse_any(value)
        if found != int(found):
            raise typer.BadParameter(f"{str(value)!r} must be a whole number of seconds")
        return int(found)

    return parse
