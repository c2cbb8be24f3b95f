"""Real processes of `fairlock`, and what the kernel and the table say about them.

A start of the interpreter with all imports costs 0.8 s of a processor, a fork of one that has them
10 ms. What is forked has its own number, streams, signals, threads and exit.
"""

from __future__ import annotations

import functools
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

import boto3
import botocore.loaders

from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.protocol.schema import lock_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "cli-locks"
SECONDS = 60.0

Process: TypeAlias = "ForkedProcess | subprocess.Popen[str]"
Outcome = tuple[int, str, str]
Streams = Mapping[int, str | None]
"""By number: a file that a stream is, or None if it is closed."""
FULL: Final[Streams] = {2: "/dev/full"}
"""Streams of a command whose errors cannot be written."""


def closed(*numbers: int) -> Streams:
    """Streams of a command, of which these are closed."""
    return dict.fromkeys(numbers)


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

    def start(
        self, line: str, *words: str, streams: Streams = MappingProxyType({}), **environment: str
    ) -> ForkedProcess:
        """`fairlock` with the words of the line and these."""
        surroundings = {**os.environ, **self.environment, **environment}
        every = [*shlex.split(line), *words]
        process = self.forks.start(every, surroundings, self.home, streams)
        self.processes.append(process)
        return process

    def started(self, line: str, *words: str, **given: Any) -> ForkedProcess:  # noqa: ANN401 - as for `start`
        """The same, once its command has made the file `ready`."""
        process = self.start(line, *words, **given)
        self.file("ready")
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

    def run(self, line: str, *words: str, **given: Any) -> Outcome:  # noqa: ANN401 - same
        """Starts it, and waits for its end."""
        return outcome(self.start(line, *words, **given))

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

    def runs(self, name: str) -> bool:
        """Whether the process whose number this file tells is there, and no zombie."""
        try:
            return state_of(self.home / name) != "Z"
        except FileNotFoundError:
            return False

    def lose(self, name: str) -> None:
        """The holder vanishes from the table; the next heartbeat finds that out."""
        self.dynamodb.delete_item(TableName=TABLE, Key=lock_key(name))

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


def outcome(process: Process, given: str = "") -> Outcome:
    """Exit status, output and errors, once it has read what it is given."""
    output, errors = process.communicate(given, timeout=SECONDS)
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


def until_renewed(fleet: Fleet, name: str) -> None:
    """Twice from now on, so that one heartbeat that is under way does not count."""
    revision = fleet.state(name).holders[0].revision
    until(lambda: fleet.state(name).holders[0].revision > revision + 1)


# `fairlock` as a process that is forked from one that has imported it.


class ForkedProcess:
    """What tests use of `subprocess.Popen`, of a process that another one has forked.

    Attributes:
        output: the file with what it has printed.
        errors: the file with what it has told.
    """

    def __init__(self, server: socket.socket, output: Path, errors: Path) -> None:
        self.output = output
        self.errors = errors
        self.returncode: int | None = None
        self._server = server
        self._told = server.makefile()
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            # Not by the socket's timeout: what is read after that is an error.
            assert select.select([self._server], [], [], timeout)[0], "it has not ended"
            with self._server, self._told:
                self.returncode = int(self._told.readline())
        return self.returncode

    def communicate(self, given: str = "", timeout: float | None = None) -> tuple[str, str]:
        assert not given, "its input is empty"
        self.wait(timeout)
        return self.output.read_text(), self.errors.read_text()


class Forks:
    """Starts `fairlock` for as long as it is open."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=Path(__file__).parents[3],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Pipes: no terminal, so that all that it forks buffers what it prints.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "AWS_DEFAULT_REGION": "us-east-1"},
            )

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], home: Path, streams: Streams
    ) -> ForkedProcess:
        output, errors = home / uuid4().hex, home / uuid4().hex
        for file in (output, errors):
            file.touch()
        own = {0: "/dev/null", 1: str(output), 2: str(errors)}
        request = {
            "words": words,
            "environment": environment,
            "home": str(home),
            "streams": [*{**own, **streams}.items()],
        }
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._ours, [b"!"], [theirs.fileno()])
        ours.sendall(json.dumps(request).encode() + b"\n")
        return ForkedProcess(ours, output, errors)

    def close(self) -> None:
        self._ours.close()
        self._server.communicate(timeout=SECONDS)


def share_descriptions() -> None:
    """Let all sessions of botocore read a description of a service once, which takes 0.2 s."""
    botocore.loaders.create_loader = functools.cache(botocore.loaders.create_loader)


def serve(requests: socket.socket) -> None:
    """Forks for each request. Returns in the processes that it has forked, and does not here."""
    while True:
        asked, given, _, _ = socket.recv_fds(requests, 1, 1)
        if not asked:
            os._exit(0)
        client = socket.socket(fileno=given[0])
        request = json.loads(client.makefile().readline())
        pid = os.fork()
        if pid == 0:
            client.detach()
            requests.detach()
            become(**request)
            return
        client.sendall(f"{pid}\n".encode())
        threading.Thread(target=tell_end, args=(pid, client), daemon=True).start()


def become(
    words: list[str], environment: dict[str, str], home: str, streams: list[tuple[int, str | None]]
) -> None:
    """Take over the caller's streams, environment and directory, and nothing else that is open.

    A stream that is closed is None in `sys`, as a start of the interpreter would have it.
    """
    os.closerange(3, 256)
    for number, file in streams:
        opened = os.open(file or os.devnull, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    for number in (number for number, file in streams if file is None):
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(home)
    sys.argv = ["fairlock", *words]


def tell_end(pid: int, client: socket.socket) -> None:
    """As the parent, which alone is told how it has ended."""
    _, ended = os.waitpid(pid, 0)
    with client:
        client.sendall(f"{os.waitstatus_to_exitcode(ended)}\n".encode())


if __name__ == "__main__":
    from fairlock.cli import main

    own = socket.socket(fileno=int(sys.argv[1]))
    # Wrong usage, which is refused when all that a command imports has been imported.
    sys.argv = ["fairlock", "run", "x", "--table=x", "--lease=0", "--", "true"]
    with suppress(SystemExit):
        main()
    share_descriptions()
    # With credentials, which it would else look for in the network.
    session = boto3.Session("test", "test", region_name="us-east-1")
    session.client("dynamodb").close()
    serve(own)
    main()
