"""`fairlock ls`: the locks that are held or waited for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from rich.console import Console
from rich.text import Text

from fairlock.cli import lines
from fairlock.cli.lock_table_view import lock_table
from fairlock.client.lock_client import LockClient
from fairlock.protocol.description import LockDescription
from fairlock.text import printable
from fairlock.wire.descriptions import lock_json

_BATCH: Final = 500
"""Locks that are printed together, in the order of their names. More are never in memory."""


def list_locks(
    locks: LockClient,
    console: Console,
    place: str,
    *,
    prefix: str | None,
    waiting: bool,
    free: bool,
    as_json: bool,
) -> int:
    """Prints the locks as they are read; returns the exit status.

    A table on a terminal; lines with tabs elsewhere; one JSON object a line with `as_json`. A
    terminal is told if there is none, and in which place.
    """
    chosen = (lock for lock in locks.list(prefix) if is_wanted(lock, waiting=waiting, free=free))
    first = True
    for batch in _batches(chosen):
        if as_json:
            _print_lines(console, (json.dumps(lock_json(lock)) for lock in batch))
        elif console.is_terminal:
            console.print(lock_table(batch, console, header=first))
        else:
            _print_lines(console, map(lines.one_line, batch))
        first = False
    if first and console.is_terminal and not as_json:
        which = f"whose name begins with {prefix!r} " if prefix else ""
        how = "waited for" if waiting else "held or waited for"
        text = f"no lock {which}is {how} in {place}"
        console.print(Text(printable(text)))
    return 0


def is_wanted(lock: LockDescription, *, waiting: bool, free: bool) -> bool:
    """Whether the options want to see this lock."""
    if waiting:
        return lock.waiters.count > 0
    return free or bool(lock.holders) or lock.waiters.count > 0


def _batches(locks: Iterable[LockDescription]) -> Iterator[list[LockDescription]]:
    rest = iter(locks)
    while batch := list(islice(rest, _BATCH)):
        yield sorted(batch, key=lambda lock: lock.name)


def _print_lines(console: Console, found: Iterable[str]) -> None:
    """Prints lines as they are, however long: neither wrapped nor coloured."""
    for line in found:
        console.file.write(f"{line}\n")
