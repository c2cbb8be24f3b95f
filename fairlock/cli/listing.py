"""The commands that show locks: `fairlock ls`, `watch` and `show`. Owner ids stay hidden."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fairlock.cli import exit_codes, lines
from fairlock.cli.lines import lock_table
from fairlock.client.lock_client import LockClient
from fairlock.clock import Clock, iso_utc, utc
from fairlock.errors import DescribedCeiling, LockStoreUnavailable
from fairlock.protocol.description import DescribedQueue, LockDescription
from fairlock.text import printable
from fairlock.wire.answers import lock_json

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
    """Prints the locks as they are read: a table on a terminal, lines with tabs, or JSON lines."""
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
        console.print(Text(printable(f"no lock {which}is {how} in {place}")))
    return 0


def is_wanted(lock: LockDescription, *, waiting: bool, free: bool) -> bool:
    """Whether the options want to see this lock."""
    if waiting:
        return lock.waiters.count > 0
    return free or lock.is_in_use


def _batches(locks: Iterable[LockDescription]) -> Iterator[list[LockDescription]]:
    rest = iter(locks)
    while batch := list(islice(rest, _BATCH)):
        yield sorted(batch, key=lambda lock: lock.name)


def _print_lines(console: Console, found: Iterable[str]) -> None:
    for line in found:
        console.file.write(f"{line}\n")


Read = Callable[[], Iterable[LockDescription]]


def reader(locks: LockClient, names: Sequence[str], prefix: str | None) -> Read:
    """Reads the locks of these names, two requests each; or all that are in use, by a scan."""

    def read() -> Iterator[LockDescription]:
        found = (
            map(locks.describe, names)
            if names
            else (one for one in locks.list(prefix) if one.is_in_use)
        )
        return (lock for lock in found if lock is not None)

    return read


def watch(
    read: Read,
    console: Console,
    clock: Clock,
    *,
    every: float,
    times: int | None = None,
    as_json: bool = False,
) -> int:
    """Shows the locks until Ctrl-C: a table on a terminal, elsewhere a line for each change."""
    try:
        moments = _moments(clock, every, times)
        if console.is_terminal and not as_json:
            _draw(read, console, moments, every=every)
        else:
            _print_changes(read, console, moments, as_json=as_json)
    except KeyboardInterrupt:
        pass
    return 0


def _draw(read: Read, console: Console, moments: Iterator[int], *, every: float) -> None:
    table: RenderableType = Text("")
    with Live(Text("reading the table…"), console=console, auto_refresh=False) as live:
        for now_ms in moments:
            at = iso_utc(now_ms)
            try:
                found = sorted(read(), key=lambda lock: (-lock.waiters.count, lock.name))
                table = lock_table(found, console)
                number = "1 lock" if len(found) == 1 else f"{len(found)} locks"
                head = Text(f"{at}  {number}, every {every:g} s; Ctrl-C ends", "dim")
            except LockStoreUnavailable as error:
                head = Text(f"{at}  no answer: {printable(str(error))}", "red")
            live.update(Group(head, table), refresh=True)


def _print_changes(read: Read, console: Console, moments: Iterator[int], *, as_json: bool) -> None:
    """Prints lines, or objects as of `ls --json`: a lock that is free by now has no holders."""
    changes = _Changes()
    for now_ms in moments:
        at = iso_utc(now_ms)
        try:
            found = list(changes.since_last(read()))
        except LockStoreUnavailable as error:
            if as_json:
                exit_codes.say(f"no answer: {error}")
            else:
                console.file.write(f"{at}\tno answer: {printable(str(error))}\n")
            found = []
        for name, lock in found:
            if as_json:
                console.file.write(f"{json.dumps(lock_json(lock or _free(name, now_ms)))}\n")
            else:
                line = f"{printable(name)}\tfree" if lock is None else lines.one_line(lock)
                console.file.write(f"{at}\t{line}\n")
        console.file.flush()


def _free(name: str, now_ms: int) -> LockDescription:
    none = DescribedQueue()
    return LockDescription(name=name, seen_at=utc(now_ms), limit=None, holders=(), waiters=none)


_Shown = tuple[tuple[int, ...], int, DescribedCeiling | None]
"""Of a lock: who holds, how many wait, and its ceiling."""


@dataclass(slots=True)
class _Changes:
    """What is to be notified of each lock, once."""

    _seen: dict[str, _Shown] = field(default_factory=dict)

    def since_last(
        self, found: Iterable[LockDescription]
    ) -> Iterator[tuple[str, LockDescription | None]]:
        """Each lock that has changed, by its name; None if it is free by now."""
        now: dict[str, _Shown] = {}
        for lock in found:
            holders = tuple(holder.fencing_token for holder in lock.holders)
            now[lock.name] = (holders, lock.waiters.count, lock.ceiling)
            if self._seen.get(lock.name) != now[lock.name]:
                yield lock.name, lock
        for name in self._seen:
            if name not in now:
                yield name, None
        self._seen = now


def _moments(clock: Clock, every: float, times: int | None) -> Iterator[int]:
    for number in count() if times is None else range(times):
        if number:
            clock.wait(every)
        yield clock.wall_ms()


def show(locks: LockClient, place: str, lock_name: str, *, as_json: bool = False) -> int:
    """Prints the holders and the oldest waiters; returns the exit status."""
    found = locks.describe(lock_name)
    if found is None:
        return unknown(place, lock_name)
    if as_json:
        typer.echo(json.dumps(lock_json(found)))
        return 0
    for line in lines.details(found):
        typer.echo(line)
    return 0


def unknown(place: str, lock_name: str) -> int:
    """Says that the table knows no such lock; returns the exit status."""
    why = "it was never used, or not for days; are the name and the table right?"
    exit_codes.say(f"{place} knows no lock {lock_name!r}: {why}")
    return exit_codes.UNKNOWN_LOCK
