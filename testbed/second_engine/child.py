"""A server in a process of its own, which ends with the process that started it."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from testbed.localaws.environment import without_foreign_settings
from testbed.second_engine.places import CHECKOUT

_START_SECONDS = 60.0
_END_SECONDS = 5.0


class Child:
    """One server of HTTP on loopback.

    Guarantees: leaving the `with` block ends its process group, and nothing else; its files are
    gone then. Raises RuntimeError with the end of its log if it does not answer within a minute.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        url: str,
        settings: Mapping[str, str] | None = None,
        sockets: Sequence[int] = (),
        directory: Path = CHECKOUT,
    ) -> None:
        self._command = command
        self._url = url
        self._settings = settings or {}
        self._sockets = sockets
        self._directory = directory

    def __enter__(self) -> Self:
        """Start the server, and wait until it answers."""
        with contextlib.ExitStack() as stack:
            files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="second-engine-")))
            self._log = files / "log"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._directory,
                    env={**without_foreign_settings(), **self._settings, "TMPDIR": str(files)},
                    stdin=subprocess.PIPE,  # never written to: its end tells that we are gone
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=self._sockets,
                    start_new_session=True,
                )
            stack.callback(self._end)
            self._wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """End it."""
        self._stack.close()

    def log_tail(self) -> str:
        """The last lines that it wrote."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_END_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _wait_until_ready(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                # An answer of status 404 is an answer, too.
                with contextlib.suppress(urllib.error.HTTPError):
                    opener.open(self._url, timeout=_START_SECONDS).close()
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self._command[0]} did not answer:\n{self.log_tail()}")
