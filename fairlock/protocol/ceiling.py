"""The ceiling of a lock: a limit that an operator has set, above which no grant goes.

A ceiling of 0 pauses the lock. It is one more limit in the rule of admission (`admission.py`):

    operator                      lock item                           waiter item
      │ set_ceiling                 ceiling, fencing_token + 1
      ┊
      │ raise_ceiling               ceiling changed or removed,
      │   or serve_waiter ── one ─▶   fencing_token + 1             ───▶ delete
      └ wake the waiter

A change that makes room serves the oldest waiter by the same transaction: if the operator's process
dies after it, that waiter's release serves the others. Each change is conditioned on the number of
changes before it, which stays in the item when the ceiling is lifted. So lifting counts as a change
even where there is no ceiling: a pause whose outcome was unknown would else land after the resume.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fairlock.protocol import schema
from fairlock.protocol.admission import NO_GRANT_SINCE, no_one_left, retain_item
from fairlock.protocol.items import new_ceiling
from fairlock.protocol.model import Ceiling, LockState
from fairlock.protocol.schema import (
    NEXT_TOKEN,
    NOT_CONTENDED,
    WAIT_SEQ_UNMOVED,
    Part,
    Values,
    all_of,
    conditional_update,
    number,
)
from fairlock.protocol.table_requests import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCeilingRequest:
    """Grant no more permits than this `limit`; 0 pauses the lock, None lifts the ceiling."""

    lock_name: str
    limit: int | None
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class CeilingChange:
    """A change of the ceiling that is under way.

    It has the form of a departing holder, because a hand-off begins with either: what goes out by
    the first write, so that a waiter may come in by the same.
    """

    lock_name: str
    ceiling: Ceiling
    unlearned: ClassVar[None] = None
    is_marked: ClassVar[bool] = True

    @classmethod
    def of(cls, request: SetCeilingRequest, seen: LockState, *, now_ms: int) -> CeilingChange:
        """The change that a request asks for, of a lock seen in this state."""
        ceiling = Ceiling(
            limit=request.limit,
            change=_changes(seen) + 1,
            at_ms=now_ms,
            requested_by=request.requested_by,
            reason=request.reason,
        )
        return cls(request.lock_name, ceiling)

    def is_still_in(self, state: LockState) -> bool:
        """Whether no one has changed the ceiling since, this change included."""
        return _changes(state) == self.ceiling.change - 1

    def left_before(self, state: LockState) -> bool:
        """Whether this very change was made before."""
        return state.last_ceiling == self.ceiling

    def makes_room(self, state: LockState) -> bool:
        """Whether more may hold after it, or an earlier call may have left waiters unserved.

        Lifting counts as such even where there is no ceiling: the call that lifted it may have
        died before it served all who wait.
        """
        if self.ceiling.limit is None:
            return True
        before = state.ceiling
        return before is not None and before.limit is not None and self.ceiling.limit > before.limit

    def made(self, state: LockState) -> LockState:
        """The lock after it."""
        return replace(state, last_ceiling=self.ceiling)

    def part(self, contended: LockState | None = None) -> Part:
        """The part of an update that makes the change.

        On a `contended` lock that it makes room in, on condition that no holder left it since it
        was seen: below a ceiling who leaves serves no one, so this change has to serve all.
        """
        limit, seen = self.ceiling.limit, self.ceiling.change - 1
        values: Values = {":last_ceiling": new_ceiling(self.ceiling), ":seen_change": number(seen)}
        sets = "#last_ceiling = :last_ceiling"
        if limit is not None:
            sets += ", #ceiling = :ceiling"
            values[":ceiling"] = number(limit)
        unchanged = "#last_ceiling.#change = :seen_change"
        conditions = [unchanged if seen else "attribute_not_exists(#last_ceiling)"]
        if contended is not None:
            no_one_gone = no_one_left(contended)
            # Who leaves in the same millisecond as the one before does not move `released_at`.
            conditions += ["#held = :seen_held", no_one_gone.condition]
            values |= {":seen_held": number(contended.held), **no_one_gone.values}
        lifted = {"#ceiling": schema.CEILING} if limit is None else {}
        return Part(all_of(*conditions), values, sets=sets, removes=lifted)


def set_ceiling(change: CeilingChange, *, now_ms: int) -> Update:
    """Set a ceiling, or a lower one, whether the lock is in use or not; makes a missing item.

    `held` is there afterwards: a caller joins the queue on condition that enough permits are out,
    and of a paused lock that is never used none is.
    """
    # Not `if_not_exists(…) + :one` by ADD: a new item would begin at 1, below the tokens of an item
    # that TTL has removed.
    return conditional_update(
        schema.lock_key(change.lock_name),
        Part(
            values={":forever": number(schema.FOREVER_SECONDS), ":zero": number(0)},
            sets=f"#fencing_token = {NEXT_TOKEN}, "
            "#expiry_time = :forever, #retain_until = :forever",
            adds="#held :zero",
        ),
        change.part(),
        now_ms=now_ms,
    )


def raise_ceiling(change: CeilingChange, seen: LockState, *, now_ms: int) -> Update:
    """Raise or lift the ceiling of a lock for whose waiters that makes no room, or without any.

    On condition that this is so: a waiter that has joined, or come to the head of the queue, since
    the lock was seen would otherwise sleep beside a free permit.
    """
    as_seen = [NOT_CONTENDED]
    values: Values = {}
    if seen.contended:
        as_seen = [WAIT_SEQ_UNMOVED, NO_GRANT_SINCE]
        values |= {":wait_seq": number(seen.wait_seq), ":seen_token": number(seen.fencing_token)}
    retention = retain_item(long=change.ceiling.limit is None)
    return conditional_update(
        schema.lock_key(change.lock_name),
        *as_seen,
        Part(values=values, sets=f"#fencing_token = {NEXT_TOKEN}, {retention}"),
        change.part(seen if seen.contended else None),
        now_ms=now_ms,
    )


def _changes(state: LockState) -> int:
    return 0 if state.last_ceiling is None else state.last_ceiling.change
