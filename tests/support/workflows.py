"""A workflow engine that does what a test says, and remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.errors import LockLost
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Refusal, Released


@dataclass
class FakeWorkflows:
    """Replaces Step Functions.

    Attributes:
        wakes: what becomes of a message to a waiter, or a function that tells.
        ends: what becomes of a message to a heartbeat state, or a function that tells.
        runs: what is known of an execution, or a function from its ARN.
        woken: the task tokens of waiters that were told, with their answers.
        ended: the task tokens of heartbeats that were ended, with the text of the loss.
        described: the ARNs that were asked about.
    """

    wakes: Delivery | Callable[[str, Any], Delivery] = Delivery.DELIVERED
    ends: Delivery | Callable[[str, Released | NotHeld | LockLost], Delivery] = Delivery.DELIVERED
    runs: Liveness | Callable[[str], Execution] = Liveness.UNKNOWN
    woken: list[tuple[str, Any]] = field(default_factory=list)
    ended: list[tuple[str, str | None]] = field(default_factory=list)
    described: list[str] = field(default_factory=list)

    def wake_waiter(self, task_token: str, answer: Grant | Refusal) -> Delivery:
        self.woken.append((task_token, answer))
        return self.wakes if isinstance(self.wakes, Delivery) else self.wakes(task_token, answer)

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        self.ended.append((task_token, str(end) if isinstance(end, LockLost) else None))
        return self.ends if isinstance(self.ends, Delivery) else self.ends(task_token, end)

    def describe(self, execution_arn: str) -> Execution:
        self.described.append(execution_arn)
        if isinstance(self.runs, Liveness):
            return Execution(self.runs)
        return self.runs(execution_arn)
