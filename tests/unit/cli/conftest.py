"""Fixtures: `leasehold run` against an embedded AWS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import LockClient, create_table
from localaws import LocalAws
from tests.unit.cli.fleet import TABLE, Fleet


@pytest.fixture(scope="session")
def lock_table(aws: LocalAws) -> str:
    create_table(aws.client("dynamodb"), TABLE)
    return TABLE


@pytest.fixture
def fleet(aws: LocalAws, lock_table: str, tmp_path: Path) -> Iterator[Fleet]:
    environment = {**aws.environment, "LEASEHOLD_TABLE_NAME": lock_table}
    fleet = Fleet(dynamodb=aws.client("dynamodb"), environment=environment, home=tmp_path)
    yield fleet
    fleet.end()


@pytest.fixture
def locks(aws: LocalAws, lock_table: str) -> Iterator[LockClient]:
    with LockClient(lock_table, client=aws.client("dynamodb"), owner_name="somebody") as client:
        yield client
