"""`fairlock watch`: the locks that are held or waited for, read again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fairlock.cli import lines
from fairlock.cli.list_locks import is_wanted
from fairlock.cli.lock_table_view import lock_table
from fairlock.client.lock_client import LockClient
from fairlock.clock import Clock, iso_utc
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.description import LockDescription
from fairlock.text import printable

Read = Callable[[], Iterable[LockDescription]]


def reader(locks: LockClient, names: Sequence[str], prefix: str | None) -> Read:
    """Reads the locks of these names, two requests each; or all that are in use, by a scan."""

    def read() -> Iterator[LockDescription]:
        if names:
            found = (locks.describe(name) for name in names)
            yield from (lock for lock in found if lock is not None)
        else:
            yield from (
                lock for lock in locks.list(prefix) if is_wanted(lock, waiting=False, free=False)
            )

    return read


def watch(
    read: Read, console: Console, clock: Clock, *, every: float, times: int | None = None
) -> int:
    """Shows the locks until Ctrl-C; returns the exit status.

    On a terminal the table is drawn anew each time. Elsewhere a line is printed for each lock when
    it is first seen, changes hands, or another number waits, and when it is free again. A table
    that does not answer is told, and read again.

    Args:
        read: reads the locks.
        console: where to.
        clock: waits in between.
        every: seconds between two readings.
        times: how often to read; None for ever.
    """
    try:
        if console.is_terminal:
            _draw(read, console, clock, every=every, times=times)
        else:
            _print_changes(read, console, clock, every=every, times=times)
    except KeyboardInterrupt:
        pass
    return 0


def _draw(read: Read, console: Console, clock: Clock, *, every: float, times: int | None) -> None:
    table: RenderableType = Text("")
    with Live(Text("reading the table…"), console=console, auto_refresh=False) as live:
        for _ in _rounds(clock, every, times):
            at = iso_utc(clock.wall_ms())
            try:
                found = sorted(read(), key=lambda lock: (-lock.waiters.count, lock.name))
                table = lock_table(found, console)
                number = "1 lock" if len(found) == 1 else f"{len(found)} locks"
                head = Text(f"{at}  {number}, every {every:g} s; Ctrl-C ends", "dim")
            except LockStoreUnavailable as error:
                head = Text(f"{at}  no answer: {printable(str(error))}", "red")
            live.update(Group(head, table), refresh=True)


def _print_changes(
    read: Read, console: Console, clock: Clock, *, every: float, times: int | None
) -> None:
    changes = _Changes()
    for _ in _rounds(clock, every, times):
        at = iso_utc(clock.wall_ms())
        try:
            told = list(changes.since_last(read()))
        except LockStoreUnavailable as error:
            told = [f"no answer: {printable(str(error))}"]
        for line in told:
            console.file.write(f"{at}\t{line}\n")
        console.file.flush()


@dataclass(slots=True)
class _Changes:
    """What is to be told of each lock, once."""

    _seen: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)

    def since_last(self, found: Iterable[LockDescription]) -> Iterator[str]:
        now: dict[str, tuple[tuple[int, ...], int]] = {}
        for lock in found:
            holders = tuple(holder.fencing_token for holder in lock.holders)
            now[lock.name] = (holders, lock.waiters.count)
            if self._seen.get(lock.name) != now[lock.name]:
                yield lines.one_line(lock)
        for name in self._seen:
            if name not in now:
                yield f"{printable(name)}\tfree"
        self._seen = now


def _rounds(clock: Clock, every: float, times: int | None) -> Iterator[int]:
    """Counts rounds, with the pause between two."""
    number = 0
    while times is None or number < times:
        if number:
            clock.wait(every)
        yield number
        number += 1
