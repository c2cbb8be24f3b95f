"""What people may see of a lock: its holders and waiters, and never what proves ownership."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlock.clock import utc
from fairlock.errors import DescribedCeiling, DescribedHolder
from fairlock.protocol import schema
from fairlock.protocol.model import Ceiling, Holder, LockState, Waiter, is_dead
from fairlock.protocol.schema import names_in
from fairlock.protocol.table_requests import Item, Query, Scan
from fairlock.protocol.waiters import waiters_of
from fairlock.text import DEEPEST, is_nested_at_most

WAITERS_SHOWN: Final = 20
"""A description tells so many waiters one by one, the oldest; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedWaiter:
    """A waiter in the queue of a lock.

    Attributes:
        owner_name: its label, empty if it gave none.
        entered_at: since when it waits: its place in the queue.
        limit: number of permits, as the waiter's request said.
        only_newest: its version, if it asks for the newest only; else None.
        execution_arn: the workflow execution that it belongs to; None for any other owner.
        shared: whether it waits to share the lock.
    """

    owner_name: str
    entered_at: datetime
    limit: int
    execution_arn: str | None
    shared: bool = False
    only_newest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedQueue:
    """The waiters of a lock that still ask.

    Attributes:
        count: how many wait.
        first: the 20 oldest at most, the next one to hold in front.
    """

    count: int = 0
    first: tuple[DescribedWaiter, ...] = ()

    @property
    def oldest(self) -> datetime | None:
        """Since when the oldest of them waits; None if none does."""
        return self.first[0].entered_at if self.first else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedForcedRelease:
    """The last release by force of a lock.

    Attributes:
        fencing_token: of the grant that it ended.
        requested_by: who did it, as the request said; it is not verified.
        reason: why.
    """

    fencing_token: int
    at: datetime
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockDescription:
    """One lock, as it was seen at a moment.

    Attributes:
        name: the lock's name.
        seen_at: the moment, by the clock of the one who read.
        limit: how many may hold at most while the present holders do; None if it is not held,
            because the next holder names its own.
        holders: in the order of their grants.
        waiters: those that still ask.
        last_forced_release: None if there was none since the lock's item was made.
        newest: the highest version that was granted; None if no caller asked for the newest only.
        ceiling: the limit that an operator has set; None if none stands.
    """

    name: str
    seen_at: datetime
    limit: int | None
    holders: tuple[DescribedHolder, ...]
    waiters: DescribedQueue
    last_forced_release: DescribedForcedRelease | None = None
    newest: int | None = None
    ceiling: DescribedCeiling | None = None

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the lock: no caller gets it, and holders go on."""
        return self.ceiling is not None and self.ceiling.limit == 0

    @property
    def is_in_use(self) -> bool:
        """Whether an owner holds the lock or waits for it, or a ceiling stands."""
        return bool(self.holders) or self.waiters.count > 0 or self.ceiling is not None


def describe_queue(waiters: Iterable[Waiter], state: LockState, *, now_ms: int) -> DescribedQueue:
    """Counts the waiters, the oldest of which must come first, and keeps the first few.

    A waiter is not counted if it is a holder by now, or has not asked in time.
    """
    holders = {holder.owner_id for holder in state.holders}
    count, first = 0, list[DescribedWaiter]()
    for waiter in waiters:
        if not is_dead(waiter, date_ms=now_ms, served=holders):
            count += 1
            if count <= WAITERS_SHOWN:
                first.append(describe_waiter(waiter))
    return DescribedQueue(count=count, first=tuple(first))


def describe_lock(
    name: str, state: LockState, waiters: Iterable[Waiter], *, now_ms: int
) -> LockDescription:
    """The lock of this state with these waiters, the oldest of which must come first."""
    last = state.last_forced_release
    return LockDescription(
        name=name,
        seen_at=utc(now_ms),
        limit=min((holder.limit for holder in state.holders), default=None),
        holders=tuple(map(describe_holder, state.holders)),
        waiters=describe_queue(waiters, state, now_ms=now_ms),
        last_forced_release=None
        if last is None
        else DescribedForcedRelease(
            fencing_token=last.fencing_token,
            at=utc(last.at_ms),
            requested_by=last.requested_by,
            reason=last.reason,
        ),
        newest=state.newest,
        ceiling=describe_ceiling(state.ceiling),
    )


def describe_holder(holder: Holder) -> DescribedHolder:
    """All that others may see of a holder."""
    return DescribedHolder(
        owner_name=holder.owner_name,
        acquired_at=utc(holder.acquired_at_ms),
        expires_at=utc(holder.expires_at_ms),
        fencing_token=holder.fencing_token,
        lease=holder.lease_ms / 1000,
        limit=holder.limit,
        data=read_data(holder.data),
        execution_arn=holder.execution_arn,
        shared=holder.shared,
    )


def describe_waiter(waiter: Waiter) -> DescribedWaiter:
    """All that others may see of a waiter."""
    return DescribedWaiter(
        owner_name=waiter.request.owner_name,
        entered_at=utc(waiter.entered_at_ms),
        limit=waiter.request.limit,
        execution_arn=waiter.request.execution_arn,
        shared=waiter.request.shared,
        only_newest=waiter.request.only_newest,
    )


def describe_ceiling(ceiling: Ceiling | None) -> DescribedCeiling | None:
    """The ceiling that stands, if one does, with a time that people read."""
    if ceiling is None or ceiling.limit is None:
        return None
    return DescribedCeiling(
        limit=ceiling.limit,
        at=utc(ceiling.at_ms),
        requested_by=ceiling.requested_by,
        reason=ceiling.reason,
    )


def read_data(text: str | None) -> Mapping[str, Any] | str | None:
    """The JSON object that is stored with a holder; the text itself if it is none.

    An operator who looks at a stuck lock must see its holder, whatever its data has become.
    """
    if text is None:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_readable = isinstance(data, dict) and is_nested_at_most(data, DEEPEST)
    return data if is_readable else text


def waiters_to_show(lock_name: str) -> Query:
    """All waiters of a lock, the oldest first, without what they alone should know."""
    attributes = (
        "#owner_id, #owner_name, #entered_at_ms, #expires_at_ms, #limit, #lease_ms, "
        "#execution_arn, #shared, #only_newest"
    )
    return waiters_of(lock_name, attributes)


def locks_of_the_table(prefix: str, *, after: Item | None = None) -> Scan:
    """The locks and waiters whose lock names begin so; not the claims of workflows."""
    only = "begins_with(#pk, :prefix)"
    return Scan(
        only=only,
        names=names_in(only),
        values={":prefix": {"S": schema.partition_of(prefix)}},
        after=after,
    )


def lock_name_of(item: Item) -> str:
    """The name of the lock that a state or a waiter belongs to."""
    return item[schema.PARTITION_KEY]["S"].removeprefix(schema.LOCK_PREFIX)


def is_state(item: Item) -> bool:
    """Whether the item is a lock's state, and no waiter."""
    return item[schema.SORT_KEY]["S"] == schema.STATE
