"""The log `leasehold`, for code that must go on whatever becomes of a log."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final


class FailsafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Drops what a handler raises: a log daemon that is gone must not end the heartbeats."""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:  # noqa: ANN401 - as of the base
        """Writes a message, if that is possible."""
        options.setdefault("stacklevel", 2)
        with suppress(Exception):
            super().log(level, msg, *args, **options)


_logger: Final = FailsafeLogger(logging.getLogger("leasehold"))


def failsafe_logger() -> FailsafeLogger:
    """What every part of the client writes to."""
    return _logger
