"""Holders that leave a lock: the part of an update that removes them from its item.

A holder releases, is evicted because its lease is over, or is released by force: by an operator who
has seen its grant, and names that by the fencing token.

Every write by which a holder or a waiter leaves stores when that was, as `released_at`:

    anna     acquire ┄ time-out ┄ sent again ─▶ granted ─▶ released
    ben                                                        granted ─▶ released
    network     └┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ the first sending lands

No caller would know of that grant. So the first write of an acquire, and a join, ask that no owner
has left since they were sent (`not_outdated`). A caller that is refused although it is alive writes
again, on condition that no owner came and none left since it was shown the lock (`nobody_left`).
The fencing token alone would not do: it stands still while waiters give up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.expressions import Condition, Removal, Values, number
from fairlock.protocol.items import new_forced_release
from fairlock.protocol.lease_time import DATE_RESOLUTION_MS
from fairlock.protocol.model import ForcedRelease, Holder, LockState

SLACK_MS: Final = 1_000
"""A sending is given up and repeated after a time-out, which is never shorter than this. So a
release within the slack is none of a later sending of the same caller."""
LEFT_NOW: Final = "#released_at = :released_at"
LEFT_LAST: Final = "(attribute_not_exists(#released_at) OR #released_at <= :late_limit)"
"""A write that leaves and was held up must not move the mark of a later departure back."""


def departure_times(left_at_ms: int) -> Values:
    """The values of `LEFT_NOW` and `LEFT_LAST`.

    Args:
        left_at_ms: when the write is sent, by the sender's estimate of AWS's time.
    """
    return {":released_at": number(left_at_ms), ":late_limit": number(left_at_ms + SLACK_MS)}


def not_outdated(sent_at_ms: int) -> Condition:
    """No holder and no waiter has left since a request was sent, but for the slack.

    Args:
        sent_at_ms: when it was sent, by the sender's estimate of AWS's time. If that is wrong by
            more than the slack, a living caller is refused and writes again, or a very late copy is
            granted to no one until its lease ends.
    """
    return Condition(
        "(attribute_not_exists(#released_at) OR #released_at <= :outdated_at)",
        {":outdated_at": number(sent_at_ms + SLACK_MS)},
    )


def is_outdated(seen: LockState, sent_at_ms: int | None, *, date_ms: int) -> bool:
    """Whether `not_outdated` refuses a request that was sent at this time, and rightly.

    Args:
        seen: the lock, as an answer shows it.
        sent_at_ms: when the request was sent; None if that is not known.
        date_ms: the Date of that answer. A mark in the future comes from a wrong clock: whoever
            left had left by then.
    """
    if sent_at_ms is None or seen.released_at_ms is None:
        return False
    left_ms = min(seen.released_at_ms, date_ms + DATE_RESOLUTION_MS)
    return left_ms > sent_at_ms + SLACK_MS


def nobody_left(seen: LockState) -> Condition:
    """No holder and no waiter has left since the lock was seen in this state."""
    if seen.released_at_ms is None:
        return Condition("attribute_not_exists(#released_at)", {})
    seen_ms = number(seen.released_at_ms)
    return Condition("#released_at = :seen_released_at", {":seen_released_at": seen_ms})


@dataclass(frozen=True, slots=True)
class DepartingHolder:
    """A holder on its way out.

    Attributes:
        voluntary: whether the holder gives its permit back; else it is evicted, on condition that
            its revision is as seen, so that a heartbeat in between wins.
        forced: who releases it by force, and why. A heartbeat in between does not prevent that.
    """

    holder: Holder
    voluntary: bool
    forced: ForcedRelease | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the write that takes the holder out leaves a mark of it in the lock."""
        return self.voluntary or self.forced is not None

    def is_still_in(self, state: LockState) -> bool:
        """Whether the holder is still there, and has not renewed if it is to be evicted."""
        holder = state.holder(self.holder.owner_id)
        if holder is None or holder.fencing_token != self.holder.fencing_token:
            return False
        return self.is_marked or holder.revision == self.holder.revision

    def left_before(self, state: LockState) -> bool:
        """Whether the mark of this very departure is there: it was written before."""
        if self.forced is not None:
            last = state.last_forced_release
            return last is not None and last.fencing_token == self.holder.fencing_token
        return self.voluntary and state.last_released == self.holder.owner_id


def removal(departing: DepartingHolder | None, *, left_at_ms: int) -> Removal:
    """Removes a holder that gives its permit back or is evicted; nothing if there is none.

    Always on condition that its grant is the one that was seen, by the fencing token that no other
    grant has. The owner_id alone would let a late copy of the write end a later grant of the same
    owner.

    Args:
        departing: the holder.
        left_at_ms: see `departure_times`.
    """
    if departing is None:
        return Removal()
    if not departing.is_marked:
        found = eviction([departing.holder], left_at_ms=left_at_ms)
        return replace(
            found,
            conditions=(*found.conditions, "#over_token0 = :seen_grant"),
            values={**found.values, ":seen_grant": number(departing.holder.fencing_token)},
        )
    owner_id = departing.holder.owner_id
    names = {
        "#departing": schema.holder_attribute(owner_id),
        "#departing_token": schema.token_attribute(owner_id),
    }
    seen_grant = number(departing.holder.fencing_token)
    values: Values = {":seen_grant": seen_grant, **departure_times(left_at_ms)}
    if departing.forced is not None:
        # The mark of the last owner who released stays: this one has not, and must be told so.
        mark = "#last_forced_release = :forced"
        values[":forced"] = new_forced_release(departing.forced)
    else:
        mark = "#last_released = :departing"
        values[":departing"] = {"S": owner_id}
    return Removal(
        also_set=f", {LEFT_NOW}, {mark}",
        conditions=("#departing_token = :seen_grant", LEFT_LAST),
        names=names,
        values=values,
    )


def eviction(holders: Sequence[Holder], *, left_at_ms: int) -> Removal:
    """Removes holders whose lease is over, each on condition that its revision is as seen.

    So a heartbeat in between wins. Each grant begins with the same revision, so the whole write has
    to ask that no permit was granted since: a late copy must not hit the next grant of an owner.
    The tokens of 100 holders, one by one, would exceed what DynamoDB allows an expression.
    """
    numbered = list(enumerate(holders))
    names = {f"#over{i}": schema.holder_attribute(h.owner_id) for i, h in numbered}
    names |= {f"#over_token{i}": schema.token_attribute(h.owner_id) for i, h in numbered}
    return Removal(
        also_set=f", {LEFT_NOW}" if holders else "",
        conditions=(
            *(f"#over{i}.#h_revision = :seen{i}" for i, _ in numbered),
            LEFT_LAST,
        ),
        names=names,
        values={
            **{f":seen{i}": number(h.revision) for i, h in numbered},
            **departure_times(left_at_ms),
        },
    )
