"""A pace: callers take turns by time, each at a slot that it reserves by one write.

    slots       ├───────┼───────┼───────┼───────┼──▶     an interval apart: period / count
                        now     A       B       ┊
                                                └ next slot: all that the item stores of the others

    idle        next slot <= now            the caller begins at once; next slot := now + interval
    busy        next slot >  now            the caller begins at it;   next slot += interval
    too late    next slot >  now + max_wait refused by both conditions; nothing is written

This is GCRA, the generic cell rate algorithm, in AWS's time. A caller that dies wastes its slot. A
burst lets callers begin that many slots ahead, less one, after a pause; with 1, the default, none.

**AWS's time** is known to be between an early and a late edge (`clock.py`). So the idle form is
conditioned by the early edge, and writes by the late one, so that the next caller comes a whole
interval after this one. A wait goes by the early edge, and so never ends before its slot.

**A slot is over** one interval after it, or after 3 s if slots are closer than that, because edges
are up to 3 s apart. A caller that cannot begin before it is over reserves again. So this holds in
any window of AWS's time, however late requests, answers and callers are:

    at most  burst - 1 + (window + longest lateness) / interval, rounded up,  callers begin

For a window of the period that is `burst + count`, if slots are 3 s apart or more.

**Copies.** A repeat whose first reply was lost finds its slot by the id of the last reservation. A
copy that lands late may waste a slot: the next slot only ever moves on, so no copy breaks the pace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fairlock.errors import LockItemMalformed
from fairlock.protocol import schema
from fairlock.protocol.schema import Part, Values, conditional_update, number
from fairlock.protocol.table_requests import Item, Update

MICROSECONDS: Final = 1_000_000
"""The unit of slots: in milliseconds three a second would be four in a thousand slower."""
LEAST_SLOT_US: Final = 3 * MICROSECONDS
"""How long a slot lasts at least. The edges of AWS's time are a second apart by the resolution of a
Date, another second by front ends that differ, and by as long as the last request took."""
_NOT_MINE: Final = "(attribute_not_exists(#reservation_id) OR #reservation_id <> :id)"
_MINE_IS_LAST: Final = "#next_slot_us = :seen"
"""Nothing was reserved since my slot was seen, which is over: I may reserve another one."""


class AwsTime(NamedTuple):
    """AWS's time at one moment, in epoch microseconds: somewhere between two edges."""

    early_us: int
    late_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The time from which, and until which, one caller may begin."""

    begins_us: int
    over_us: int

    def wait_us(self, now: AwsTime) -> int:
        """How long its caller has to wait."""
        return max(0, self.begins_us - now.early_us)

    def is_over(self, now: AwsTime) -> bool:
        """Whether its caller may be too late: then it reserves another one."""
        return now.late_us > self.over_us


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLate:
    """The next slot begins later than the caller would wait; nothing was reserved."""

    wait_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceState:
    """The next free slot, and the last reservation: its slot; of an idle form, when it was sent."""

    next_us: int
    slot_us: int
    reservation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceRequest:
    """Reserve a slot; each repeat of the request has the same reservation_id."""

    name: str
    reservation_id: str = field(repr=False)
    interval_us: int
    burst: int = 1
    max_wait_us: int = 0

    @property
    def ahead_us(self) -> int:
        """How long before its slot a caller may begin, after a pause."""
        return (self.burst - 1) * self.interval_us

    def slot(self, state: PaceState) -> Slot:
        """The slot of the last reservation, which is this one's."""
        due_us = state.next_us - self.interval_us
        return Slot(
            begins_us=state.slot_us - self.ahead_us,
            over_us=due_us + max(self.interval_us, LEAST_SLOT_US),
        )

    def wait_us(self, next_us: int, now: AwsTime) -> int:
        """How long the caller of the next slot has to wait."""
        return max(0, next_us - self.ahead_us - now.early_us)


def interval_us(count: int, period_seconds: float) -> int:
    """The time between the slots of a rate, rounded up: it is never exceeded."""
    return -(-round(period_seconds * MICROSECONDS) // count)


def reserve_idle(request: PaceRequest, now: AwsTime, *, over: PaceState | None = None) -> Update:
    """Reserves the present, if no slot after it is taken; the next one is an interval later.

    An earlier slot of this request was seen in the state `over`, and is over.
    """
    next_us = now.late_us + request.interval_us
    return conditional_update(
        schema.pace_key(request.name),
        "(attribute_not_exists(#next_slot_us) OR #next_slot_us <= :early)",
        Part(
            values={":early": number(now.early_us), ":next": number(next_us)},
            sets="#next_slot_us = :next, #slot_us = :early",
        ),
        _reservation(request, over, next_us=next_us),
        returns="NONE",
    )


def reserve_next(request: PaceRequest, now: AwsTime, *, over: PaceState | None = None) -> Update:
    """Reserves the next slot, if it begins soon enough; for one that is in the future.

    If the item was deleted meanwhile, the condition is false.
    """
    latest_us = now.early_us + request.max_wait_us + request.ahead_us
    return conditional_update(
        schema.pace_key(request.name),
        "#next_slot_us <= :latest",
        Part(
            values={":latest": number(latest_us), ":interval": number(request.interval_us)},
            # Operands are the item before the write: both read the slot that becomes this caller's.
            sets="#next_slot_us = #next_slot_us + :interval, #slot_us = #next_slot_us",
        ),
        _reservation(request, over, next_us=latest_us + request.interval_us),
    )


def idle_state(request: PaceRequest, now: AwsTime) -> PaceState:
    """The state as `reserve_idle` has written it."""
    return PaceState(
        next_us=now.late_us + request.interval_us,
        slot_us=now.early_us,
        reservation_id=request.reservation_id,
    )


def read_pace(name: str, item: Item) -> PaceState | None:
    """The state in an item; None if there is no item."""
    if not item:
        return None
    try:
        return PaceState(
            next_us=int(item[schema.NEXT_SLOT_US]["N"]),
            slot_us=int(item[schema.SLOT_US]["N"]),
            reservation_id=item[schema.RESERVATION_ID]["S"],
        )
    except (KeyError, ValueError) as error:
        raise LockItemMalformed(schema.partition_of_pace(name)) from error


def _reservation(request: PaceRequest, over: PaceState | None, *, next_us: int) -> Part:
    """Marks the reservation as the last. TTL removes the item two days after its last slot."""
    values: Values = {
        ":id": {"S": request.reservation_id},
        ":seen": number(0 if over is None else over.next_us),
        ":expiry": number(schema.ttl_seconds(next_us // 1000)),
    }
    sets = "#reservation_id = :id, #expiry_time = :expiry"
    return Part(_NOT_MINE if over is None else _MINE_IS_LAST, values, sets=sets)
