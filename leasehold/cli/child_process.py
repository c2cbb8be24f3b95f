"""The command: a process group of its own, so that nothing it starts is missed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from leasehold.cli import exit_codes as _exits
from leasehold.cli.terminal import Terminal

_WANTS_TERMINAL: Final = frozenset({signal.SIGTTIN, signal.SIGTTOU})


class Command:
    """A process, and all those that it starts and that stay in its group."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], terminal: Terminal
    ) -> None:
        """Starts it, with our own input and output.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(  # noqa: S603 - to start what the user says is the purpose
            arguments, env=environment, process_group=0
        )
        self._terminal = terminal

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
        """Continues it if it was stopped at the terminal, by Ctrl-Z or for want of it.

        Nobody else would: the shell stopped nothing. If we are in the background as well, it waits
        until the shell brings us to the foreground.
        """
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):  # It has ended meanwhile.
            stopped = os.waitid(os.P_PID, self._process.pid, options)
            if stopped is None:
                return
            if stopped.si_status in _WANTS_TERMINAL:
                may_go_on = self._terminal.lend(self._process.pid)
            else:
                may_go_on = self._terminal.is_lent
            if may_go_on:
                self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all of the group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def ask_to_end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends a signal that a stopped process does not notice before it goes on."""
        self.send(number)
        self.send(signal.SIGCONT)

    def bury(self) -> None:
        """After its end: nothing may be sent to it any more."""
        self._process.wait()

    @contextmanager
    def at_the_terminal(self) -> Iterator[None]:
        """While it runs, what is typed goes to the command, Ctrl-C included.

        In a pipeline, or if its input or output is redirected, only from when it asks for it, as
        ssh and sudo do for a password: others in the pipeline may be using the terminal.
        """
        with self._terminal.lending():
            if self._terminal.is_ours_alone and self._terminal.lend(self._process.pid):
                self.send(signal.SIGCONT)  # It may have tried to read already, and was stopped.
            yield
