"""What every operation on a lock uses: the table and its services, events, and three rules.

A grant is shown to its owner with the owner's own end (`with_right_end`). A departure is sent until
the lock shows what became of it (`leave`). A write that others were faster than is repeated within
a budget (`pause_or_give_up`), and an outcome that nothing tells is reported as unknown
(`outcome_unknown`), never as a grant or a refusal.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fairlock.aws.executions import NoWorkflows, WorkflowEngine
from fairlock.aws.lock_table import ConditionFailed, LockTable, Written
from fairlock.aws.retry import RetryBudget
from fairlock.backoff import Random
from fairlock.clock import AwsClock, is_enough, own_ms, was_written_by_a_wrong_clock
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.grants import correct_grant
from fairlock.protocol.items import read_holder, read_state
from fairlock.protocol.model import Grant, Holder, LockState, SeenLock
from fairlock.protocol.outcomes import HandOff, Released
from fairlock.protocol.table_requests import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to a lock, for those who count and log; nothing in it proves ownership."""

    lock_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver(Event):
    """The oldest waiter got a permit, `latency_ms` after the departure was noticed."""

    fencing_token: int
    owner_name: str
    execution_arn: str | None
    waited_ms: int
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted(Event):
    """Holders whose lease and workflow were over lost their place, to a waiter or to none."""

    holders: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedByForce(Event):
    """A caller that is not the holder has released it; its work goes on without a heartbeat."""

    fencing_token: int
    owner_name: str
    execution_arn: str | None
    held_ms: int
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingChanged(Event):
    """An operator has paused a lock (0), set or changed its ceiling, or lifted it (None)."""

    ceiling: int | None
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLimits(Event):
    """An acquire found holders that name another limit. All of them count; mostly a mistake."""

    limit: int
    holders_limits: tuple[int, ...]


class Extended(Event):
    """A lease ran out, and was extended because its workflow still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessUnknown(Event):
    """Step Functions did not say whether a holder's workflow still runs: it counts as running."""

    execution_arn: str


class PushUnknown(Event):
    """A waiter was perhaps not told of its grant: it finds out by its fallback poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitersSuperseded(Event):
    """Waiters below a version that was granted are out; the `told` ones waited for a message."""

    newest: int
    waiters: int
    told: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNotRemoved(Event):
    """A lock is free, but its workflow's claim could not be removed. TTL will; it does no harm."""

    execution_arn: str


Observe = Callable[[Event], None]


NoteHandOff = Callable[[str, SeenLock, float], None]
"""Called with a lock's name, the lock as a hand-off has left it, and a reading of the monotonic
clock not later than the hand-off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """What an operation on a lock needs besides its request.

    Attributes:
        workflows: wakes waiters, ends heartbeat states, and tells whether an execution still runs.
        note_hand_off: receives each hand-off of this process, for its waiters: it proves ownership.
        note_sending: receives each hand-off before its transaction is sent, for a caller that may
            send that again, and then has to tell the waiter.
        retry_budget: how long to go on when other owners keep changing the lock.
    """

    table: LockTable
    workflows: WorkflowEngine = field(default_factory=NoWorkflows)
    observe: Observe = lambda _event: None
    note_hand_off: NoteHandOff = lambda _lock_name, _seen, _sent: None
    note_sending: Callable[[HandOff], None] | None = None
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    random: Random = random.random

    @property
    def aws_clock(self) -> AwsClock:
        """What the table's answers have told of AWS's time."""
        return self.table.aws_clock

    def date_ms(self, answer: Answer) -> int:
        """AWS's time when it gave an answer, to judge the leases that it shows."""
        if answer.date_ms is None:
            raise self.table.no_date()
        return answer.date_ms

    def now_ms(self) -> int:
        """The estimate of AWS's time, for all that is written; no lease is judged by it."""
        return self.table.aws_clock.now_ms()


def shown(grant: Grant, *, sent: float, date_ms: int) -> Grant:
    """A grant with its owner's own end, by an answer of that Date to a request of ours."""
    own = own_ms(grant.lease_ms, grant.expires_at_ms, date_ms=date_ms)
    return replace(grant, since=sent, own_ms=own)


def has_enough_left(grant: Grant, *, now: float) -> bool:
    """Whether its owner may begin to rely on a grant; else it renews the lease before."""
    return is_enough((grant.ends_at - now) * 1000, grant.lease_ms)


def with_right_end(
    context: LockContext,
    lock_name: str,
    holder: Holder,
    answer: Answer,
    *,
    first_of_all: bool = False,
) -> Grant | None:
    """The grant that this caller has just written, once its end is right; None if it has changed.

    The first of all on an item has its fencing token from the clock.
    """
    grant = Grant.of(lock_name, holder)
    date_ms = context.date_ms(answer)
    if was_written_by_a_wrong_clock(grant.lease_ms, grant.expires_at_ms, date_ms=date_ms):
        update = correct_grant(
            lock_name, holder, raises_token=first_of_all, now_ms=context.now_ms()
        )
        # On condition of the very write before it. If that was changed since, another process of
        # the same owner has renewed, or it was evicted: the caller asks again, and learns which.
        answer = context.table.update(update)
        if not isinstance(answer, Written):
            return None
        grant = Grant.of(lock_name, read_holder(answer.item, holder.owner_id))
        date_ms = context.date_ms(answer)
    return shown(grant, sent=answer.sent, date_ms=date_ms)


def pause_or_give_up(
    context: LockContext, lock_name: str, *, began: float, attempt: int, without_pause: int = 1
) -> None:
    """Waits before a further attempt on a lock that others changed; raises if time is over."""
    if context.retry_budget.is_spent(since=began):
        raise outcome_unknown(lock_name, "other owners kept changing it")
    if attempt >= without_pause:
        context.retry_budget.pause(attempt)


_Left = TypeVar("_Left")


def leave(
    context: LockContext,
    lock_name: str,
    send: Callable[[int], _Left | ConditionFailed],
    *,
    may_leave: Callable[[LockState], bool],
    seen: LockState | None = None,
) -> tuple[_Left | ConditionFailed, LockState]:
    """Sends a departure until it is answered, or until the lock is in a state that rules it out.

    `send` gets the time of leaving. Returns the last answer, and the state that a refusal shows.
    """
    began, state = context.retry_budget.clock.monotonic(), seen or LockState()
    for attempt in itertools.count():
        # An owner whose clock is ahead of ours may have left last. The mark of the last departure
        # tells late copies of an acquire from living ones, so ours must not seem earlier.
        outcome = send(state.left_at_ms(context.now_ms()))
        if not isinstance(outcome, ConditionFailed):
            return outcome, LockState()
        # The refusal shows the lock: another owner came or left, and the same write may succeed
        # now.
        state = read_state(outcome.item)
        if not may_leave(state):
            return outcome, state
        pause_or_give_up(context, lock_name, began=began, attempt=attempt)
    raise AssertionError  # pragma: no cover - count() has no end


def gave_back(context: LockContext, lock_name: str, holder: Holder) -> Released:
    """The answer to a call that has just ended the grant of this holder."""
    return Released(
        lock_name=lock_name,
        owner_id=holder.owner_id,
        gave_back=True,
        held_ms=max(0, context.now_ms() - holder.acquired_at_ms),
        fencing_token=holder.fencing_token,
        execution_arn=holder.execution_arn,
    )


def outcome_unknown(lock_name: str, why: str) -> LockStoreUnavailable:
    """The error of a call that may have happened or not."""
    return LockStoreUnavailable(
        f"lock {lock_name!r}: {why}; the outcome is unknown, repeat the call"
    )
