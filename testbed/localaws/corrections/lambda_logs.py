"""An invocation returns when the function has, not when its log seems to have dried up.

AWS: an invocation's answer does not wait for its log (Lambda developer guide, "Understanding the
Lambda execution environment lifecycle").

Emulator: after each invocation it waits up to 50 ms for log lines, so a warm invocation of a
function that does nothing takes 50 ms.

This: the sandbox (see `lambda_errors`) marks the end of each invocation's log, and reading stops
at the mark. Without that sandbox this correction changes nothing.
"""

import os
import queue
import time
from typing import Any

from ministack.core import lambda_runtime

_MARK = "--localaws: end of this invocation's log--"
_GIVE_UP_SECONDS = 2.0


def apply() -> None:
    """Read a worker's log up to the mark."""
    os.environ["LOCALAWS_LOG_END"] = _MARK
    original = lambda_runtime.Worker._drain_stderr_bounded

    def drain(worker: Any) -> str:
        if "LOCALAWS_LOG_END" not in lambda_runtime._PYTHON_WORKER_SCRIPT or not str(
            worker.config.get("Runtime", "")
        ).startswith("python"):
            return str(original(worker))
        return "\n".join(_lines_until_mark(worker)).rstrip("\n")

    lambda_runtime.Worker._drain_stderr_bounded = drain


def _lines_until_mark(worker: Any) -> list[str]:
    lines: list[str] = []
    give_up_at = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < give_up_at:
        try:
            line = worker._stderr_queue.get(timeout=0.05)
        except queue.Empty:
            if worker._proc is None or worker._proc.poll() is not None:
                break
            continue
        if line == _MARK:
            break
        lines.append(line)
    return lines
