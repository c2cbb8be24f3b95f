"""The questions of `testbed.conformance.answers`, with the answers that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from testbed.conformance.answers import Start, complete

_LONGEST: Final = 8
"""Seconds until an execution times out; its function has to start before."""


@dataclass(frozen=True)
class Question:
    """One question to an engine.

    Attributes:
        text: what happens.
        ask: does it; returns what the engine answered.
        local_runner: what the local runner is known to answer.
        embedded_aws: the same of the embedded AWS.
        consequence: what Fairlock makes of it.
    """

    text: str
    ask: Callable[[Start], str]
    local_runner: str
    embedded_aws: str
    consequence: str


def _stopped(start: Start) -> str:
    run = start()
    run.stop()
    return run.end()


def _timed_out(start: Start) -> str:
    return start(longest=_LONGEST).end()


def _completed_twice(start: Start) -> str:
    run = start()
    run.complete()
    return run.complete()


def _completed_after_its_timeout(start: Start) -> str:
    run = start(callback_seconds=1)
    run.time_out()
    return run.complete()


def _completed_after_a_stop(start: Start) -> str:
    run = start()
    run.stop()
    run.end()
    return run.complete()


def _completed_after_the_end(start: Start) -> str:
    run = start(longest=_LONGEST)
    run.end()
    return run.complete()


def _never_made(start: Start) -> str:
    return complete(start().engine, "bm90IGEgY2FsbGJhY2s=")


def _stopped_twice(start: Start) -> str:
    run = start()
    run.stop()
    run.end()
    return run.stop()


_FREED: Final = "the reaper frees its locks"
_LEAVES_THE_LOCK: Final = "the lock goes to the next waiter"
_DEAD: Final = "a dead waiter gets the lock, until the reaper or its lease ends that"

QUESTIONS: Final = (
    Question("a stop", _stopped, *2 * ("STOPPED, ExecutionStopped",), _FREED),
    Question("a timeout", _timed_out, *2 * ("TIMED_OUT, ExecutionTimedOut",), _FREED),
    Question(
        "a callback completed twice",
        _completed_twice,
        "ResourceNotFoundException",
        "CallbackTimeoutException",
        _LEAVES_THE_LOCK,
    ),
    Question(
        "a callback completed after its timeout",
        _completed_after_its_timeout,
        "ResourceNotFoundException",
        "CallbackTimeoutException",
        _LEAVES_THE_LOCK,
    ),
    Question(
        "a callback that was never made",
        _never_made,
        *2 * ("ResourceNotFoundException",),
        _LEAVES_THE_LOCK,
    ),
    Question(
        "a callback completed after a stop",
        _completed_after_a_stop,
        *2 * ("accepted",),
        _DEAD,
    ),
    Question(
        "a callback completed after the execution timed out",
        _completed_after_the_end,
        *2 * ("accepted",),
        _DEAD,
    ),
    Question(
        "a second stop",
        _stopped_twice,
        "accepted",
        "InvalidParameterValueException",
        "nothing: it stops none",
    ),
)
