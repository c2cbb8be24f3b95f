"""The options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

LockName = Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.")]
Table = Annotated[
    str, typer.Option(envvar="LEASEHOLD_TABLE_NAME", help="Name or ARN of the lock table.")
]
Profile = Annotated[str | None, typer.Option(help="Profile of the AWS configuration.")]
Region = Annotated[str | None, typer.Option(help="AWS region of the table.")]
EndpointUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Another address than that of AWS.")
]
Prefix = Annotated[str | None, typer.Option(help="Only lock names that begin so.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
