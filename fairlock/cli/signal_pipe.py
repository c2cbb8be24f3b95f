"""One pipe to wait for: signals, the end of the command, and news from other threads."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from typing import Final, Self

from fairlock.clock import Alarm, BootClock, ThreadAlarm

FORWARDED: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that ask the program to end; they are passed on to the command."""


class SignalPipe:
    """Collects signals in a pipe, so that none interrupts; a context for the main thread.

    A signal that is ignored at the start stays ignored, by this program and by the command, as
    with `env` and `timeout`: `nohup` and shells ignore signals for background jobs. SIGCHLD is
    never ignored, because the kernel would forget the command's status.
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
        with suppress(OSError):  # Full: `wait` ends anyway; or closed: nobody waits any more.
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
        """Lets that much time pass.

        Raises:
            Interrupted: in the main thread, by the first signal.
        """
        if not self.may_be_interrupted:
            time.sleep(seconds)
            return
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            self.raise_if_signalled(left)

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
        """See `Alarm`."""
        if not self._clock.may_be_interrupted:
            self._alarm.wait(seconds)
            return
        ends_at = self._clock.monotonic() + seconds
        while not self._has_rung and (left := ends_at - self._clock.monotonic()) > 0:
            self._clock.raise_if_signalled(left)
        self._has_rung = False

    def ring(self) -> None:
        """See `Alarm`."""
        self._has_rung = True
        self._alarm.ring()
        self._signals.wake_up()
