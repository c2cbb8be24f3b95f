"""The clock of `fairlock run`: a wait in the main thread is ended by a signal, or by its alarm."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from fairlock.cli.child_process import Interrupted, InterruptibleClock, SignalPipe

LONG = 30.0
"""Seconds, of which no test waits more than a moment."""


@pytest.fixture
def signals() -> Iterator[SignalPipe]:
    with SignalPipe() as pipe:
        yield pipe


@pytest.fixture
def clock(signals: SignalPipe) -> InterruptibleClock:
    return InterruptibleClock(signals)


@pytest.mark.parametrize("way", ["wait", "alarm"])
def test_the_first_signal_ends_a_wait_in_the_main_thread(
    clock: InterruptibleClock, way: str
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(Interrupted) as ended:
        (clock if way == "wait" else clock.alarm()).wait(LONG)
    assert ended.value.signal == signal.SIGTERM
    assert time.monotonic() < began + LONG / 2


def test_a_signal_does_not_end_the_alarm_of_the_cleanup(clock: InterruptibleClock) -> None:
    """The control: what has been interrupted once leaves the queue undisturbed."""
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        clock.alarm().wait(LONG)
    os.kill(os.getpid(), signal.SIGTERM)
    clock.alarm().wait(0.01)


def test_an_alarm_that_rings_ends_the_wait_that_is_under_way_or_the_next(
    clock: InterruptibleClock,
) -> None:
    began, alarm = time.monotonic(), clock.alarm()
    alarm.ring()
    alarm.wait(LONG)
    ringing = threading.Timer(0.05, alarm.ring)
    ringing.start()
    alarm.wait(LONG)
    ringing.join(LONG)
    assert time.monotonic() < began + LONG / 2
    alarm.wait(0.01)
    assert time.monotonic() > began + 0.05


def test_another_thread_waits_for_its_alarm_and_no_signal(clock: InterruptibleClock) -> None:
    alarm, done = clock.alarm(), threading.Event()

    def wait() -> None:
        alarm.wait(LONG)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    alarm.ring()
    assert done.wait(LONG / 2)
    thread.join(LONG)
