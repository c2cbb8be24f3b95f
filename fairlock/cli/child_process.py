"""The command: a process group of its own, so that signals reach everything that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from fairlock.cli import exit_codes
from fairlock.cli.parent_death import dies_with_parent
from fairlock.cli.terminal import Terminal

_WANTS_TERMINAL: Final = frozenset({signal.SIGTTIN, signal.SIGTTOU})


class Command:
    """A process, with all the processes that it starts and that stay in its group."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], terminal: Terminal
    ) -> None:
        """Starts the command, with our own input and output.

        The command gets what is typed, Ctrl-C included. In a pipeline, or if input or output is
        redirected, it gets the terminal only when it asks for it, as ssh and sudo do for a
        password: others in the pipeline may be using the terminal.

        Raises:
            OSError: the command cannot be started.
        """
        # `preexec_fn` may block in a program with threads; this one makes two system calls.
        self._process = subprocess.Popen(  # noqa: S603 - to start what the user says is the purpose
            arguments,
            env=environment,
            process_group=0,
            preexec_fn=dies_with_parent(),  # noqa: PLW1509 - see above
        )
        self._terminal = terminal
        if terminal.is_ours_alone and terminal.give_to(self._process.pid):
            self.send(signal.SIGCONT)  # It may have tried to read already, and was stopped.

    def status(self) -> int | None:
        """Returns the exit status as shells tell it; None while the command runs.

        A command that has ended stays a zombie until `forget`, so that no other process group can
        get its number.
        """
        ended = self._wait_id(os.WEXITED)
        if ended is None:
            return None
        return ended.si_status + (0 if ended.si_code == os.CLD_EXITED else exit_codes.SIGNAL)

    def continue_if_stopped(self) -> None:
        """Continues a command that was stopped by Ctrl-Z, or because it wants the terminal.

        Nobody else would: the shell has not stopped it. If this program is in the background as
        well, the command stays stopped until the shell brings us to the foreground.
        """
        with suppress(ChildProcessError):  # It has ended meanwhile.
            stopped = self._wait_id(os.WSTOPPED)
            if stopped is None:
                return
            if stopped.si_status in _WANTS_TERMINAL:
                may_continue = self._terminal.give_to(self._process.pid)
            else:
                may_continue = self._terminal.is_given_away
            if may_continue:
                self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the whole group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def ask_to_end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends a signal to the whole group, and continues it: a stopped process notices none."""
        self.send(number)
        self.send(signal.SIGCONT)

    def forget(self) -> None:
        """Waits for the end; no signal may be sent afterwards."""
        self._process.wait()

    def _wait_id(self, change: int) -> os.waitid_result | None:
        return os.waitid(os.P_PID, self._process.pid, change | os.WNOHANG | os.WNOWAIT)
