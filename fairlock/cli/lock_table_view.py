"""Locks as a table for a terminal, as wide as that is; never wider, whatever the names are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlock.cli.lines import owners_of, short
from fairlock.protocol.description import LockDescription
from fairlock.text import printable

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
    table.add_column("since", width=_SPAN, no_wrap=True, justify="right")
    table.add_column("lease", width=_SPAN, no_wrap=True, justify="right")
    table.add_column("waiting", width=_WAITING, no_wrap=True, justify="right")
    table.add_column("longest", width=_SPAN, no_wrap=True, justify="right")
    for lock in locks:
        table.add_row(*_row(lock))
    return table


def _without_account(owner: str) -> str:
    """A guard's label is the ARN of its execution: what tells it from others is at the end."""
    _, is_execution, name = owner.partition(":execution:")
    return name if is_execution else owner


def _row(lock: LockDescription) -> list[Text]:
    """Cells as plain text: square brackets in a name are no markup."""
    cells = [printable(lock.name), "free", "", "", "", "", ""]
    style = "dim"
    if lock.holders:
        oldest = lock.holders[0]
        left = oldest.expires_at - lock.seen_at
        cells[1:5] = [
            f"{len(lock.holders)}/{lock.limit}",
            _without_account(owners_of(lock)),
            short(lock.seen_at - oldest.acquired_at),
            short(left) if left.total_seconds() >= 0 else "over",
        ]
        style = "yellow" if left.total_seconds() < 0 else ""
    if lock.waiters.oldest is not None:
        cells[5:] = [str(lock.waiters.count), short(lock.seen_at - lock.waiters.oldest)]
    return [Text(cell, style=style) for cell in cells]
