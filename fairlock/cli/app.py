"""The command line: its commands, and how they end."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.aws.retry import misconfigured, raise_if_unknown
from fairlock.cli import exit_codes
from fairlock.cli.asl import commands as asl_commands
from fairlock.cli.child_process import become
from fairlock.cli.exit_codes import Command, Ended, Group, end, log_lines, statuses
from fairlock.cli.operator_commands import commands
from fairlock.cli.run import UNTOLD_WAIT_SECONDS, Job, run, told_of_a_wait
from fairlock.cli.target import (
    AsJson,
    EndpointUrl,
    LockName,
    Profile,
    Region,
    Target,
    about_a_table,
    rate_of,
    time_option,
    version_of,
)
from fairlock.client.create_table import create_table
from fairlock.errors import InvalidRequest, SlotTooLate
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS

_WRONG_USAGE: Final = 2
"""The exit status of the parser of options."""

_COMMAND_LAST: Final = (
    "must follow --, with nothing but NAME and options before it: fairlock {} NAME -- COMMAND"
)


class BeforeCommand(Command):
    """A command that starts another one, whose words are never its own options or name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's, not public
        """Refuses words that do not tell where the command begins."""
        own = args[: args.index("--")] if "--" in args else args
        asks = {"--help", "-h", "--lock"} & {each.partition("=")[0] for each in own}
        if args and not asks and not ctx.resilient_parsing:
            given = self.make_parser(ctx).parse_args(args=list(own))[0] if "--" in args else {}
            if not isinstance(given.get("name"), str) or given.get("command"):
                rule = _COMMAND_LAST.format(self.name)
                raise InvalidRequest(field="command", rule=rule, value=" ".join(args))
        return super().parse_args(ctx, args)


_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
_CommandLine = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, with its arguments.")
]


def _status_option(text: str) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(min=0, max=255, help=f"Exit status if {text}.")


app = typer.Typer(
    name="fairlock",
    help="Locks on a DynamoDB table.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # else a word in brackets, as [cdk], would be markup
)
app.add_typer(commands)
app.add_typer(asl_commands)


def run_app() -> None:
    """Runs the command line; wrong usage gets a status of its own, as a command may end with 2."""
    log_lines()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # One lock whose name the locale cannot write must not hide all others from `ls`.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with statuses():
            app()
    except SystemExit as ended:
        wrong_usage = ended.code == _WRONG_USAGE and not isinstance(ended, Ended)
        raise SystemExit(exit_codes.USAGE if wrong_usage else ended.code) from None
    finally:
        exit_codes.give_up_errors_that_cannot_be_written()


def _tell_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        typer.echo(f"fairlock {version('fairlock')}")
        raise Ended(0)


def _refuse_lock(names: list[str] | None) -> None:
    """Refuses what those try who want several locks, or expect the name in an option."""
    if names:
        rule = (
            "must be left out: `fairlock run NAME -- COMMAND` holds one lock; for several, nest it "
            "in the order of `LC_ALL=C sort`: fairlock run A -- fairlock run B -- COMMAND"
        )
        raise InvalidRequest(field="lock", rule=rule, value=" ".join(names))


@app.callback(invoke_without_command=True, cls=Group)
def fairlock(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None:
    """Locks on a DynamoDB table: hold one while a program runs; see and free them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise Ended(0)


@app.command("run", cls=BeforeCommand)
@about_a_table(so="; the command was not started")
def run_command(
    target: Target,
    name: LockName,
    command: _CommandLine,
    *,
    lease: Annotated[
        float, time_option("How long the lock stays taken if this machine vanishes.")
    ] = DEFAULT_LEASE_SECONDS,
    max_wait: Annotated[
        float | None,
        time_option(
            "Longest wait for the lock. Default: twice the lease, at least 120 s. 0 does not wait."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many may hold the lock at a time.")] = 1,
    owner_name: Annotated[
        str | None, typer.Option(help="Label that others see. Default: host, process and program.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="JSON object that others can read while the lock is held.")
    ] = None,
    max_hold: Annotated[
        float | None,
        time_option(
            "Longest time to hold the lock. The command gets TERM before, by --grace and 1 s."
        ),
    ] = None,
    only_newest: Annotated[  # noqa: ANN401 - a number or True, of which typer makes a parser
        Any,
        typer.Option(
            parser=version_of,
            metavar="VERSION",
            help="Give up once a higher version was granted. `now` orders callers by time.",
        ),
    ] = None,
    grace: Annotated[float, time_option("Time from TERM to KILL if the command is ended.")] = 10,
    taken_exit_code: Annotated[int, _status_option("the lock is taken")] = exit_codes.TAKEN,
    superseded_exit_code: Annotated[
        int, _status_option("a newer version was granted")
    ] = exit_codes.SUPERSEDED,
    quiet: _Quiet = False,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Hold the lock beside other readers: up to 20, or --limit."),
    ] = False,
    _lock: Annotated[
        list[str] | None, typer.Option("--lock", callback=_refuse_lock, is_eager=True, hidden=True)
    ] = None,
) -> int:
    """Holds a lock while a command runs.

    It passes on the command's exit status. The command finds FAIRLOCK_LOCK_NAME and
    FAIRLOCK_FENCING_TOKEN in its environment. If the lock is lost, or --max-hold is nearly over,
    its whole process group is sent TERM, and KILL after the grace. A time is a number of seconds,
    or has a unit: 30s, 10m, 2h, 1d.
    """
    job = Job(
        target=target,
        name=name,
        command=command,
        lease=lease,
        max_wait=max_wait,
        limit=limit,
        owner_name=owner_name,
        data=_object(data),
        grace=grace,
        max_hold=max_hold,
        only_newest=False if only_newest is None else only_newest,
        taken_exit_code=taken_exit_code,
        superseded_exit_code=superseded_exit_code,
        quiet=quiet,
        shared=shared,
    )
    return run(job)


@app.command("pace", cls=BeforeCommand)
@about_a_table(so="; the command was not started")
def pace_command(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pace's name.")],
    command: _CommandLine,
    *,
    rate: Annotated[  # noqa: ANN401 - a pair, of which typer would make two values
        Any,
        typer.Option(
            parser=rate_of,
            metavar="COUNT/TIME",
            help="How many callers may begin in a period, such as 10/1m.",
        ),
    ],
    max_wait: Annotated[float, time_option("Longest wait for the slot. 0 does not wait.")] = 120,
    burst: Annotated[int, typer.Option(help="How many may begin at once after a pause.")] = 1,
    late_exit_code: Annotated[
        int, _status_option("the slot is later than --max-wait")
    ] = exit_codes.TAKEN,
    quiet: _Quiet = False,
) -> int:
    """Waits for the next slot of a pace, then becomes the command.

    Nothing is held while the command runs. A time is a number of seconds, or has a unit: 30s, 10m,
    2h, 1d. At most once an hour in the whole fleet: --rate 1/1h --max-wait 0.
    """
    told = told_of_a_wait(
        UNTOLD_WAIT_SECONDS,
        f"slot of pace {name!r} begins",
        lambda: f"waiting for a slot of pace {name!r}, for up to {max_wait:g} s",
        monotonic=time.monotonic,
    )
    with target.locks() as locks:
        try:
            with nullcontext() if quiet else told:
                locks.pace(name, rate=rate, max_wait=max_wait, burst=burst)
        except SlotTooLate as error:
            exit_codes.say(f"{error}; the command was not started")
            return late_exit_code
    return become(command)


@app.command("create-table", cls=Command)
def create_table_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")],
    *,
    recovery: Annotated[bool, typer.Option(help="With point-in-time recovery.")] = False,
    protection: Annotated[bool, typer.Option(help="With deletion protection.")] = False,
    as_json: AsJson = False,
    profile: Profile = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Creates a lock table, unless it is there."""
    target = Target(table=name, profile=profile, region=region, endpoint_url=endpoint_url)
    dynamodb = target.client("dynamodb", config=None)
    with target.named_in_errors():
        try:
            create_table(
                dynamodb, name, point_in_time_recovery=recovery, deletion_protection=protection
            )
        except (BotoCoreError, ClientError) as error:
            raise_if_unknown(error)
            raise misconfigured(error, table_name=name, region=target.region_name()) from error
    if as_json:
        with exit_codes.output():
            typer.echo(json.dumps({"table": name, "region": target.region_name()}))


_JSON_OBJECT: Final = 'must be a JSON object, such as {"job": "7"}'


def _object(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        end(exit_codes.USAGE, f"--data: {_JSON_OBJECT}: {error}")
    if not isinstance(value, dict):
        end(exit_codes.USAGE, f"--data: {_JSON_OBJECT}")
    return value
