"""`fairlock` as a process of its own, forked from one that has imported it.

A start of the interpreter with all imports costs 0.8 s of a processor, a fork 10 ms. What is forked
has its own number, streams, signals, threads and exit, as any other process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

STREAMS: Final = 3
_LONGEST_REQUEST: Final = 1 << 20


class ForkedProcess:
    """What tests use of `subprocess.Popen`, of a process that another one has forked."""

    def __init__(self, pid: int, streams: list[int], status: int) -> None:
        self.pid = pid
        self.stdin: IO[str] = os.fdopen(streams[0], "w")
        self.stdout: IO[str] = os.fdopen(streams[1])
        self.stderr: IO[str] = os.fdopen(streams[2])
        self.returncode: int | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._wait, args=(status,), daemon=True).start()

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        # The parent waits for it, so it may be gone before its end is told here.
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        assert self._ended.wait(timeout), "it has not ended"
        assert self.returncode is not None
        return self.returncode

    def communicate(self, given: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Close its input, read all it tells and wait for its end, as `Popen` does."""
        if self.stdin.closed:
            return "", ""
        with self.stdin:
            self.stdin.write(given)
        readers = ThreadPoolExecutor(2)
        told = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
        readers.shutdown(wait=False)
        output, errors = (each.result(timeout) for each in told)
        self.stdout.close()
        self.stderr.close()
        self.wait(timeout)
        return output, errors

    def _wait(self, status: int) -> None:
        with os.fdopen(status) as pipe:
            self.returncode = int(pipe.read())
        self._ended.set()


class Forks:
    """Starts `fairlock` for as long as it is open."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        words = [sys.executable, "-m", __name__, str(theirs.fileno())]
        checkout = Path(__file__).parents[3]
        with theirs:
            self._server = subprocess.Popen(
                words,
                cwd=checkout,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Pipes: streams are of the same kind, and buffered alike, in all that it forks.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "AWS_DEFAULT_REGION": "us-east-1"},
            )

    def start(self, words: list[str], environment: dict[str, str], home: Path) -> ForkedProcess:
        pipes = [os.pipe() for _ in range(STREAMS + 1)]
        (input_, *outputs) = pipes
        given = [input_[0], *(written for _, written in outputs)]
        request = {"words": words, "environment": environment, "home": str(home)}
        text = json.dumps(request).encode() + b"\n"
        socket.send_fds(self._ours, [text[:1]], given)
        self._ours.sendall(text[1:])
        pid = int(self._ours.recv(64))
        for number in given:
            os.close(number)
        stdout, stderr, status = (read for read, _ in outputs)
        return ForkedProcess(pid, [input_[1], stdout, stderr], status)

    def close(self) -> None:
        self._ours.close()
        self._server.communicate(timeout=60)


def serve(connection: socket.socket) -> None:
    """Forks for each request. Returns in the processes that it has forked, and does not here."""
    while True:
        first, given, _, _ = socket.recv_fds(connection, 1, STREAMS + 1)
        if not first:
            os._exit(0)
        text = first
        while not text.endswith(b"\n"):
            text += connection.recv(_LONGEST_REQUEST)
        pid = os.fork()
        if pid == 0:
            become(json.loads(text), given)
            connection.detach()
            return
        *streams, status = given
        for number in streams:
            os.close(number)
        threading.Thread(target=tell_end, args=(pid, status), daemon=True).start()
        connection.sendall(str(pid).encode())


def become(request: dict[str, Any], given: list[int]) -> None:
    """Take over the caller's streams, environment and directory, and nothing else that is open."""
    for number in range(STREAMS):
        os.dup2(given[number], number)
    os.closerange(STREAMS, 256)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["home"])
    sys.argv = ["fairlock", *request["words"]]


def tell_end(pid: int, status: int) -> None:
    """As the parent, which alone is told how it has ended."""
    _, ended = os.waitpid(pid, 0)
    with os.fdopen(status, "w") as pipe:
        pipe.write(str(os.waitstatus_to_exitcode(ended)))


if __name__ == "__main__":
    from fairlock.cli import main

    own = socket.socket(fileno=int(sys.argv[1]))
    # Wrong usage, which is refused when all that a command imports has been imported.
    sys.argv = ["fairlock", "run", "x", "--table=x", "--lease=0", "--", "true"]
    with suppress(SystemExit):
        main()
    serve(own)
    main()
