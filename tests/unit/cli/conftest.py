"""`fairlock run` against an embedded AWS; locks in memory, and consoles whose width is known."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import botocore.loaders
import pytest
from rich.console import Console

from fairlock import LockClient, create_table
from testbed.localaws import LocalAws
from tests.support import FakeClock, Operations, store_over
from tests.unit.cli.fleet import TABLE, Fleet, Forks, share_descriptions
from tests.unit.client.doubles import Table


@pytest.fixture(scope="session", autouse=True)
def shared_descriptions() -> Iterator[None]:
    """Each command makes a session of its own."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(botocore.loaders, "create_loader", botocore.loaders.create_loader)
        share_descriptions()
        yield


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def store(table: Table, clock: FakeClock) -> Operations:
    return store_over(table.memory, clock)


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


def client_of(table: Table, clock: FakeClock, name: str = "olga") -> LockClient:
    """A client without heartbeats of its own."""
    settings: dict[str, Any] = {"client": cast("Any", table), "clock": clock, "owner_name": name}
    return LockClient("locks", **settings, heartbeat_every=float("inf"))


def terminal(width: int) -> Console:
    """A terminal so wide, whose output `text_of` tells."""
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def pipe() -> Console:
    """No terminal."""
    return Console(file=io.StringIO(), width=80)


def text_of(console: Console) -> str:
    """What was printed there, without the codes that move the cursor."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def shown_lines(console: Console) -> list[str]:
    return [line.rstrip() for line in text_of(console).splitlines()]
