"""What the client logs while a command runs, as lines for people."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

from fairlock.errors import FairlockError
from fairlock.text import printable

_AGAIN_AFTER_SECONDS: Final = 60.0


class NotTooOften(logging.Filter):
    """Lets the same message through once a minute.

    Credentials that are over fail at each heartbeat, and heartbeats come ever sooner towards the
    end of the lease.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message was not told within the last minute."""
        error = record.exc_info[1] if record.exc_info else None
        text, now = f"{record.getMessage()} {error}", record.created
        recent = {each: at for each, at in self._told.items() if now - at < _AGAIN_AFTER_SECONDS}
        if text in recent:
            return False
        # Heartbeats log in several threads: another one may read the old dictionary now.
        self._told = {**recent, text: now}
        return True


class LogLines(logging.Formatter):
    """Names the program in each message, and tells an error of ours without its traceback."""

    def __init__(self) -> None:
        super().__init__("fairlock: %(message)s")

    def formatException(  # noqa: N802 - logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """The error in a line, or the traceback of a defect."""
        if isinstance(ei[1], FairlockError):
            return f"fairlock: {printable(str(ei[1]))}"
        return super().formatException(ei)


def log_lines() -> None:
    """Prints warnings among the errors, unless the process has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogLines())
    handler.addFilter(NotTooOften())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
