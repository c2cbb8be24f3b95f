"""Real processes of `leasehold run` against an embedded AWS."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leasehold import LockClient, create_table
from leasehold.protocol.items import read_state
from leasehold.protocol.model import LockState
from leasehold.protocol.schema import lock_key
from localaws import LocalAws
from tests.support.processes import end_session

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "cli-locks"
SECONDS = 60.0


@dataclass
class Fleet:
    """Starts commands under locks, and looks at the table."""

    dynamodb: DynamoDBClient
    environment: dict[str, str]
    home: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """`leasehold` with these arguments."""
        return self.popen([sys.executable, "-m", "leasehold", *arguments], **environment)

    def popen(self, words: list[str], **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            words,
            env={**os.environ, **self.environment, **environment},
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit status, output and errors."""
        return outcome(self.start(*arguments, **environment))

    def file(self, name: str) -> Path:
        """A file that a command makes in its directory, as soon as it is there."""
        path = self.home / name
        until(path.exists)
        return path

    def state(self, name: str) -> LockState:
        key = lock_key(name)
        answer = self.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)
        return read_state(answer.get("Item", {}))

    def waiters(self, name: str) -> int:
        answer = self.dynamodb.query(
            TableName=TABLE,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :waiter)",
            ExpressionAttributeValues={":pk": {"S": f"LOCK#{name}"}, ":waiter": {"S": "WAITER#"}},
            ConsistentRead=True,
        )
        return answer["Count"]


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=SECONDS)
    return process.returncode, output, errors


def until(condition: Callable[[], object]) -> None:
    """Returns once it is true; fails if it does not become so."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def lock_table(aws: LocalAws) -> str:
    create_table(aws.client("dynamodb"), TABLE)
    return TABLE


@pytest.fixture
def fleet(aws: LocalAws, lock_table: str, tmp_path: Path) -> Iterator[Fleet]:
    environment = {**aws.environment, "LEASEHOLD_TABLE_NAME": lock_table}
    fleet = Fleet(dynamodb=aws.client("dynamodb"), environment=environment, home=tmp_path)
    yield fleet
    for process in fleet.processes:
        end_session(process)


@pytest.fixture
def locks(aws: LocalAws, lock_table: str) -> Iterator[LockClient]:
    with LockClient(lock_table, client=aws.client("dynamodb"), owner_name="somebody") as client:
        yield client
