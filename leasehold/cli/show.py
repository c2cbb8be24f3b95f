"""`leasehold show`: holders and waiters of a lock. Owner ids prove ownership and stay hidden.

What others have stored is printed without a character that the terminal would obey, and a line has
one value, so that no terminal breaks a token in two.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import typer

from leasehold.cli import exit_codes
from leasehold.clock import iso_utc
from leasehold.dynamodb.lock_table import LockTable
from leasehold.protocol.items import read_state, read_waiter
from leasehold.protocol.model import Holder, LockState, Waiter
from leasehold.protocol.queue import oldest_waiters
from leasehold.protocol.schema import lock_key
from leasehold.text import printable
from leasehold.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MOST_WAITERS_SHOWN: Final = 20


def show(client: DynamoDBClient, table_name: str, lock_name: str) -> int:
    """Prints the holders and the oldest waiters; returns the exit status.

    Two requests, and one more for each MB of waiters.

    Raises:
        InvalidRequest: the lock's name breaks its rule.
        LockStoreUnavailable: the lock table did not answer.
        LockStoreMisconfigured: AWS refuses.
        LockItemMalformed: somebody has changed an item of the lock.
    """
    rules.require("name", rules.LOCK_NAME, lock_name)
    table = LockTable(client, table_name)
    item = table.read(lock_key(lock_name))
    if not item:
        why = "nobody has used it, or not for days; is the name right?"
        exit_codes.say(f"table {table_name!r} knows no lock {lock_name!r}: {why}")
        return exit_codes.UNKNOWN_LOCK
    waiters = [
        read_waiter(lock_name, waiter)
        for waiter in table.query_all(replace(oldest_waiters(lock_name), most=None))
    ]
    for line in _lines(lock_name, read_state(item), waiters, now_ms=time.time_ns() // 1_000_000):
        typer.echo(printable(line))
    return 0


def _lines(
    lock_name: str, state: LockState, waiters: list[Waiter], *, now_ms: int
) -> Iterator[str]:
    held = f"held by {len(state.holders)} of {state.limit}" if state.holders else "free"
    yield f"{lock_name}: {held}, {len(waiters)} waiting"
    for holder in state.holders:
        yield "holder"
        yield from _of_holder(holder, now_ms=now_ms)
    for position, waiter in enumerate(waiters[:_MOST_WAITERS_SHOWN], start=1):
        yield f"waiter {position} of {len(waiters)}"
        yield f"  owner: {_name(waiter.request.owner_name)}"
        yield f"  since: {iso_utc(waiter.entered_at_ms)}"
        yield f"  limit: {waiter.request.limit}"


def _of_holder(holder: Holder, *, now_ms: int) -> Iterator[str]:
    over = " (over)" if holder.expires_at_ms < now_ms else ""
    yield f"  owner: {_name(holder.owner_name)}"
    yield f"  since: {iso_utc(holder.acquired_at_ms)}"
    yield f"  lease ends: {iso_utc(holder.expires_at_ms)}{over}"
    yield f"  fencing token: {holder.fencing_token}"
    if holder.data is not None:
        yield f"  data: {holder.data}"


def _name(owner_name: str) -> str:
    return owner_name or "(no name)"
