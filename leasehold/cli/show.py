"""`leasehold show`: holders and waiters of a lock. Owner ids prove ownership and stay hidden."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leasehold.client.arguments import require
from leasehold.clock import iso_utc
from leasehold.dynamodb.lock_table import LockTable
from leasehold.protocol.items import read_state, read_waiter
from leasehold.protocol.queue import MOST_WAITERS_SEEN, oldest_waiters
from leasehold.protocol.schema import lock_key
from leasehold.wire.rules import LOCK_NAME

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def show(client: DynamoDBClient, table_name: str, lock_name: str) -> None:
    """Prints a table of the holders and the oldest waiters; two requests.

    Raises:
        InvalidRequest: the lock's name breaks its rule.
        LockStoreUnavailable: the lock table did not answer.
    """
    require("name", LOCK_NAME, lock_name)
    table = LockTable(client, table_name)
    state = read_state(table.read(lock_key(lock_name)))
    waiters = [read_waiter(lock_name, item) for item in table.query(oldest_waiters(lock_name))]
    now_ms = time.time_ns() // 1_000_000
    shown = Table()
    for heading in ("", "owner", "since", "lease ends", "fencing token", "data"):
        shown.add_column(heading, overflow="fold")
    for holder in state.holders:
        over = " (over)" if holder.expires_at_ms < now_ms else ""
        shown.add_row(
            "holds",
            escape(holder.owner_name),
            iso_utc(holder.acquired_at_ms),
            iso_utc(holder.expires_at_ms) + over,
            str(holder.fencing_token),
            escape(holder.data or ""),
        )
    for waiter in waiters:
        shown.add_row("waits", escape(waiter.request.owner_name), iso_utc(waiter.entered_at_ms))
    console = Console()
    if not shown.row_count:
        console.print(f"{lock_name}: free", markup=False, highlight=False)
        return
    console.print(shown)
    if len(waiters) == MOST_WAITERS_SEEN:
        console.print(f"These are the first {MOST_WAITERS_SEEN} in the queue.")
