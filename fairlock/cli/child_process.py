"""The command that `fairlock run` starts, and all that may happen around it.

It gets a process group of its own, so that signals reach everything that it starts, and at a
terminal the foreground: the kernel stops any other group that reads from it. If `fairlock` itself
is killed, the kernel ends the command: its lock is renewed no more.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NoReturn, Self

from fairlock.cli import exit_codes
from fairlock.clock import Alarm, BootClock, ThreadAlarm

FORWARDED: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that ask the program to end; they are passed on to the command."""


def become(command: Sequence[str]) -> NoReturn:
    """Puts the command in the place of this process, or ends with the status of shells."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # Closed at our start.
            with suppress(OSError, ValueError):
                stream.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and the command would inherit it.
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - what the caller wants to run
    except OSError as error:
        raise exit_codes.Ended(exit_codes.not_started(error, command)) from error


class SignalPipe:
    """Collects signals in a pipe, so that none interrupts; a context for the main thread.

    A signal that is ignored at the start stays so, also for the command: `nohup` and shells ignore
    signals for background jobs. SIGCHLD never is: the kernel would forget the command's status.
    """

    def __enter__(self) -> Self:
        """Begins to collect."""
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._handlers_before = {
            number: signal.signal(number, lambda _number, _frame: None)  # The byte is enough.
            for number in (*FORWARDED, signal.SIGCHLD)
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(self, *_error: object) -> None:
        """Restores what signals did before."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def wake_up(self) -> None:
        """Ends the main thread's `wait`; for any thread."""
        with suppress(OSError):  # Full: `wait` ends anyway; or closed: no one waits any more.
            os.write(self._writer, b"\0")  # The number of no signal.

    def wait(self, seconds: float) -> list[signal.Signals]:
        """Waits for a signal or `wake_up`, at most so long; returns the signals to pass on."""
        select.select([self._reader], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            return [signal.Signals(n) for n in os.read(self._reader, 4096) if n in FORWARDED]
        return []


class Interrupted(BaseException):
    """The signal `signal` came while the main thread waited for the lock."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.signal = number


class InterruptibleClock(BootClock):
    """A clock whose first signal ends a wait; after that, the clean-up may wait undisturbed."""

    def __init__(self, signals: SignalPipe) -> None:
        self._signals = signals
        self._interrupted = False

    @property
    def may_be_interrupted(self) -> bool:
        """Whether a signal would end a wait that begins now in this thread."""
        return not self._interrupted and threading.current_thread() is threading.main_thread()

    def alarm(self) -> Alarm:
        """An alarm whose wait a signal ends as well."""
        return _InterruptibleAlarm(self, self._signals)

    def wait(self, seconds: float) -> None:
        """Lets that much time pass; in the main thread the first signal raises `Interrupted`."""
        self.alarm().wait(seconds)

    def raise_if_signalled(self, seconds: float = 0.0) -> None:
        """Raises `Interrupted` if there is a signal, or comes one within so many seconds."""
        if signals := self._signals.wait(seconds):
            self._interrupted = True
            raise Interrupted(signals[0])


class _InterruptibleAlarm:
    """See `Alarm`; in the main thread its wait raises `Interrupted` by the first signal."""

    def __init__(self, clock: InterruptibleClock, signals: SignalPipe) -> None:
        self._clock = clock
        self._signals = signals
        self._alarm = ThreadAlarm()
        self._has_rung = False

    def wait(self, seconds: float) -> None:
        if not self._clock.may_be_interrupted:
            self._alarm.wait(seconds)
            return
        ends_at = self._clock.monotonic() + seconds
        while not self._has_rung and (left := ends_at - self._clock.monotonic()) > 0:
            self._clock.raise_if_signalled(left)
        self._has_rung = False

    def ring(self) -> None:
        self._has_rung = True
        self._alarm.ring()
        self._signals.wake_up()


_STDIN: Final = 0
_STDOUT: Final = 1
_STOPPING: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """The controlling terminal, if there is one, of which `stdin` may be another; a context.

    Attributes:
        is_ours_alone: whether this program is in the foreground with its input and its output, and
            so in no pipeline, whose other members may need the terminal too.
        is_given_away: whether a command is in the foreground in this program's place.
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

        Enter it after the command's start, which would inherit the ignored signals. At the end
        processes that were stopped for want of the terminal go on.
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


_PR_SET_PDEATHSIG: Final = 1


def dies_with_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes the command: Linux then kills it when its parent dies.

    So it is after KILL or out of memory, but not for what the command has started, nor on other
    systems (None), nor for a program that changes its user.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_the_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It has died already, and the kernel would tell no one.
            os.kill(os.getpid(), signal.SIGKILL)

    return ask_the_kernel


_WANTS_TERMINAL: Final = frozenset({signal.SIGTTIN, signal.SIGTTOU})


class Command:
    """A process, with all the processes that it starts and that stay in its group."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], terminal: Terminal
    ) -> None:
        """Starts the command, with our own input and output.

        It gets what is typed, Ctrl-C included. In a pipeline, or if input or output is redirected,
        it gets the terminal only when it asks for it, as ssh and sudo do for a password: others in
        the pipeline may be using the terminal.
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
        """The exit status as shells tell it; None while the command runs.

        It stays a zombie until `forget`, so that no other process group can get its number.
        """
        ended = self._wait_id(os.WEXITED)
        if ended is None:
            return None
        return ended.si_status + (0 if ended.si_code == os.CLD_EXITED else exit_codes.SIGNAL)

    def continue_if_stopped(self) -> None:
        """Continues a command that was stopped by Ctrl-Z, or because it wants the terminal.

        No shell would. If this is in the background as well, the command stays stopped until the
        shell brings us to the foreground.
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
