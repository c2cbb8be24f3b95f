"""Locks as text: every detail line by line, a line for a pipe, or a table for a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlock.clock import iso
from fairlock.errors import DescribedCeiling, DescribedHolder
from fairlock.protocol.description import DescribedForcedRelease, LockDescription
from fairlock.text import printable

_NO_NAME: Final = "(no name)"
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_MANY_DAYS: Final = 100
_SHARES: Final = ("  shared: yes",)
_OVER_UNLESS_IT_RUNS: Final = (
    " (over: the next caller extends it if this execution runs, or else takes the lock)"
)


class _Screen(Console):
    """An output that tells of a reader that has gone, where rich would end the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen() -> Console:
    """The output. With NO_COLOR in the environment it has no bold either, which rich would keep."""
    return _Screen(color_system=None if os.environ.get("NO_COLOR") else "auto")


def details(lock: LockDescription) -> Iterator[str]:
    """All that is known of a lock, one value a line, so that no terminal breaks a token in two."""
    yield f"{printable(lock.name)}: {state_of(lock)}, {lock.waiters.count} waiting"
    for holder in lock.holders:
        yield "holder"
        yield from details_of_holder(holder, seen_at=lock.seen_at)
    for position, waiter in enumerate(lock.waiters.first, start=1):
        yield f"waiter {position} of {lock.waiters.count}"
        yield f"  owner: {name_of(waiter.owner_name)}"
        yield f"  since: {iso(waiter.entered_at)}"
        yield f"  limit: {waiter.limit}"
        yield from _SHARES if waiter.shared else ()
        if waiter.only_newest is not None:
            yield f"  version: {waiter.only_newest}"
    if lock.newest is not None:
        yield f"newest version granted: {lock.newest}"
    if lock.ceiling is not None:
        yield "paused" if lock.is_paused else f"limited to {lock.ceiling.limit}"
        yield from _by_whom(lock.ceiling)
    if lock.last_forced_release is not None:
        yield "last released by force"
        yield from _by_whom(lock.last_forced_release)
        yield f"  fencing token: {lock.last_forced_release.fencing_token}"


def _by_whom(change: DescribedCeiling | DescribedForcedRelease) -> Iterator[str]:
    yield f"  at: {iso(change.at)}"
    yield f"  by: {printable(change.requested_by)}"
    yield f"  reason: {printable(change.reason)}"


def details_of_holder(holder: DescribedHolder, *, seen_at: datetime) -> Iterator[str]:
    """What is known of one holder."""
    # A workflow does not renew, and holds on while it runs.
    over = ""
    if holder.expires_at < seen_at:
        over = " (over)" if holder.execution_arn is None else _OVER_UNLESS_IT_RUNS
    yield f"  owner: {name_of(holder.owner_name)}"
    yield f"  since: {iso(holder.acquired_at)}"
    yield f"  lease ends: {iso(holder.expires_at)}{over}"
    yield f"  fencing token: {holder.fencing_token}"
    yield from _SHARES if holder.shared else ()
    if holder.execution_arn is not None and holder.execution_arn != holder.owner_name:
        yield f"  execution: {printable(holder.execution_arn)}"
    if holder.data is not None:
        data = holder.data  # What is no JSON object is shown as it is stored.
        if not isinstance(data, str):
            data = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        yield f"  data: {printable(data)}"


def one_line(lock: LockDescription) -> str:
    """A lock in a line of fields with tabs between, for pipes and logs."""
    who = ("-", "-", "-")
    if lock.holders:
        holder = lock.holders[0]
        who = (owners_of(lock), iso(holder.acquired_at), iso(holder.expires_at))
    oldest = "-" if lock.waiters.oldest is None else iso(lock.waiters.oldest)
    waiting = f"{lock.waiters.count} waiting"
    return "\t".join((printable(lock.name), state_of(lock), *who, waiting, oldest))


def state_of(lock: LockDescription) -> str:
    """How many hold, and whether an operator has limited or paused the lock."""
    number = len(lock.holders)
    readers = "" if not any(holder.shared for holder in lock.holders) else " reader"
    readers += "s" if readers and number > 1 else ""
    held = f"held by {number}{readers} of {lock.limit}" if lock.holders else "free"
    if lock.ceiling is None:
        return held
    return f"{held}, " + ("paused" if lock.is_paused else f"limited to {lock.ceiling.limit}")


def owners_of(lock: LockDescription) -> str:
    """The label of the oldest holder, and how many others there are."""
    others = len(lock.holders) - 1
    return name_of(lock.holders[0].owner_name) + (f" +{others}" if others else "")


def name_of(owner_name: str) -> str:
    """A label as it may be shown."""
    return printable(owner_name) or _NO_NAME


def short(span: timedelta) -> str:
    """A span of time in at most 7 characters: the two largest units of it."""
    seconds = max(0, round(span.total_seconds()))
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m {seconds % _MINUTE:02}s"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE:02}m"
    days = seconds // _DAY
    return f"{days}d" if days >= _MANY_DAYS else f"{days}d {seconds % _DAY // _HOUR:02}h"


_NARROW: Final = 100
"""Columns of a terminal below which owners get less room."""
_HELD, _SPAN, _WAITING = 7, 7, 7
_GAP: Final = 1


def lock_table(locks: Iterable[LockDescription], console: Console, *, header: bool = True) -> Table:
    """One row a lock. A long lock name goes on in the next line; a long owner is cut."""
    fixed = _HELD + 3 * _SPAN + _WAITING + 7 * _GAP
    rest = max(console.width - fixed, 20)
    owner = rest * 2 // 5 if console.width < _NARROW else rest // 2
    table = Table(box=None, show_header=header, padding=(0, _GAP, 0, 0), header_style="bold")
    table.add_column("lock", width=rest - owner, overflow="fold")
    table.add_column("held", width=_HELD, no_wrap=True)
    table.add_column("holder", width=owner, overflow="ellipsis", no_wrap=True)
    for name, width in (
        ("since", _SPAN),
        ("lease", _SPAN),
        ("waiting", _WAITING),
        ("longest", _SPAN),
    ):
        table.add_column(name, width=width, no_wrap=True, justify="right")
    for lock in locks:
        table.add_row(*_row(lock))
    return table


def _limit_in_force(lock: LockDescription) -> int | None:
    """The lowest limit; 0 beside holders means that the lock is paused."""
    if lock.ceiling is None or lock.limit is None:
        return lock.limit
    return min(lock.limit, lock.ceiling.limit)


def _row(lock: LockDescription) -> list[Text]:
    """Cells as plain text: square brackets in a name are no markup."""
    cells = [printable(lock.name), "paused" if lock.is_paused else "free", "", "", "", "", ""]
    style = "magenta" if lock.is_paused else "dim"
    if lock.holders:
        oldest = lock.holders[0]
        left = oldest.expires_at - lock.seen_at
        cells[1:5] = [
            f"{len(lock.holders)}/{_limit_in_force(lock)}",
            # A guard's label is the ARN of its execution: what tells it from others is at the end.
            owners_of(lock).split(":execution:", 1)[-1],
            short(lock.seen_at - oldest.acquired_at),
            short(left) if left.total_seconds() >= 0 else "over",
        ]
        style = "yellow" if left.total_seconds() < 0 else style if lock.is_paused else ""
    if lock.waiters.oldest is not None:
        cells[5:] = [str(lock.waiters.count), short(lock.seen_at - lock.waiters.oldest)]
    return [Text(cell, style=style) for cell in cells]
