"""The options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

LockName = Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.")]


def _given(table: str | None) -> str:
    if not table:
        value = "the output LockTableName of the stack that made the lock service"
        raise typer.BadParameter(f"it is missing; its value is {value}")
    return table


Table = Annotated[
    str,
    typer.Option(
        envvar="LEASEHOLD_TABLE_NAME",
        callback=_given,
        show_default=False,
        help="Name or ARN of the lock table.",
    ),
]
"""Has an empty default, so that a missing one is told with where to find it."""
Profile = Annotated[str | None, typer.Option(help="Profile of the AWS configuration.")]
Region = Annotated[str | None, typer.Option(help="AWS region of the table.")]
EndpointUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Another address than that of AWS.")
]
Prefix = Annotated[str | None, typer.Option(help="Only lock names that begin so.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
