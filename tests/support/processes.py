"""Processes that tests start, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path


def end_session(process: subprocess.Popen[str], *, seconds: float = 10) -> None:
    """Kill every process of the session that `process` leads, its own commands included.

    The wait for its pipes is bounded: a process that moved to another session may hold them open.
    """
    members = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")] or [process.pid]
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(member) == process.pid:
                os.kill(member, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=seconds)
