"""`leasehold asl`: prints a state machine that guards a task, for those who do not use the CDK."""

from __future__ import annotations

import json
import os
import shutil
import sys
from enum import StrEnum
from types import ModuleType
from typing import Annotated, Any, Final

import boto3
import typer

from leasehold.cli import exit_codes
from leasehold.cli.options import EndpointUrl, Profile, Region
from leasehold.client.settings import DEFAULT_LEASE_SECONDS
from leasehold.wire.parameters import parameter_path

_FROM_INPUT: Final = "-"

commands = typer.Typer()


class Wait(StrEnum):
    """How a guard waits."""

    QUEUE = "queue"
    POLLING = "polling"


@commands.command("asl")
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
        str, typer.Option(help="A literal, JSONata '{% … %}', or a JSONPath '$.…' of the input.")
    ],
    limit: Annotated[int, typer.Option(help="How many may hold the lock at a time.")] = 1,
    lease: Annotated[
        int, typer.Option(min=1, help="Seconds for which the lock outlives a dead execution.")
    ] = int(DEFAULT_LEASE_SECONDS),
    max_wait: Annotated[
        int | None,
        typer.Option(min=0, help="Longest seconds to wait, else 1800; 0 skips."),
    ] = None,
    wait: Annotated[
        Wait | None, typer.Option(help="How to wait; else in the queue, polling in Express.")
    ] = None,
    keep_alive: Annotated[
        int | None,
        typer.Option(min=1, help="Seconds between heartbeats; else none."),
    ] = None,
    express: Annotated[bool, typer.Option("--express", help="For an Express workflow.")] = False,
    name: Annotated[str, typer.Option(help="Prefix of the guard's states.")] = "Guard",
    service_stack: Annotated[
        str | None,
        typer.Option(
            help="Put in the ARNs of this stack's service, such as Leasehold; "
            "else placeholders, ${AcquireFunctionArn}."
        ),
    ] = None,
    partition: Annotated[str, typer.Option(help="Of AWS: aws, aws-cn, aws-us-gov.")] = "aws",
    profile: Profile = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Prints a state machine that runs a task under a lock, as the CDK's guard does.

    The lock is released after the task and after any error of it. The states are those of
    LockGuard, so the extra leasehold[cdk] and Node.js are needed to print them.
    """
    work = _read(task)
    standalone = _standalone()
    functions = {output: f"${{{output}}}" for output in standalone.FUNCTIONS}
    if service_stack is not None:
        session = boto3.Session(profile_name=profile, region_name=region)
        parameters = session.client("ssm", endpoint_url=endpoint_url)
        functions = {output: _deployed(parameters, service_stack, output) for output in functions}
    machine = standalone.guarded_machine(
        work,
        functions=functions,
        lock_name=lock_name,
        limit=limit,
        lease_seconds=lease,
        max_wait_seconds=max_wait,
        waiting=None if wait is None else standalone.WAYS_TO_WAIT[wait],
        keep_alive_seconds=keep_alive,
        express=express,
        name=name,
        partition=partition,
    )
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
        from leasehold.cdk.guard import standalone  # noqa: PLC0415 - an optional part
    except ModuleNotFoundError as missing:
        exit_codes.end(exit_codes.USAGE, f"asl: {missing}")
    return standalone


def _deployed(parameters: Any, stack: str, output: str) -> str:  # noqa: ANN401 - a boto3 client
    """The ARN of a function, which the service's stack shares in the Parameter Store."""
    name = parameter_path(stack, output)
    try:
        return str(parameters.get_parameter(Name=name)["Parameter"]["Value"])
    except parameters.exceptions.ParameterNotFound:
        message = f"--service-stack: no stack of this name shares a lock service here ({name})"
        exit_codes.end(exit_codes.CONFIGURATION, message)
