"""Execution environments of Python functions are forks of a process that has the AWS SDK loaded.

A cold start costs AWS's customers nothing, but this machine: an interpreter that loads the SDK
takes a third of a second of a processor, and a run of tests starts hundreds. On Linux only: other
systems start an interpreter for each environment, as the emulator does by itself.

And the code of a function is unpacked once: each environment has hard links to its files.
"""

import functools
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

from ministack.core import lambda_runtime

from testbed.localaws import forkserver

_one_at_a_time = threading.Lock()


def apply() -> None:
    """Link instead of unpacking, and fork instead of starting an interpreter."""
    lambda_runtime.zipfile = types.SimpleNamespace(**{**vars(zipfile), "ZipFile": _Archive})
    if sys.platform != "linux":
        return
    start = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        environment, script = options.get("env") or {}, command[-1]
        is_environment = command[0] == sys.executable and script.endswith("_worker.py")
        # Python reads these when it starts, and our process has started.
        of_python = (name for name in environment if name.startswith("PYTHON"))
        if not is_environment or any(environment[n] != os.environ.get(n) for n in of_python):
            return start(command, **options)
        return Fork(script, options["cwd"], environment)

    replaced = {**vars(subprocess), "Popen": popen}
    lambda_runtime.subprocess = types.SimpleNamespace(**replaced)


class _Archive(zipfile.ZipFile):
    """Code, or a layer, whose files are unpacked once."""

    def extractall(self, path: Any = None, *_: Any) -> None:
        """Link the files into a directory that exists."""
        digest = hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()
        unpacked = Path(os.environ["LOCALAWS_HOME"], "code", digest)
        with _one_at_a_time:
            if not unpacked.exists():
                super().extractall(unpacked.with_suffix(".new"))
                unpacked.with_suffix(".new").rename(unpacked)
        shutil.copytree(unpacked, path, copy_function=os.link, dirs_exist_ok=True)


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, forkserver.__file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
    return ours


class Fork:
    """Of `subprocess.Popen`, what the emulator uses. Its exit status is not known."""

    def __init__(self, script: str, directory: str, environment: dict[str, str]) -> None:
        request = {"script": script, "directory": directory, "environment": environment}
        message = json.dumps(request).encode()
        to_read, to_write = zip(*(os.pipe() for _ in range(4)), strict=True)
        given = (to_read[0], *to_write[1:])
        with _one_at_a_time:
            socket.send_fds(_server(), [message], given)
            self.pid = int(_server().recv(32))
        for descriptor in given:
            os.close(descriptor)
        self.stdin = os.fdopen(to_write[0], "w", buffering=1)
        self.stdout, self.stderr, self._life = map(os.fdopen, to_read[1:])

    def poll(self) -> int | None:
        """None while it runs."""
        return 1 if self._is_over(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; TimeoutExpired if it runs for longer."""
        if not self._is_over(timeout):
            raise subprocess.TimeoutExpired("a fork", timeout or 0)
        return 1

    def _is_over(self, seconds: float | None) -> bool:
        end_of_file = select.poll()
        end_of_file.register(self._life)
        return bool(end_of_file.poll(None if seconds is None else seconds * 1000))

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)
