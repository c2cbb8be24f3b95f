"""How a guard waits for a lock that is taken: in its queue, or by polling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.fragments import jsonata, require, whole_seconds
from fairlock.cdk.guard.guard_arguments import checked_fallback_seconds
from fairlock.cdk.guard.guard_states import GuardStates
from fairlock.cdk.guard.service_calls import (
    divide_wait,
    pause_before_restart,
    period_after_restart,
    restarted,
)
from fairlock.errors import InvalidRequest, explained
from fairlock.protocol.outcomes import RefusalReason
from fairlock.wire.rules import DEFAULT_MAX_WAIT_SECONDS

_LONGEST_POLL_HOURS: Final = 24
"""At one poll a minute (the longest advice) and 9 events a poll: half of an execution's history."""

_DEFAULT_EXPRESS_MAX_WAIT_SECONDS: Final = 60
_EXPRESS_SECONDS: Final = 5 * 60
_MOST_PERIODS: Final = 2000
"""At five events a period: less than half of an execution's history of 25,000 events."""
_SHORTEST_QUEUE_SECONDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStates:
    """Where a guard goes on after it has waited."""

    granted: sfn.IChainable
    timed_out: sfn.IChainable
    failed: sfn.IChainable
    superseded: sfn.IChainable | None = None


class Waiting(ABC):
    """How a guard waits: `Waiting.queue()` or `Waiting.poll()`."""

    @staticmethod
    def poll() -> Waiting:
        """Asks again until the lock is granted, after as many seconds as the service advises.

        Works in Standard and Express workflows. Each further try costs three state transitions. The
        advice grows with the wait to about a minute: a release is noticed late by up to a fifth of
        the time waited. It is not fair: the first caller after a release wins.
        """
        return _Poll()

    @staticmethod
    @explained
    def queue(*, fallback: Duration | None = None) -> Waiting:
        """Sleeps on a task token in a fair queue, until a release hands the lock over.

        Standard workflows only. One state transition whether it waits a second or an hour, and one
        more for each fallback period, with a call of acquire.

        Args:
            fallback: how often a waiter asks again by itself, 10 s to 12 h, default 5 minutes. This
                bounds the wait if a push is lost or a holder dies unnoticed.
        """
        return _Queue(checked_fallback_seconds(fallback))

    express: ClassVar[bool] = True
    """Whether it works in Express workflows."""
    shortest_seconds: ClassVar[int] = 0
    """The shortest `max_wait` that leaves the service time to answer."""
    shown: ClassVar[str | None] = "Waiting.poll()"
    """How a caller writes it; None for a guard that does not wait."""

    longest: Duration
    """The longest `max_wait` whose events fit into the history of an execution."""

    @abstractmethod
    def begin(self, states: GuardStates, next_states: NextStates) -> sfn.TaskStateBase:
        """Makes the states that wait, each of whose ends goes to one of `next_states`."""


class _Poll(Waiting):
    """acquire → acquired? → wait → acquire."""

    longest = Duration.hours(_LONGEST_POLL_HOURS)

    def begin(self, states: GuardStates, next_states: NextStates) -> sfn.TaskStateBase:
        lock = states.variable.field
        acquire = states.acquire(on_error=next_states.failed)
        released = f"{lock('reason')} = '{RefusalReason.ALREADY_RELEASED}'"
        pause = pause_before_restart(states.variable)
        wait = states.wait(
            f"{released} ? {pause} : {lock('retry_after_seconds')}",
            assign=f"{released} ? {restarted(states.variable)} : ${states.variable.name}",
        )
        wait.next(acquire)
        choice = _acquired(states, next_states)
        choice.when(_when(states.is_too_late), next_states.timed_out)
        choice.otherwise(wait)
        acquire.next(choice)
        return acquire


class _Queue(Waiting):
    """acquire, which returns when the lock is granted; else: time left? → wait → acquire again."""

    express: ClassVar[bool] = False
    shortest_seconds: ClassVar[int] = _SHORTEST_QUEUE_SECONDS
    shown: ClassVar[str | None] = "Waiting.queue()"

    def __init__(self, fallback_seconds: int) -> None:
        self.fallback_seconds = fallback_seconds
        self.longest = Duration.seconds(fallback_seconds * _MOST_PERIODS)

    def begin(self, states: GuardStates, next_states: NextStates) -> sfn.TaskStateBase:
        max_wait_seconds = states.options.max_wait_seconds
        time_left = sfn.Choice.jsonata(states.scope, states.variable.state_name("Time left?"))
        again = states.acquire_in_queue(
            "Acquire again" if states.begins else "Acquire",
            period_after_restart(max_wait_seconds, fallback_seconds=self.fallback_seconds),
            on_restart=time_left,
            on_timeout=time_left,
            on_error=next_states.failed,
        )
        wait = states.wait(states.variable.field("pause_seconds"))
        time_left.when(_when(states.is_too_late), next_states.timed_out)
        time_left.otherwise(wait.next(again))
        granted = next_states.granted
        if next_states.superseded is not None:
            # Both are final answers. A guard that takes its turn gets only one of them.
            granted = _acquired(states, next_states).otherwise(next_states.superseded)
        again.next(granted)
        if not states.begins:
            return again
        acquire = states.acquire_in_queue(
            "Acquire",
            divide_wait(max_wait_seconds, fallback_seconds=self.fallback_seconds),
            on_restart=time_left,
            on_timeout=next_states.timed_out,
            on_error=next_states.failed,
        )
        acquire.next(granted)
        return acquire


class _SkipIfBusy(Waiting):
    """acquire → acquired? A lock that has room counts as busy, too, while others queue for it."""

    shown: ClassVar[str | None] = None
    longest = Duration.seconds(0)

    def begin(self, states: GuardStates, next_states: NextStates) -> sfn.TaskStateBase:
        acquire = states.acquire(on_error=next_states.failed)
        acquire.next(_acquired(states, next_states).otherwise(next_states.timed_out))
        return acquire


DOES_NOT_WAIT: Final[Waiting] = _SkipIfBusy()
"""What a guard does whose `max_wait` is zero."""


def _acquired(states: GuardStates, next_states: NextStates) -> sfn.Choice:
    """A Choice whose first ways are those of the final answers."""
    choice = sfn.Choice.jsonata(states.scope, states.variable.state_name("Acquired?"))
    choice.when(_when(f"{states.variable.field('acquired')} = true"), next_states.granted)
    if next_states.superseded is not None:
        superseded = f"{states.variable.field('reason')} = '{RefusalReason.SUPERSEDED}'"
        choice.when(_when(superseded), next_states.superseded)
    return choice


def _when(expression: str) -> sfn.Condition:
    return sfn.Condition.jsonata(jsonata(expression))


def checked_waiting(waiting: Waiting | None, *, express: bool) -> Waiting:
    """The way to wait that was given, else that of the kind of workflow."""
    if waiting is None:
        return Waiting.poll() if express else Waiting.queue()
    rule = "must be Waiting.queue() or Waiting.poll()"
    require("waiting", isinstance(waiting, Waiting), rule, waiting)
    rule = (
        "must be Waiting.poll() in an Express workflow: "
        "Step Functions has no task tokens there, so nothing could wake it"
    )
    require("waiting", waiting.express or not express, rule, waiting.shown)
    return waiting


def longest_wait_seconds(max_wait: Duration | None, *, express: bool) -> int:
    """How long a guard waits that was told this; None for the default."""
    if max_wait is None:
        return _DEFAULT_EXPRESS_MAX_WAIT_SECONDS if express else DEFAULT_MAX_WAIT_SECONDS
    return whole_seconds("max_wait", max_wait)


def checked_max_wait_seconds(max_wait: Duration | None, waiting: Waiting, *, express: bool) -> int:
    """Zero, or whole seconds within the bounds of the way to wait and of the kind of workflow."""
    seconds = longest_wait_seconds(max_wait, express=express)
    if 0 < seconds < waiting.shortest_seconds:
        rule = (
            f"must be 0 to skip a busy lock, or at least {waiting.shortest_seconds} s, so that the "
            "service has time to answer; Waiting.poll() also takes less"
        )
    elif express and seconds >= _EXPRESS_SECONDS:
        rule = "must be under 5 minutes, after which Step Functions ends an Express workflow"
    elif seconds > waiting.longest.to_seconds():
        rule = (
            f"must be at most {waiting.longest.to_human_string()}: "
            "a longer wait may fill the history of the execution, which ends at 25,000 events; "
            "a longer fallback, as in Waiting.queue(fallback=Duration.hours(1)), allows more"
        )
    else:
        return seconds
    raise InvalidRequest(field="max_wait", rule=rule, value=f"{seconds} s")
