"""A line for the person who looks at a command that waits for its lock."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from leasehold.cli import exit_codes


@contextmanager
def told_after(seconds: float, message: str) -> Iterator[None]:
    """Prints the message if the block takes longer than that, and errors go to a terminal.

    A cron job, whose errors are mailed, prints nothing. No thread is left after the block.

    Args:
        seconds: after which time.
        message: to be printed once.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(seconds, exit_codes.say, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
