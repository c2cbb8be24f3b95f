"""Functions of `fairlock.store` with one protection taken away that is not a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.protocol import schema
from fairlock.protocol.admission import NOBODY_CAME_IN, Unlearned
from fairlock.protocol.ceiling import CeilingChange, set_ceiling
from fairlock.protocol.grants import acquire_permit_as_seen
from fairlock.protocol.items import read_state
from fairlock.protocol.leaving import Step, next_step
from fairlock.protocol.model import AcquireRequest, Holder, LockState, ReleaseRequest, SeenLock
from fairlock.protocol.outcomes import Queued, Situation, Verdict, judge
from fairlock.protocol.schema import NEXT_TOKEN
from fairlock.protocol.table_requests import Delete, Put, Transaction, Update
from fairlock.store import hand_off as hand_off_module
from fairlock.store import queue, release
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import ExpiredHolders
from tests.support.weakened import Maker, weaker

_SEND: Final = hand_off_module._send  # noqa: SLF001 - mutants differ in this step
_JOIN: Final = queue.join
_JOIN_AGAIN: Final = queue._join_again  # noqa: SLF001 - same
_STOP_WAITING: Final = release._stop_waiting  # noqa: SLF001 - same


def hand_over_to_any(maker: Maker) -> Maker:
    """Makes the same hand-off, but of any waiter that has this key, even if it asked again."""

    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
        transaction, hand_off = maker(*args, **kwargs)
        waiter = weaker(transaction.other, "#expires_at_ms = :seen_expires_at_ms")
        return replace(transaction, other=waiter), hand_off

    return make


def set_ceiling_without_token(change: CeilingChange, *, now_ms: int) -> Update:
    """Sets the ceiling, and leaves the fencing token as it is."""
    made = set_ceiling(change, now_ms=now_ms)
    stays = made.change.replace(NEXT_TOKEN, NEXT_TOKEN.removesuffix(" + :one"))
    values = {name: value for name, value in made.values.items() if name != ":one"}
    return replace(made, change=stays, values=values)


def set_ceiling_of_any_number(change: CeilingChange, *, now_ms: int) -> Any:  # noqa: ANN401 - as `weaker`
    """Sets the ceiling, however often it was changed before."""
    made = set_ceiling(change, now_ms=now_ms)
    return weaker(made, made.condition)


def hand_over_leaving_marks(*args: Any, **kwargs: Any) -> bool:  # noqa: ANN401 - as the real one
    """Hands over, and does not put back what a grant has set of which no owner learned."""
    with patch.object(Unlearned, "of", lambda *_: None):
        return hand_off_module.hand_over(*args, **kwargs)


def send_pushing_first(context: LockContext, step: Step, state: LockState) -> Any:  # noqa: ANN401 - what the real one answers
    """Tells the waiter before the state is written."""
    if step.hand_off is not None and step.hand_off.waiter.request.task_token is not None:
        context.workflows.wake_waiter(step.hand_off.waiter.request.task_token, step.hand_off.grant)
    return _SEND(context, step, state)


def send_in_two_writes(context: LockContext, step: Step, state: LockState) -> Any:  # noqa: ANN401 - same
    """Hands over, and then deletes the waiter."""
    if isinstance(step.write, Update) or isinstance(step.write.other, Put):
        return _SEND(context, step, state)
    outcome = context.table.update(step.write.state)
    if isinstance(outcome, ConditionFailed):
        return hand_off_module._Moved(read_state(outcome.item))  # noqa: SLF001 - same
    assert isinstance(step.write.other, Delete)
    context.table.delete(step.write.other)
    return outcome


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
    weak: Update = weaker(update, NOBODY_CAME_IN, instead="#held < :limit")
    return weak


def confirm_nothing(maker: Maker) -> Maker:
    """Makes a write that leaves the lock as it is, and shows it."""

    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
        update = maker(*args, **kwargs)
        names = {"#wait_seq": update.names["#wait_seq"], "#mine": update.names["#mine"]}
        return replace(update, change="SET #wait_seq = #wait_seq", names=names, values={})

    return make


def join_seeing_nothing_after(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    **more: Any,  # noqa: ANN401 - as the real one
) -> Any:  # noqa: ANN401 - what the real one answers
    """Joins, and goes on from the state that was seen before."""
    joined = _JOIN(context, request, state, **more)
    if not isinstance(joined, Queued):
        return joined
    return replace(joined, seen=replace(joined.seen or SeenLock(state=state), state=state))


def join_at_any_ticket(maker: Maker) -> Maker:
    """Joins at the place of the ticket, whether a waiter of the caller is there or not."""

    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
        return maker(*args, **{**kwargs, "again": False})

    return make


class _TableReadToConfirm:
    """A table on which a join is confirmed by a read, and by a write if that shows a closed queue.

    So the design asked for at first.
    """

    def __init__(self, table: Any) -> None:  # noqa: ANN401 - the model's double
        self._table = table

    def update(self, update: Update) -> Written | ConditionFailed:
        item = self._table.read(update.key)
        if read_state(item).contended:
            return Written(item)
        outcome: Written | ConditionFailed = self._table.update(update)
        return outcome

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        return getattr(self._table, name)


def join_confirmed_by_a_read(entry: Any) -> Any:  # noqa: ANN401 - as the real one
    """Joins, and reads the lock once before it sleeps."""
    table: Any = _TableReadToConfirm(entry.context.table)
    return _JOIN_AGAIN(replace(entry, context=replace(entry.context, table=table)))


class _TableOfTwoWrites:
    """A table on which joining is two writes: the waiter's, then the flag's.

    If the flag's condition does not hold, the waiter is taken back before the lock is claimed
    again, which is more than the design's first sketch of this asked for.
    """

    def __init__(self, table: Any) -> None:  # noqa: ANN401 - the model's double
        self._table = table

    def transact(self, transaction: Transaction) -> Written | ConditionFailed:
        assert isinstance(transaction.other, Put)
        item = transaction.other.item
        self._table.put(transaction.other)
        outcome: Written | ConditionFailed = self._table.update(transaction.state)
        if isinstance(outcome, ConditionFailed):
            entered_at_ms = int(item[schema.ENTERED_AT_MS]["N"])
            request = ReleaseRequest(lock_name="lock", owner_id=item[schema.OWNER_ID]["S"])
            leave_queue: Maker = vars(release)["leave_queue"]
            self._table.delete(leave_queue(request, entered_at_ms=entered_at_ms))
        return outcome

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        return getattr(self._table, name)


def join_in_two_writes(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    **more: Any,  # noqa: ANN401 - as the real one
) -> Any:  # noqa: ANN401 - what the real one answers
    """Joins the queue in two writes."""
    table: Any = _TableOfTwoWrites(context.table)
    return _JOIN(replace(context, table=table), request, state, **more)


def stop_waiting_without_second_try(
    context: LockContext,
    request: ReleaseRequest,
    **more: Any,  # noqa: ANN401 - as the real one
) -> Any:  # noqa: ANN401 - what the real one answers
    """Gives up, and does not ask whether a waiter that is gone was granted the lock."""
    with patch.object(release, "_release_permit", lambda *_: (None, LockState())):
        return _STOP_WAITING(context, request, **more)


def check_no_expired_holder(
    _context: LockContext,
    _lock_name: str,
    state: LockState,
    candidates: Sequence[Holder],
    *,
    needed: int,
) -> ExpiredHolders:
    """Evicts every holder whose lease is over, also a workflow that runs."""
    return ExpiredHolders(state=state, evictable=tuple(candidates[:needed]))


def judge_versions_first(state: LockState, request: AcquireRequest, *, date_ms: int) -> Verdict:
    """Tells a caller that it is superseded before it looks whether that holds the lock."""
    if state.supersedes(request.only_newest):
        return Situation.SUPERSEDED
    return judge(state, request, date_ms=date_ms)
