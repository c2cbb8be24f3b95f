"""The emulator as a process of its own: started, found healthy, ended with all it started."""

import contextlib
import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from testbed.localaws.environment import client_settings, new_access_key, without_foreign_settings
from testbed.localaws.errors import EmulatorError

MINISTACK_VERSION = "1.5.33"
START_SECONDS = 30.0
END_SECONDS = 5.0
_LOG_TAIL_LINES = 40
_CHECKOUT = Path(__file__).resolve().parents[2]


class EmulatorProcess:
    """One running emulator.

    Guarantees: it listens on 127.0.0.1 only, on a port no one else had; its files live in `home`,
    which is gone after `end()`; `end()` leaves no process of its process group, Lambda workers
    included. It also ends by itself, workers and files included, when the process that started it
    is gone, however that happened: the child watches its parent, and a pipe that ends with it.
    Not covered: a process that a Lambda handler moves into a session of its own.

    Raises EmulatorError on a ministack version whose behaviour no one has checked, or when the
    emulator does not answer within 30 seconds.
    """

    def __init__(self, *, without: Sequence[str] = (), settings: dict[str, str]) -> None:
        require_known_version()
        self.home = Path(tempfile.mkdtemp(prefix="localaws-"))
        self.log_file = self.home / "emulator.log"
        self.access_key = new_access_key()
        # Bound here and inherited by the child, so no other process can take the port in between.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
            self.endpoint_url = f"http://127.0.0.1:{self.port}"
            self._process = self._spawn(listener, without, settings)
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The emulator's process id, which is also its process group's id."""
        return self._process.pid

    def end(self) -> None:
        """End the process group and remove its files; calling it again changes nothing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=END_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def log_tail(self) -> str:
        """The last lines the emulator wrote."""
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()
            return "\n".join(lines[-_LOG_TAIL_LINES:])
        return ""

    def _spawn(
        self, listener: socket.socket, without: Sequence[str], settings: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        temporary_files = self.home / "tmp"
        temporary_files.mkdir()
        environment = {
            **without_foreign_settings(),
            **client_settings(self.endpoint_url, self.access_key),
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            # Both would listen on every interface.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "TMPDIR": str(temporary_files),
            "STATE_DIR": str(self.home / "state"),
            "LOG_LEVEL": "INFO",
            **settings,
            "LOCALAWS_HOME": str(self.home),
            "LOCALAWS_PARENT": str(os.getpid()),
            "LOCALAWS_LISTENER": str(listener.fileno()),
            "LOCALAWS_WITHOUT": ",".join(without),
            "LOCALAWS_CHECKOUT": str(_CHECKOUT),
        }
        with self.log_file.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "testbed.localaws.server"],
                cwd=_CHECKOUT,
                env=environment,
                stdin=subprocess.PIPE,  # never written to: its end tells the child that we are gone
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )

    def _wait_until_ready(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={self.access_key}/"}
        opener.addheaders = [*signed.items()]
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                message = f"the emulator ended at once (status {self._process.returncode})"
                raise EmulatorError(f"{message}; its log ends with:\n{self.log_tail()}")
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                opener.open(f"{self.endpoint_url}/_ministack/ready", timeout=5) as answer,
            ):
                if answer.status == 200:  # noqa: PLR2004 - HTTP's own name for "OK"
                    return
            time.sleep(0.02)
        message = f"the emulator did not answer within {START_SECONDS:.0f} s"
        raise EmulatorError(f"{message}; its log ends with:\n{self.log_tail()}")


def require_known_version() -> None:
    """Refuse any ministack but the one whose functions the corrections replace."""
    try:
        found = importlib.metadata.version("ministack")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != MINISTACK_VERSION:
        raise EmulatorError(
            f"ministack {MINISTACK_VERSION} is needed, found: {found}. The corrections replace"
            " functions of exactly that version; check each of them before moving the pin."
        )
