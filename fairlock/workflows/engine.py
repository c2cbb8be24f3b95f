"""The port for workflow engines: three calls, named by a task token or an execution's ARN.

An engine tells by the shape of the token or the ARN which service it belongs to; callers pass on
what a request named, and never look into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from fairlock.errors import LockLost
from fairlock.protocol.model import Grant, Liveness, NotHeld, Released


class Delivery(Enum):
    """What became of a message to an execution."""

    DELIVERED = auto()
    GONE = auto()
    """The task of this token timed out (and asks again with a new one), or is over."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Execution:
    """What an engine says about an execution.

    Attributes:
        liveness: whether it runs.
        redrives: how often it was started again after it had ended.
        ended_at_ms: when it ended, by the engine's clock; None if it runs, or nobody knows.
    """

    liveness: Liveness
    redrives: int = 0
    ended_at_ms: int | None = None


class WorkflowEngine(Protocol):
    """Runs executions that wait for locks and hold them. No method raises.

    The table alone decides who holds a lock; a message only saves an execution from asking. A lost
    one delays a waiter until its fallback poll, and the end of a heartbeat until the next one.
    """

    def wake_waiter(self, task_token: str, grant: Grant) -> Delivery:
        """Tells a waiting execution that it holds the lock now."""
        ...

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """Ends a heartbeat state: its work is done and has released, or its lock is lost."""
        ...

    def describe(self, execution_arn: str) -> Execution:
        """Tells whether an execution still runs."""
        ...


class NoWorkflows:
    """The engine of a caller that cannot reach any: executions count as running."""

    def wake_waiter(self, _task_token: str, _grant: Grant) -> Delivery:
        """Tells nobody: the waiter finds out by its fallback poll."""
        return Delivery.UNKNOWN

    def end_heartbeat(self, _task_token: str, _end: Released | NotHeld | LockLost) -> Delivery:
        """Tells nobody: the next heartbeat finds out."""
        return Delivery.UNKNOWN

    def describe(self, _execution_arn: str) -> Execution:
        """Knows nothing."""
        return Execution(Liveness.UNKNOWN)
