"""Fixtures: `fairlock run` against an embedded AWS; a table in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import botocore.loaders
import pytest

from fairlock import LockClient, create_table
from testbed.localaws import LocalAws
from tests.support import FakeClock, Operations, store_over
from tests.unit.cli.fleet import TABLE, Fleet, Forks, share_descriptions
from tests.unit.client.support.doubles import Table


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
