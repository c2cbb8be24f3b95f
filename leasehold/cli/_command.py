"""The command: a process group of its own, so that nothing it starts is missed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from leasehold.cli import _exits

_STDIN: Final = 0


class Command:
    """A process, and all those that it starts and that stay in its group."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it, with our own input and output.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(  # noqa: S603 - to start what the user says is the purpose
            arguments, env=environment, process_group=0
        )
        self._has_terminal = False

    def status(self) -> int | None:
        """Its exit status as shells tell it; None while it runs.

        It stays a zombie until `bury`, so that its group cannot become somebody else's.
        """
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self._process.pid, options)
        if ended is None:
            return None
        if ended.si_code == os.CLD_EXITED:
            return ended.si_status
        return _exits.SIGNAL + ended.si_status

    def go_on(self) -> None:
        """Continues what Ctrl-Z has stopped: nobody else could, as the shell stopped nothing."""
        if not self._has_terminal:
            return
        options = os.WSTOPPED | os.WNOHANG
        with suppress(ChildProcessError):  # It has ended meanwhile.
            if os.waitid(os.P_PID, self._process.pid, options) is not None:
                self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all of the group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def bury(self) -> None:
        """After its end: nothing may be sent to it any more."""
        self._process.wait()

    @contextmanager
    def at_the_terminal(self) -> Iterator[None]:
        """While it runs, what is typed at the terminal goes to the command, Ctrl-C included.

        Nothing is done unless we were in the foreground of a terminal ourselves.
        """
        if not os.isatty(_STDIN) or os.tcgetpgrp(_STDIN) != os.getpgrp():
            yield
            return
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # We take the terminal back with it.
        try:
            os.tcsetpgrp(_STDIN, self._process.pid)
            self._has_terminal = True
            self.send(signal.SIGCONT)  # It may have tried to read already, and was stopped for it.
            yield
        finally:
            with suppress(OSError):  # The terminal may be gone.
                os.tcsetpgrp(_STDIN, os.getpgrp())
            signal.signal(signal.SIGTTOU, before)
