"""Inspect: read who holds and who waits, of one lock or of all.

Neither is a snapshot: a lock and its waiters are several items, and owners go on meanwhile. The
queue is read before the holders, so that a waiter that is handed the lock in between is seen as a
holder; the other order would not show it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fairlock.errors import LockItemMalformed
from fairlock.protocol.description import (
    DescribedQueue,
    LockDescription,
    QueueCount,
    describe_lock,
)
from fairlock.protocol.inspection import (
    is_state,
    lock_name_of,
    locks_of_the_table,
    waiters_to_show,
)
from fairlock.protocol.items import read_state, read_waiter
from fairlock.protocol.model import LockState
from fairlock.protocol.requests import Item
from fairlock.protocol.schema import lock_key
from fairlock.store.context import LockContext


def describe(context: LockContext, lock_name: str) -> LockDescription | None:
    """See `LockStore.describe`."""
    items = context.table.query_all(waiters_to_show(lock_name))
    item = context.table.read(lock_key(lock_name))
    if not item:
        return None
    state, now_ms = read_state(item), context.aws_clock.now_ms()
    waiters = _count(state, now_ms)
    for each in items:
        waiters.add(read_waiter(lock_name, each))
    return describe_lock(lock_name, state, waiters.queue(), now_ms=now_ms)


def list_locks(
    context: LockContext, prefix: str = "", *, after: str | None = None
) -> Iterator[LockDescription | LockItemMalformed]:
    """See `LockStore.list_locks`."""
    start = None if after is None else lock_key(after)
    for name, items in groupby(_items(context, prefix, start), key=lock_name_of):
        try:
            found = _describe(name, items, now_ms=context.aws_clock.now_ms())
        except LockItemMalformed as malformed:
            yield malformed
        else:
            if found is not None:
                yield found


def _items(context: LockContext, prefix: str, after: Item | None) -> Iterator[Item]:
    while True:
        page = context.table.scan(locks_of_the_table(prefix, after=after))
        yield from page.items
        after = page.next
        if after is None:
            return


def _describe(name: str, items: Iterator[Item], *, now_ms: int) -> LockDescription | None:
    """One lock from its items, of which the state comes first; None if that was removed by TTL."""
    state: LockState | None = None
    waiters: QueueCount | None = None
    for item in items:
        if is_state(item):
            state = read_state(item)
            waiters = _count(state, now_ms)
        elif waiters is not None:
            waiters.add(read_waiter(name, item))
    if state is None:
        return None
    return describe_lock(
        name, state, DescribedQueue() if waiters is None else waiters.queue(), now_ms=now_ms
    )


def _count(state: LockState, now_ms: int) -> QueueCount:
    return QueueCount(holders=frozenset(h.owner_id for h in state.holders), now_ms=now_ms)
