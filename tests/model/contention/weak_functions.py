"""Functions of `fairlock.store` with one protection taken away that is not a condition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from fairlock.protocol.admission import NO_GRANT_SINCE, Unlearned
from fairlock.protocol.grants import acquire_permit_as_seen
from fairlock.protocol.leaving import Step, next_step
from fairlock.protocol.model import AcquireRequest, LockState
from fairlock.protocol.outcomes import Situation, Verdict, judge
from fairlock.protocol.table_requests import Update
from fairlock.store import hand_off, queue
from tests.support.weakened import Patch, edited, weaker

PUSH_BEFORE_THE_STATE: Final = edited(
    hand_off,
    "_send",
    "    try:\n        if",
    """
    told = step.hand_off
    if told is not None and told.waiter.request.task_token is not None:
        context.workflows.wake_waiter(told.waiter.request.task_token, told.grant)
    try:
        if""",
)
HAND_OFF_IN_TWO_WRITES: Final = edited(
    hand_off,
    "_send",
    "outcome = context.table.transact(step.write)",
    """outcome = context.table.update(step.write.state)
            if isinstance(outcome, Written):
                context.table.delete(step.write.other)""",
)
JOIN_IN_TWO_WRITES: Final[Patch] = edited(
    queue._Entry,  # noqa: SLF001 - the mutant differs in this step
    "enter",
    "return self.context.table.transact(transaction)",
    """from fairlock.protocol.model import ReleaseRequest
    from fairlock.store import release
    table = self.context.table
    table.put(transaction.other)
    outcome = table.update(transaction.state)
    if isinstance(outcome, ConditionFailed):
        request = ReleaseRequest(lock_name="lock", owner_id=self.request.owner_id)
        table.delete(release.leave_queue(request, entered_at_ms=entered_at_ms))
    return outcome""",
)
"""The waiter's, then the flag's. If the flag's condition does not hold, the waiter is taken back
before the lock is claimed again, which is more than the first sketch of this asked for."""
JOIN_CONFIRMED_BY_A_READ: Final[Patch] = edited(
    queue,
    "_join_again",
    "confirmed = context.table.update(confirm_join(request, now_ms=now_ms))",
    """confirming = confirm_join(request, now_ms=now_ms)
    item = context.table.read(confirming.key)
    is_marked = read_state(item).contended
    confirmed = Written(item) if is_marked else context.table.update(confirming)""",
)
"""By a write if the read shows a closed queue: so the design asked for at first."""


def hand_over_leaving_marks(*args: Any, **kwargs: Any) -> bool:  # noqa: ANN401 - as the real one
    """Hands over, and does not put back what a grant has set of which no owner learned."""
    with patch.object(Unlearned, "of", lambda *_: None):
        return hand_off.hand_over(*args, **kwargs)


def next_step_by_the_waiters_limit(
    lock_name: str,
    state: LockState,
    *args: Any,  # noqa: ANN401 - as the real one
    **more: Any,  # noqa: ANN401 - same
) -> Step | None:
    """Hands over as if no holder had named a limit."""
    holders = tuple(replace(holder, limit=100) for holder in state.holders)
    return next_step(lock_name, replace(state, holders=holders), *args, **more)


def acquire_permit_raising_at_any_time(
    request: AcquireRequest, seen: LockState, *, now_ms: int
) -> Update:
    """Raises the limit in force on condition of the number of holders only."""
    update = acquire_permit_as_seen(request, seen, now_ms=now_ms)
    in_force: Any = update.values[":limit"]
    if int(in_force["N"]) <= seen.limit:
        return update
    weak: Update = weaker(update, NO_GRANT_SINCE, instead="#held < :limit")
    return weak


def judge_versions_first(state: LockState, request: AcquireRequest, *, date_ms: int) -> Verdict:
    """Tells a caller that it is superseded before it looks whether that holds the lock."""
    if state.supersedes(request.only_newest):
        return Situation.SUPERSEDED
    return judge(state, request, date_ms=date_ms)
