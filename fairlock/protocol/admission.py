"""Admission: what must hold of a lock's item when an owner comes in.

A permit is free. Each holder is protected by the limit that its own request named: an owner comes
in only if fewer hold than its own limit, and fewer than the limit of each holder. The item has the
limit in force, which is never above the limit of a holder:

    no one holds            one write; the limit in force becomes mine
    limit in force = mine   one write, if fewer than that hold
    they differ             the first write fails, and its answer tells the limits of the holders;
                            the second is on condition that no owner came in since (the token is
                            as seen); the limit in force becomes the lowest of mine and theirs

A ceiling is one limit more. The first write asks that there is none. Every later one knows it, and
is refused if it has changed since: each change moves the fencing token (`ceiling.py`).

The write is not outdated. Every write by which a holder or a waiter leaves stores when that was, as
`released_at`. The first write of an acquire, and a join, ask that no owner has left since they were
sent. A caller that is refused although it is alive writes again, on condition that no owner came
and none left since it was shown the lock. The fencing token alone would not do: it stands still
while waiters give up.

The item lasts. No owner becomes or stays a holder of an item that has less than 48 h left: that
write fails, and is sent again with 400 days more.

Newest only. A grant by the owner's own request, and a hand-off to a task token, set `newest` on
condition that it is not higher; a hand-off to a waiter that polls, and a join, leave it. So a
caller that finds it above its own version, and holds nothing, never gets the lock: the mark is put
back only after a push that reached no one, and lower versions are refused once it arrived. A waiter
with a version that has its turn gives it to the highest version that waits.

docs/protocol.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairlock.clock import DATE_RESOLUTION_MS
from fairlock.protocol import schema
from fairlock.protocol.model import AcquireRequest, Holder, LockState, Waiter
from fairlock.protocol.schema import Part, Values, all_of, number

PERMIT_FREE: Final = (
    "(attribute_not_exists(#held) OR #held < :one OR (#held < :limit AND #limit = :limit))"
)
"""`<`, never `<>`: lowering a limit while more permits are out must grant nothing."""
NO_CEILING: Final = "attribute_not_exists(#ceiling)"
NO_GRANT_SINCE: Final = "#fencing_token = :seen_token"


def may_enter(limit: int) -> Part:
    """A permit is free for an owner with this limit, if nothing is known of the lock."""
    return Part(f"{NO_CEILING} AND {PERMIT_FREE}", {":limit": number(limit)})


def may_enter_as_seen(limit: int, seen: LockState, leaving: Sequence[Holder] = ()) -> Part:
    """There is as much room for an owner with this limit as was seen, or more: others may leave.

    Once the `leaving` are out, which go by the same write, on conditions of their own.
    """
    in_force = seen.without(*(holder.owner_id for holder in leaving)).limit_for(limit)
    values: Values = {":limit": number(in_force)}
    if not seen.fencing_token:  # Only its waiters have written this item.
        return Part("attribute_not_exists(#fencing_token)", values)
    return Part(NO_GRANT_SINCE, values | {":seen_token": number(seen.fencing_token)})


def may_not_enter(limit: int, seen: LockState, *, held: str = "#held >=") -> Part:
    """No permit is free for an owner with this limit; with `#held >`, not even when one leaves.

    If only the limits of holders, or the ceiling, are in its way, they must be as they were seen.
    """
    values: Values = {":limit": number(limit)}
    lowest = seen.limit_for(limit)
    if lowest == limit:
        return Part(f"{held} :limit", values)
    values |= {":lowest": number(lowest), ":seen_token": number(seen.fencing_token)}
    expression = f"({held} :limit OR ({NO_GRANT_SINCE} AND {held} :lowest))"
    return Part(expression, values)


SLACK_MS: Final = 1_000
"""A sending is given up and repeated after a time-out, which is never shorter than this. So a
release within the slack is none of a later sending of the same caller."""
LEFT_NOW: Final = "#released_at = :released_at"
LEFT_LAST: Final = "(attribute_not_exists(#released_at) OR #released_at <= :late_limit)"
"""A departure that was held up must not move the mark of a later one back. Within the slack it
may: the clocks of two holders differ, and neither should pay a second request for that."""
LEFT_LAST_OF_ALL: Final = "(attribute_not_exists(#released_at) OR #released_at <= :released_at)"
"""The same without the slack, for a write that names no grant. An owner that is refused although it
leaves just now writes again, with the time it was shown."""


def departure_times(left_at_ms: int) -> Values:
    """The values of `LEFT_NOW` and `LEFT_LAST`, by the sender's estimate of AWS's time."""
    return {":released_at": number(left_at_ms), ":late_limit": number(left_at_ms + SLACK_MS)}


def eviction(holders: Sequence[Holder], *, left_at_ms: int) -> Part:
    """Removes holders whose lease is over, each on condition that its revision is as seen.

    Each grant begins with the same revision, so the whole write has to ask that no permit was
    granted since: a late copy must not hit the next grant of an owner. The tokens of 100 holders,
    one by one, would exceed what DynamoDB allows an expression.
    """
    numbered = list(enumerate(holders))
    names = {f"#over{i}": schema.holder_attribute(h.owner_id) for i, h in numbered}
    names |= {f"#over_token{i}": schema.token_attribute(h.owner_id) for i, h in numbered}
    seen = {f":seen{i}": number(h.revision) for i, h in numbered}
    return Part(
        all_of(*(f"#over{i}.#h_revision = :seen{i}" for i, _ in numbered), LEFT_LAST),
        seen | departure_times(left_at_ms),
        sets=LEFT_NOW if holders else "",
        removes=names,
    )


def made_at_ms(request: AcquireRequest, *, now_ms: int) -> int:
    """When a call was made, as far as that is known, and never in the future."""
    known = (request.called_at_ms, request.registered_at_ms)
    return min([now_ms, *(at_ms for at_ms in known if at_ms is not None)])


def not_outdated(sent_at_ms: int) -> Part:
    """No holder and no waiter has left since a request was sent, but for the slack."""
    return Part(
        "(attribute_not_exists(#released_at) OR #released_at <= :outdated_at)",
        {":outdated_at": number(sent_at_ms + SLACK_MS)},
    )


def is_outdated(seen: LockState, sent_at_ms: int | None, *, date_ms: int) -> bool:
    """Whether `not_outdated` refuses a request that was sent at this time, and rightly.

    A mark after the Date of the answer that shows it is of a wrong clock: its owner has left.
    """
    if sent_at_ms is None or seen.released_at_ms is None:
        return False
    left_ms = min(seen.released_at_ms, date_ms + DATE_RESOLUTION_MS)
    return left_ms > sent_at_ms + SLACK_MS


def no_one_left(seen: LockState) -> Part:
    """No holder and no waiter has left since the lock was seen in this state."""
    if seen.released_at_ms is None:
        return Part("attribute_not_exists(#released_at)", {})
    seen_ms = number(seen.released_at_ms)
    return Part("#released_at = :seen_released_at", {":seen_released_at": seen_ms})


RETAIN_ITEM: Final = "#expiry_time = if_not_exists(#retain_until, :expiry_time)"


def retain_item(*, long: bool) -> str:
    """The change that retains the item, for 400 days or for 48 h at least."""
    return "#expiry_time = :retain_until, #retain_until = :retain_until" if long else RETAIN_ITEM


def retained(*, long: bool) -> Part:
    """That change, on the condition under which it lets an owner become or stay a holder."""
    condition = "(attribute_not_exists(#retain_until) OR #retain_until > :expiry_time)"
    return Part("" if long else condition, sets=retain_item(long=long))


def needs_longer_retention(state: LockState, *, now_ms: int) -> bool:
    """Whether a new holder must retain this item for long."""
    retain_until_seconds = state.retain_until_seconds
    return retain_until_seconds is not None and retain_until_seconds <= schema.ttl_seconds(now_ms)


NOT_SUPERSEDED: Final = "(attribute_not_exists(#newest) OR #newest <= :version)"
MY_MARK: Final = "#newest_token = :seen_grant"
"""The grant that was seen has set `newest`, and no other grant since."""


def mark_newest(version: int | None, token: str) -> Part:
    """The part of a grant or renewal that sets `newest`, by an expression for its fencing token."""
    if version is None:
        return Part()
    sets = f"#newest = :version, #newest_token = {token}"
    return Part(NOT_SUPERSEDED, {":version": number(version)}, sets=sets)


@dataclass(frozen=True, slots=True)
class Unlearned:
    """A grant that has set `newest` to a version, and of which no one has learned.

    `newest` was `before`, which is 0, below which is no version, if it was not there.
    """

    version: int
    before: int

    @classmethod
    def of(cls, waiter: Waiter, before: LockState, put_back: Unlearned | None) -> Unlearned | None:
        """What a hand-off to this waiter has set, which has `put_back` another; None if nothing."""
        version = waiter.request.only_newest
        if version is None or not waiter.marks_newest:
            return None
        return cls(version=version, before=put_back.before if put_back else before.newest or 0)

    def put_back(self) -> Part:
        """The part of a write that puts it back, unless another grant has set it since."""
        return Part(MY_MARK, {":before": number(self.before)}, sets="#newest = :before")

    def undone(self, state: LockState) -> LockState:
        """The lock as it is without what the grant has set."""
        return replace(state, newest=self.before)


def has_version(waiters: Sequence[Waiter]) -> bool:
    """Whether one of these asks for the newest only."""
    return any(waiter.request.only_newest is not None for waiter in waiters)


def newest_first(queue: Sequence[Waiter]) -> list[Waiter]:
    """The queue in the order in which it is served, of which only the first place is sure.

    Equal versions keep their order.
    """
    if not has_version(queue[:1]):
        return list(queue)
    versions = [waiter.request.only_newest for waiter in queue]
    highest = max(version for version in versions if version is not None)
    first = versions.index(highest)
    return [queue[first], *queue[:first], *queue[first + 1 :]]
