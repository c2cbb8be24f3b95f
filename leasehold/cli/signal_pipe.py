"""One thing to wait for: signals, the end of the command, and what other threads have to say."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final, Self

from leasehold.clock import BootClock

FORWARDED: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""What asks the program to end is passed on to the command."""
_RING: Final = 0


class Bell:
    """Collects signals in a pipe instead of interrupting; as a context, for the main thread.

    A signal that was set to be ignored, as the shell does for background jobs and `nohup`, stays
    ignored; but not SIGCHLD, without which the kernel would forget the command's status.
    """

    def __enter__(self) -> Self:
        """Begins to collect."""
        self._out, self._in = os.pipe()
        for end in (self._out, self._in):
            os.set_blocking(end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, _do_nothing)
            for number in (*FORWARDED, signal.SIGCHLD)
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Signals do again what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._out)
        os.close(self._in)

    def ring(self) -> None:
        """Wakes the main thread, from any thread."""
        with suppress(OSError):  # Full, and rings anyway; or closed, and nobody waits any more.
            os.write(self._in, bytes([_RING]))

    def wait(self, seconds: float) -> list[signal.Signals]:
        """Waits for a signal or a ring, at most so long; returns the signals to pass on."""
        select.select([self._out], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            return [signal.Signals(n) for n in os.read(self._out, 4096) if n in FORWARDED]
        return []


class Interrupted(BaseException):
    """A signal came while the main thread waited for the lock.

    Attributes:
        signal: which.
    """

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.signal = number


class InterruptibleClock(BootClock):
    """A clock whose waiting is ended by a signal, once: what cleans up then may wait again."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._interrupted = False

    def wait(self, seconds: float) -> None:
        """Lets that much time pass.

        Raises:
            Interrupted: in the main thread, by the first signal.
        """
        if self._interrupted or threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)
            return
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            self.let_through(self._bell.wait(left))

    def let_through(self, signals: list[signal.Signals]) -> None:
        """Raises `Interrupted` if there is a signal."""
        if signals:
            self._interrupted = True
            raise Interrupted(signals[0])


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """So that the signal has no effect but the byte in the pipe."""
