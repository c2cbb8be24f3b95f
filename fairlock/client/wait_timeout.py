"""The error at the end of a wait: it names the lock's holders."""

from __future__ import annotations

from collections.abc import Sequence

from fairlock.clock import utc
from fairlock.errors import LockWaitTimeout, VisibleHolder
from fairlock.protocol.model import Holder
from fairlock.text import label_of


def wait_timeout(
    lock_name: str, holders: Sequence[Holder], *, max_wait: float, waited: float
) -> LockWaitTimeout:
    """The error of an acquisition that was not granted in time.

    Args:
        lock_name: the lock.
        holders: who had it at the last poll.
        max_wait: longest seconds, as the caller said; 0 for a single try.
        waited: the seconds that it really took.
    """
    visible = tuple(map(_visible, holders))
    names = ", ".join(map(_named, visible)) or "nobody"
    told = f"not handed over within {max_wait:g} s; last held by" if max_wait else "held by"
    message = f"lock {lock_name!r}: {told} {names}"
    return LockWaitTimeout(
        message,
        lock_name=lock_name,
        waited_seconds=waited,
        holders=visible,
    )


def _visible(holder: Holder) -> VisibleHolder:
    return VisibleHolder(
        owner_name=holder.owner_name,
        acquired_at=utc(holder.acquired_at_ms),
        expires_at=utc(holder.expires_at_ms),
        fencing_token=holder.fencing_token,
    )


def _named(holder: VisibleHolder) -> str:
    since = holder.acquired_at.isoformat(sep=" ", timespec="seconds")
    return f"{label_of(holder.owner_name)} since {since}"
