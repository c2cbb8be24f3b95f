"""The table and the services that every operation on a lock uses."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlock.backoff import Random
from fairlock.dynamodb.aws_clock import AwsClock
from fairlock.dynamodb.lock_table import LockTable
from fairlock.dynamodb.retry import RetryBudget
from fairlock.protocol.model import LockState, SeenLock
from fairlock.protocol.requests import Answer
from fairlock.store.events import Observe, ignore_events
from fairlock.workflows.engine import NoWorkflows, WorkflowEngine

NoteHandOff = Callable[[str, SeenLock, float], None]
"""Called with a lock's name, the lock as a hand-off has left it, and a reading of the monotonic
clock not later than the hand-off."""


def note_nothing(_lock_name: str, _seen: SeenLock, _sent: float) -> None:
    """For a caller whose process has no waiters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """What an operation on a lock needs besides its request.

    Attributes:
        table: where the locks are.
        workflows: wakes waiters, ends heartbeat states, and tells whether an execution still runs.
        observe: is told what happens besides the answer, for metrics and logs.
        note_hand_off: is told of each hand-off of this process, for the waiters in it. What it is
            told proves ownership.
        retry_budget: how long to go on when other owners keep changing the lock.
        random: source of jitter, from 0 to 1.
    """

    table: LockTable
    workflows: WorkflowEngine = field(default_factory=NoWorkflows)
    observe: Observe = ignore_events
    note_hand_off: NoteHandOff = note_nothing
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    random: Random = random.random

    @property
    def aws_clock(self) -> AwsClock:
        """The estimate of AWS's time, for all that is written; no lease is judged by it."""
        return self.table.aws_clock

    def date_ms(self, answer: Answer) -> int:
        """AWS's time when it gave an answer, for judging the leases that the answer shows.

        Raises:
            LockStoreMisconfigured: the answer does not tell.
        """
        if answer.date_ms is None:
            raise self.table.no_date()
        return answer.date_ms

    def leaving_ms(self, seen: LockState) -> int:
        """AWS's time, for an owner that leaves a lock seen in this state: it leaves last."""
        return max(self.aws_clock.now_ms(), seen.released_at_ms or 0)
