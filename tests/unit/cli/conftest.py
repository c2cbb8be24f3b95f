"""The command in this process over a table in memory; `fairlock run` in processes; consoles."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, cast

import botocore.loaders
import pytest
from rich.console import Console

from fairlock import LockClient, create_table
from fairlock.cli import main
from fairlock.cli.target import Target
from fairlock.client import lock_client
from fairlock.testing import ManualClock
from testbed.localaws import LocalAws
from tests.support import Operations, store_over
from tests.support.faulty_table import ENDPOINT, client_error
from tests.unit.cli.fleet import TABLE, Fleet, Forks, share_descriptions
from tests.unit.client.doubles import Table


@pytest.fixture(scope="session", autouse=True)
def shared_descriptions() -> Iterator[None]:
    """Each command makes a session of its own."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(botocore.loaders, "create_loader", botocore.loaders.create_loader)
        share_descriptions()
        yield


@pytest.fixture(autouse=True)
def no_preference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the variables by which rich takes a pipe for a terminal, or that for another kind."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def table(clock: ManualClock) -> Table:
    return Table(clock)


@pytest.fixture
def store(table: Table, clock: ManualClock) -> Operations:
    return store_over(table.memory, clock)


NAME = "Fairlock-LocksTable1A2B-NEW"
CALLER = "arn:aws:sts::123456789012:assumed-role/OnCall/olga"


@dataclass
class Account:
    """The services that a command asks, with what may be wrong there.

    Attributes:
        fails: what operations raise.
        parameters: what the Parameter Store has, by name.
        clock_is_ahead: seconds by which the service's clock is ahead of ours.
        fields: of the table's description.
        ttl: of its TTL.
        names: of the account's tables.
        asked: the operations, in order.
    """

    table: Table
    clock: ManualClock
    meta: ClassVar = SimpleNamespace(endpoint_url=ENDPOINT, region_name="us-east-1")
    fails: dict[str, Exception] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    clock_is_ahead: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)
    ttl: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: [NAME, "another-table"])
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        if name == "exceptions":
            return self.table.exceptions

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            self.asked.append(name)
            if name in self.fails:
                raise self.fails[name]
            answer = vars(Account).get(f"_{name}")
            if answer is not None:
                return answer(self, **arguments)
            return getattr(self.table, name)(**arguments)

        return call

    def close(self) -> None:
        """Nothing is open."""

    def _describe_table(self, TableName: str) -> dict[str, Any]:  # noqa: N803 - boto3's
        key = {"HASH": "pk", "RANGE": "sk"}
        now = self.clock.wall_ms() / 1000 + self.clock_is_ahead
        return {
            "Table": {
                "TableName": TableName,
                "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{TableName}",
                "KeySchema": [{"KeyType": k, "AttributeName": n} for k, n in key.items()],
                "AttributeDefinitions": [
                    {"AttributeName": n, "AttributeType": "S"} for n in key.values()
                ],
                **self.fields,
            },
            "ResponseMetadata": {
                "HTTPHeaders": {"date": formatdate(now, usegmt=True), "x-amzn-requestid": "r"}
            },
        }

    def _describe_time_to_live(self, **_table: str) -> dict[str, Any]:
        right = {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiry_time"}
        return {"TimeToLiveDescription": {**right, **self.ttl}}

    def _list_tables(self, **start: str) -> dict[str, Any]:
        first = self.names.index(start["ExclusiveStartTableName"]) + 1 if start else 0
        page = self.names[first : first + 1]
        more = first + 1 < len(self.names)
        return {"TableNames": page, **({"LastEvaluatedTableName": page[-1]} if more else {})}

    def _get_parameter(self, Name: str) -> dict[str, Any]:  # noqa: N803 - same
        return {"Parameter": {"Value": self.parameters[Name]}}

    def _get_caller_identity(self) -> dict[str, str]:
        return {"Arn": CALLER}

    def _describe_execution(self, **_execution: str) -> None:
        raise client_error("ExecutionDoesNotExist")


@pytest.fixture
def account(table: Table, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Account:
    """All sessions of boto3 that commands make are of this account."""
    account = Account(table, clock)
    session = SimpleNamespace(
        region_name="us-east-1", profile_name="default", client=lambda *_, **__: account
    )
    monkeypatch.setattr(Target, "_session", session)
    return account


class Answer(NamedTuple):
    """How a command has ended, and what it has printed."""

    status: object
    out: str
    err: str


Run = Callable[[str], Answer]


@pytest.fixture
def run_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the words of a line in this process, on a table named locks."""
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # No terminal, with `pytest -s` either.
    monkeypatch.delattr(os, "execvp")  # By which `pace` would end this process.

    def run(line: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fairlock", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Answer(ended.value.code, *capfd.readouterr())

    return run


@pytest.fixture
def fairlock(run_line: Run, account: Account, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a line over the table in memory, by its clock; `run` waits by that of this machine."""
    monkeypatch.setattr(lock_client, "BootClock", lambda: account.clock)
    return run_line


@pytest.fixture(scope="session")
def lock_table(aws: LocalAws) -> str:
    create_table(aws.client("dynamodb"), TABLE)
    return TABLE


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def fleet(aws: LocalAws, lock_table: str, forks: Forks, tmp_path: Path) -> Iterator[Fleet]:
    environment = {**aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}
    fleet = Fleet(
        dynamodb=aws.client("dynamodb"), environment=environment, home=tmp_path, forks=forks
    )
    yield fleet
    fleet.end()


@pytest.fixture
def locks(aws: LocalAws, lock_table: str) -> Iterator[LockClient]:
    with LockClient(lock_table, client=aws.client("dynamodb"), owner_name="operator") as client:
        yield client


PLACE = "lock table 'locks' in us-east-1"


def client_of(table: Table, clock: ManualClock, name: str = "olga") -> LockClient:
    """A client without heartbeats of its own."""
    settings: dict[str, Any] = {"client": cast("Any", table), "clock": clock, "owner_name": name}
    return LockClient("locks", **settings, heartbeat_every=float("inf"))


@pytest.fixture
def lister(table: Table, clock: ManualClock) -> LockClient:
    return client_of(table, clock)


def terminal(width: int) -> Console:
    """A terminal so wide, whose output `text_of` tells."""
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def pipe() -> Console:
    """No terminal, also where FORCE_COLOR is set, which rich takes for one."""
    return Console(file=io.StringIO(), width=80, force_terminal=False)


def text_of(console: Console) -> str:
    """What was printed there, without the codes that move the cursor."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def shown_lines(console: Console) -> list[str]:
    return [line.rstrip() for line in text_of(console).splitlines()]
