"""The options of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import boto3
import typer
from botocore.exceptions import BotoCoreError

from leasehold.cli import exit_codes
from leasehold.cli.exit_codes import Ended, end, statuses
from leasehold.cli.run import Job, run
from leasehold.cli.show import show
from leasehold.client.settings import DEFAULT_LEASE_SECONDS
from leasehold.dynamodb.client_config import CLIENT_CONFIG
from leasehold.dynamodb.create_table import create_table
from leasehold.dynamodb.failures import misconfigured

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_WRONG_USAGE: Final = 2
"""The exit status of the parser of options."""

app = typer.Typer(
    name="leasehold",
    help="Locks on a DynamoDB table.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)

LockName = Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.")]
Table = Annotated[
    str, typer.Option(envvar="LEASEHOLD_TABLE_NAME", help="Name or ARN of the lock table.")
]


def run_app() -> None:
    """Runs the command line; wrong usage gets a status of its own, as a command may end with 2."""
    try:
        with statuses():
            app()
    except SystemExit as ended:
        wrong_usage = ended.code == _WRONG_USAGE and not isinstance(ended, Ended)
        raise SystemExit(exit_codes.USAGE if wrong_usage else ended.code) from None


@app.command("run")
def run_command(
    name: LockName,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, with its arguments.")
    ],
    *,
    table: Table,
    lease: Annotated[
        float, typer.Option(help="Seconds until a lock that is not renewed is free.")
    ] = DEFAULT_LEASE_SECONDS,
    wait: Annotated[
        float | None,
        typer.Option(
            help="Longest seconds to wait for the lock; else twice the lease, at least 120. "
            "0 does not wait."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many may hold the lock at a time.")] = 1,
    owner_name: Annotated[
        str | None, typer.Option(help="Label that others see; else host, process, program.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="JSON object that others can read while the lock is held.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds from TERM to KILL if the lock is lost.")
    ] = 10.0,
    if_taken: Annotated[
        int, typer.Option(min=0, max=255, help="Exit status if the lock is taken.")
    ] = exit_codes.TAKEN,
) -> None:
    """Holds a lock while a command runs, and passes on its exit status.

    The command finds LEASEHOLD_LOCK_NAME and LEASEHOLD_FENCING_TOKEN in its environment. If the
    lock is lost, its whole process group is sent TERM, and KILL after the grace.
    """
    job = Job(
        table=table,
        name=name,
        command=command,
        lease=lease,
        wait=wait,
        limit=limit,
        owner_name=owner_name,
        data=_object(data),
        grace=grace,
        if_taken=if_taken,
    )
    raise Ended(run(job))


@app.command("show")
def show_command(name: LockName, *, table: Table) -> None:
    """Shows who holds a lock, and who waits for it. Status 66 if the table knows no such lock."""
    raise Ended(show(_client(table, config=CLIENT_CONFIG), table, name))


@app.command("create-table")
def create_table_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")],
    *,
    recovery: Annotated[bool, typer.Option(help="With point-in-time recovery.")] = False,
    protection: Annotated[bool, typer.Option(help="With deletion protection.")] = False,
) -> None:
    """Creates a lock table, unless it is there."""
    dynamodb = _client(name)
    create_table(dynamodb, name, point_in_time_recovery=recovery, deletion_protection=protection)


def _client(table: str, **settings: Any) -> DynamoDBClient:  # noqa: ANN401 - as boto3 takes them
    try:
        return boto3.client("dynamodb", **settings)
    except (BotoCoreError, ValueError) as error:
        raise misconfigured(error, table_name=table, region=None) from error


def _object(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        end(exit_codes.USAGE, f"--data: must be a JSON object: {error}")
    if not isinstance(value, dict):
        end(exit_codes.USAGE, "--data: must be a JSON object")
    return value
