"""`fairlock asl`: prints a state machine that guards a task, for those who do not use the CDK."""

from __future__ import annotations

import json
import os
import shutil
import sys
from enum import StrEnum
from types import ModuleType
from typing import Annotated, Any, Final

import typer

from fairlock.cli import exit_codes
from fairlock.cli.exit_codes import Command
from fairlock.cli.target import (
    EndpointUrl,
    Profile,
    Region,
    name_of_stack,
    time_option,
    version_or_jsonata,
)
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS, DEFAULT_MAX_WAIT_SECONDS

_FROM_INPUT: Final = "-"

commands = typer.Typer(rich_markup_mode=None)


class WayToWait(StrEnum):
    """How a guard waits."""

    QUEUE = "queue"
    POLL = "poll"


@commands.command("asl", cls=Command)
def asl_command(
    *,
    task: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="JSON of a state that leads nowhere, or of a whole machine; - reads the input.",
        ),
    ],
    lock_name: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="A literal, JSONata '{% … %}', or a JSONPath '$.…' of the input. "
            "Several of these options are several locks, all or none.",
        ),
    ],
    limit: Annotated[int, typer.Option(help="How many may hold the lock at a time.")] = 1,
    lease: Annotated[
        int, time_option("How long the lock outlives a dead execution.", least=1, whole=True)
    ] = DEFAULT_LEASE_SECONDS,
    max_wait: Annotated[
        int | None,
        time_option(
            f"Longest wait, else {DEFAULT_MAX_WAIT_SECONDS} s, 60 s in Express; 0 skips.",
            whole=True,
        ),
    ] = None,
    waiting: Annotated[
        WayToWait | None, typer.Option(help="How to wait. Default: queue, in Express poll.")
    ] = None,
    keep_alive: Annotated[
        int | None,
        time_option("Time between heartbeats. Default: none are sent.", least=1, whole=True),
    ] = None,
    express: Annotated[bool, typer.Option("--express", help="For an Express workflow.")] = False,
    name: Annotated[str, typer.Option(help="Prefix of the guard's states.")] = "Guard",
    stack: Annotated[
        str | None,
        typer.Option(
            help="Stack whose functions are called, such as Fairlock. "
            "Default: placeholders, such as ${AcquireFunctionArn}."
        ),
    ] = None,
    partition: Annotated[str, typer.Option(help="Of AWS: aws, aws-cn, aws-us-gov.")] = "aws",
    profile: Profile = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Hold the lock beside other readers.")
    ] = False,
    max_hold: Annotated[
        int | None,
        time_option(
            "Longest time to hold the lock: the task's TimeoutSeconds, with its retries, must "
            "not be longer.",
            least=1,
            whole=True,
        ),
    ] = None,
    only_newest: Annotated[  # noqa: ANN401 - a number, True or JSONata, of which typer makes a parser
        Any,
        typer.Option(
            parser=version_or_jsonata,
            metavar="VERSION",
            help="Give up once a higher version was granted: a number, JSONata that gives one, "
            "or `now`.",
        ),
    ] = None,
) -> None:
    """Prints a state machine that runs a task under a lock.

    The lock is released after the task and after any error of it. The states are those of
    LockGuard, so the extra fairlock[cdk] and Node.js are needed to print them.
    """
    work = _read(task)
    standalone = _standalone()
    functions = {output: f"${{{output}}}" for output in standalone.FUNCTIONS}
    if stack is not None:
        place = {"profile": profile, "region": region, "endpoint_url": endpoint_url}
        functions = {output: name_of_stack(stack, output, **place) for output in functions}
    machine = standalone.guarded_machine(
        work,
        functions=functions,
        lock_name=lock_name[0] if len(lock_name) == 1 else lock_name,
        limit=limit,
        lease_seconds=lease,
        max_wait_seconds=max_wait,
        waiting=None if waiting is None else standalone.WAYS_TO_WAIT[waiting],
        keep_alive_seconds=keep_alive,
        express=express,
        name=name,
        partition=partition,
        shared=shared,
        max_hold_seconds=max_hold,
        only_newest=False if only_newest is None else only_newest,
    )
    with exit_codes.output():
        typer.echo(json.dumps(machine, indent=2, ensure_ascii=False))


def _read(file: str) -> object:
    try:
        if file == _FROM_INPUT:
            return json.load(sys.stdin)
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123 - of a name that a user typed
            return json.load(opened)
    except (OSError, ValueError, RecursionError) as error:
        exit_codes.end(exit_codes.USAGE, f"--task: must be a file with JSON: {error}")


def _standalone() -> ModuleType:
    """What makes the machine. It needs the CDK, which needs Node."""
    if shutil.which(os.environ.get("JSII_NODE", "node")) is None:
        exit_codes.end(exit_codes.USAGE, "asl needs Node.js: there is no node on the path")
    try:
        from fairlock.cdk.guard import standalone  # noqa: PLC0415 - an optional part
    except ModuleNotFoundError as missing:
        exit_codes.end(exit_codes.USAGE, f"asl: {missing}")
    return standalone
