"""The terminal: the kernel stops whoever reads from it and is not in its foreground."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

_STDIN: Final = 0
_STDOUT: Final = 1
_STOPPING: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """The controlling terminal, if there is one, of which `stdin` may be another; as a context.

    Attributes:
        is_ours_alone: whether we are in its foreground with our input and our output: in no
            pipeline, whose other members may need it too.
    """

    def __enter__(self) -> Self:
        """Looks for it. Never fails."""
        self._file: int | None = None
        self._is_lent = False
        self.is_ours_alone = all(_foreground(file) == os.getpgrp() for file in (_STDIN, _STDOUT))
        with suppress(OSError):  # There is none.
            self._file = os.open("/dev/tty", os.O_RDWR)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes it."""
        if self._file is not None:
            os.close(self._file)

    @property
    def is_lent(self) -> bool:
        """Whether it was lent."""
        return self._is_lent

    def lend(self, group: int) -> bool:
        """Puts a process group into the foreground in our place; whether it is there."""
        if self._file is None:
            return False
        foreground = _foreground(self._file)
        if foreground == os.getpgrp():
            with suppress(OSError):
                os.tcsetpgrp(self._file, group)
                self._is_lent = True
                return True
        return foreground == group

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Meanwhile nothing that is typed stops us, nor what others in our pipeline read.

        It is for after the command's start, which would inherit it. In the end the terminal is
        taken back, and who was stopped for want of it goes on.
        """
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING}
        try:
            yield
        finally:
            if self._file is not None and self._is_lent:
                with suppress(OSError):  # The terminal may be gone.
                    os.tcsetpgrp(self._file, os.getpgrp())
                    os.killpg(os.getpgrp(), signal.SIGCONT)
            for number, handler in before.items():
                signal.signal(number, handler)


def _foreground(file: int) -> int | None:
    """The process group in the foreground; None if this is not our controlling terminal."""
    try:
        return os.tcgetpgrp(file)
    except OSError:
        return None
