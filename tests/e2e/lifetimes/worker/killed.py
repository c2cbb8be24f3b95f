"""A function whose execution environment is killed in the middle of an invocation."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Works until there is a file of this name; nothing in the process sees the end coming."""
    while not Path(event["die_when"]).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
    return event
