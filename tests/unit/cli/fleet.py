"""Real processes of `fairlock run`, and what the kernel and the table say about them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.protocol.schema import lock_key
from tests.unit.cli.forks import ForkedProcess, Forks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "cli-locks"
SECONDS = 60.0

Process = ForkedProcess | subprocess.Popen[str]


@dataclass
class Fleet:
    """Starts commands under locks, and reads the table."""

    dynamodb: DynamoDBClient
    environment: dict[str, str]
    home: Path
    forks: Forks
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Marks the environment of all descendants, so that `end` finds every one of them."""
        self.environment["FAIRLOCK_TEST_MARK"] = uuid4().hex

    def start(self, *arguments: str, **environment: str) -> ForkedProcess:
        """`fairlock` with these arguments."""
        surroundings = {**os.environ, **self.environment, **environment}
        process = self.forks.start([*arguments], surroundings, self.home)
        self.processes.append(process)
        return process

    def popen(self, words: list[str], **environment: str) -> subprocess.Popen[str]:
        """What needs a start of its own: by a shell, at a terminal, with closed streams."""
        process = subprocess.Popen(
            words,
            env={**os.environ, **self.environment, **environment},
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit status, output and errors."""
        return outcome(self.start(*arguments, **environment))

    def end(self) -> None:
        """Kills whatever still runs: a command has a group of its own, and may ignore signals."""
        for process in self.processes:
            process.kill()
        mark = self.environment["FAIRLOCK_TEST_MARK"].encode()
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # It has ended meanwhile, or is none of ours.
                if mark in environment.read_bytes():
                    os.kill(int(environment.parent.name), signal.SIGKILL)
        for process in self.processes:
            process.communicate(timeout=SECONDS)

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


def outcome(process: Process) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=SECONDS)
    return process.wait(SECONDS), output, errors


def until(condition: Callable[[], object]) -> None:
    """Returns once it is true; fails if it does not become so."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def state_of(pid: Path) -> str:
    """The state of the process whose number the file tells: T if it is stopped."""
    status = Path(f"/proc/{pid.read_text().strip()}/stat").read_text()
    return status.rpartition(")")[2].split()[0]


def runs(pid: Path) -> bool:
    """Whether the process whose number the file tells is there, and no zombie."""
    try:
        return state_of(pid) != "Z"
    except FileNotFoundError:
        return False


def until_renewed(fleet: Fleet, name: str) -> None:
    """Twice from now on, so that one heartbeat that is under way does not count."""
    revision = fleet.state(name).holders[0].revision
    until(lambda: fleet.state(name).holders[0].revision > revision + 1)
