"""What a command is about and who runs it, by the options that several commands have."""

from __future__ import annotations

import getpass
import inspect
import math
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Annotated, Any, Final

import boto3
import typer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.aws.retry import CLIENT_CONFIG, QUICKLY, misconfigured, was_not_written
from fairlock.cli import exit_codes
from fairlock.client.connection import told_by_stack
from fairlock.client.lock_client import LockClient
from fairlock.clock import is_aws
from fairlock.errors import (
    FairlockError,
    LockItemMalformed,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.names import TABLE_NAME_PARAMETER, TABLE_NAME_VARIABLE, stack_parameter
from fairlock.wire import rules


@dataclass(frozen=True, kw_only=True)
class Target:
    """A lock table by its name or ARN; None is the default of the profile or the environment."""

    table: str
    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def client(self, service: str, *, config: Config | None = CLIENT_CONFIG) -> Any:  # noqa: ANN401 - one client or the other
        """A client of boto3's for this service."""
        try:
            session: Any = self._session
            return session.client(service, endpoint_url=self.endpoint_url, config=config)
        except (BotoCoreError, ValueError) as error:
            raise misconfigured(error, table_name=self.table, region=self.region) from error

    def locks(self, **settings: Any) -> LockClient:  # noqa: ANN401 - as LockClient takes them
        """A client of the table."""
        if self.endpoint_url is not None:
            clients = {"client": self.client("dynamodb")}
            clients["stepfunctions"] = self.client("stepfunctions")
            return LockClient(self.table, **clients, **settings)
        try:
            return LockClient(self.table, session=self._session, **settings)
        except BotoCoreError as error:
            raise misconfigured(error, table_name=self.table, region=self.region) from error

    def place(self) -> str:
        """The table and its region, for people, and the address if that is not AWS's own."""
        url = self.endpoint_url or ""
        with suppress(BotoCoreError, LockStoreMisconfigured):
            url = url or self.client("dynamodb").meta.endpoint_url
        is_told = url and (self.endpoint_url or not is_aws(url))
        where = f" at {url}" if is_told else ""
        return f"lock table {self.table!r} in {self.region_name() or 'no known region'}{where}"

    def identity(self) -> str:
        """Tells tables apart without a request; a name of two accounts by the profile."""
        profile = ""
        with suppress(BotoCoreError):
            profile = self._session.profile_name
        variables = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL")
        url = self.endpoint_url or next(filter(None, map(os.environ.get, variables)), "")
        name = self.table.rpartition("/")[2]  # Of an ARN, too.
        return " ".join((name, self.region_name() or "", profile, url))

    def region_name(self) -> str | None:
        """As the option, the profile or the environment says; None if no one says it."""
        with suppress(BotoCoreError):
            return self._session.region_name
        return self.region

    @contextmanager
    def named_in_errors(self, *, so: str = "") -> Iterator[None]:
        """Within, a table that does not answer, or has a spoilt item, is named, with what to do."""
        try:
            yield
        except LockStoreUnavailable as error:
            exit_codes.end(exit_codes.UNAVAILABLE, f"{self.place()}: {error}; {_advice(error)}{so}")
        except LockItemMalformed as error:
            exit_codes.end(exit_codes.CONFIGURATION, f"{self.place()}: {error}{so}")

    @cached_property
    def _session(self) -> boto3.Session:
        """One for all clients: it takes long to make."""
        return boto3.Session(profile_name=self.profile, region_name=self.region)


def target_of(
    *,
    table: str | None,
    stack: str | None,
    profile: str | None,
    region: str | None,
    endpoint_url: str | None,
) -> Target:
    """The table that the options name: by `--table`, or by `--stack`, else by the environment."""
    place = {"profile": profile, "region": region, "endpoint_url": endpoint_url}
    if stack is not None:
        if table is not None:
            exit_codes.end(exit_codes.USAGE, "give either --table, or --stack")
        return Target(table=name_of_stack(stack, TABLE_NAME_PARAMETER, **place), **place)
    # An empty --table is a variable of a script that was not set: no other table replaces it.
    name = os.environ.get(TABLE_NAME_VARIABLE) if table is None else table
    if not name:
        where = f"its value is the output {TABLE_NAME_PARAMETER} of the stack with the lock service"
        message = f"no lock table is named: give --table ({where}) or --stack, or set"
        exit_codes.end(exit_codes.USAGE, f"{message} {TABLE_NAME_VARIABLE}")
    return Target(table=name, **place)


def name_of_stack(stack: str, name: str, **place: str | None) -> str:
    """What the stack's lock service has written into the Parameter Store."""
    rules.require("stack", rules.STACK_NAME, stack, show_text=True)
    target = Target(table=stack_parameter(stack, name), **place)
    return told_by_stack(stack, name, lambda: target.client("ssm"))


def _advice(error: LockStoreUnavailable) -> str:
    """What a person does about it, by what DynamoDB said, or the network."""
    if not isinstance(error.__cause__, ClientError):
        return "check the network, the region and the endpoint, then repeat the command"
    if was_not_written(error.__cause__):
        return "DynamoDB throttles: repeat the command later, and see the table's throttles"
    return "DynamoDB is in trouble: see AWS's health page, and repeat the command later"


LockName = Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.")]
Table = Annotated[
    str | None,
    typer.Option(
        show_default=False, help="Name or ARN of the lock table. Default: FAIRLOCK_TABLE_NAME."
    ),
]
Stack = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        help="Stack that shares its lock service, such as Fairlock. Replaces --table.",
    ),
]
Profile = Annotated[str | None, typer.Option(help="Profile of the AWS configuration.")]
Region = Annotated[str | None, typer.Option(help="AWS region of the table.")]
EndpointUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Address of another DynamoDB than AWS's.")
]
Prefix = Annotated[str | None, typer.Option(help="Only locks whose names begin with this.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_WHICH_TABLE: Final = {"table": Table, "stack": Stack}
_WHERE: Final = {"profile": Profile, "region": Region, "endpoint_url": EndpointUrl}


def about_a_table(so: str = "") -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Gives a command the options that name its table; its result is the exit status."""

    def decorate(command: Callable[..., int]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - what the command takes
            target = target_of(**{name: given.pop(name) for name in (*_WHICH_TABLE, *_WHERE)})
            # One that starts a command has no output of its own.
            with target.named_in_errors(so=so), nullcontext() if so else exit_codes.output():
                status = command(target, **given)
            raise exit_codes.Ended(status)

        # What the command line shows is read from the signature: arguments first, then options.
        _target, *own = inspect.signature(command, eval_str=True).parameters.values()
        arguments = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        options = own[len(arguments) :]
        parameters = [*arguments, *_options(_WHICH_TABLE), *options, *_options(_WHERE)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # see PEP 362
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _options(kinds: Mapping[str, object]) -> list[inspect.Parameter]:
    by_name = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, by_name, default=None, annotation=kind)
        for name, kind in kinds.items()
    ]


_TIME: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_EXAMPLES: Final = "seconds such as 90, or a number with a unit such as 30s, 10m, 2h or 1d"


def seconds(*, least: float = 0, whole: bool = False) -> Callable[[object], float]:
    """A parser of times: a plain number is seconds; s, m, h and d are units."""

    def parse(value: object) -> float:
        given = _TIME.fullmatch(str(value))
        found = None if given is None else float(given[1]) * _SECONDS[given[2]]
        if found is None or not least <= found < math.inf:
            bound = f" of at least {least:g} s" if least else ""
            raise typer.BadParameter(f"{str(value)!r} must be a time{bound}: {_EXAMPLES}")
        if whole and found != int(found):
            raise typer.BadParameter(f"{str(value)!r} must be a whole number of seconds")
        return int(found) if whole else found

    return parse


def time_option(text: str, *, least: float = 0, whole: bool = False) -> Any:  # noqa: ANN401 - as typer has it
    """An option whose value is a time; `whole` for one that AWS takes in whole seconds."""
    return typer.Option(parser=seconds(least=least, whole=whole), metavar="TIME", help=text)


def rate_of(value: object) -> tuple[int, float]:
    """A parser of rates: how many, a slash, and in how much time: 10/1m."""
    count, slash, time = str(value).partition("/")
    if not slash or not count.isdecimal():
        rule = "must be how many in how much time, such as 10/1m or 1/1h"
        raise typer.BadParameter(f"{str(value)!r} {rule}")
    return int(count), seconds()(time)


def version_of(value: object) -> int | bool:
    """A parser of versions: a whole number, or `now`."""
    if value is True or str(value) == "now":
        return True
    if not str(value).isdecimal():
        raise typer.BadParameter(f"{str(value)!r} must be a whole number of at least 0, or `now`")
    return int(str(value))


def version_or_jsonata(value: object) -> int | bool | str:
    """The same, or JSONata that gives a number when the workflow runs."""
    text = str(value)
    return text if text.startswith("{%") and text.endswith("%}") else version_of(value)


def principal(target: Target) -> str | None:
    """The ARN of the principal whom AWS knows, account included; None if STS does not answer."""
    try:
        return str(target.client("sts", config=QUICKLY).get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError, FairlockError, KeyError):
        return None


def caller(target: Target) -> str:
    """The principal and the user of this machine; without an answer of AWS the user alone."""
    user, arn = _user_of_this_machine(), principal(target)
    if arn is None:
        return user
    return f"{arn} ({user})".encode()[: rules.LONGEST_REQUESTED_BY_BYTES].decode(errors="ignore")


def _user_of_this_machine() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # No such user, as in some containers.
        user = "unknown user"
    return f"{user}@{socket.gethostname()}"
