"""The terminal: the kernel stops a process that reads from it outside of its foreground."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

_STDIN: Final = 0
_STDOUT: Final = 1
_STOPPING: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """The controlling terminal, if there is one, of which `stdin` may be another; a context.

    Attributes:
        is_ours_alone: whether this program is in the foreground with its input and its output, and
            so in no pipeline, whose other members may need the terminal too.
        is_given_away: whether a command was put into the foreground in this program's place.
    """

    def __enter__(self) -> Self:
        """Opens the terminal. Never fails."""
        self.is_ours_alone = all(_foreground(file) == os.getpgrp() for file in (_STDIN, _STDOUT))
        self.is_given_away = False
        self._file: int | None = None
        with suppress(OSError):  # There is none.
            self._file = os.open("/dev/tty", os.O_RDWR)
        return self

    def __exit__(self, *_error: object) -> None:
        """Closes the terminal."""
        if self._file is not None:
            os.close(self._file)

    def give_to(self, group: int) -> bool:
        """Puts a process group into the foreground in our place; tells whether it is there."""
        if self._file is None:
            return False
        foreground = _foreground(self._file)
        if foreground == os.getpgrp():
            with suppress(OSError):
                os.tcsetpgrp(self._file, group)
                self.is_given_away = True
                return True
        return foreground == group

    @contextmanager
    def given_away(self) -> Iterator[None]:
        """Within, neither keys nor the reads of others in the pipeline stop this program.

        Enter it after the command's start, as the command would inherit the ignored signals. At
        the end the terminal is taken back, and processes that were stopped for want of it go on.
        """
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING}
        try:
            yield
        finally:
            if self._file is not None and self.is_given_away:
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
