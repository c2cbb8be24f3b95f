"""`python -m examples.fenced_sql`: a writer stalls, is replaced, wakes up, and is refused.

The locks are in an embedded AWS on loopback, the data in SQLite. The exit status is 1 if a stale
write is accepted.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from contextlib import closing

from examples.fenced_sql import fence
from fairlock import Lock, LockClient, create_table
from testbed.localaws import LocalAws

LOCK = "nightly-report"


def main() -> int:
    """Runs the example; returns the exit status."""
    say = sys.stdout.write
    with (
        LocalAws() as aws,
        closing(sqlite3.connect(":memory:")) as database,
        LockClient("locks", client=aws.client("dynamodb"), heartbeat_every=math.inf) as sleeper,
        LockClient("locks", client=aws.client("dynamodb")) as successor,
    ):
        create_table(aws.client("dynamodb"), "locks")
        database.executescript(fence.SCHEMA)

        stale = sleeper.acquire(LOCK, lease=1)
        say(f"anna holds the lock, token {stale.fencing_token}, and falls asleep\n")
        current = successor.acquire(LOCK, max_wait=30)
        say(f"her lease runs out; ben takes over, token {current.fencing_token}\n")

        fence.write_report(database, "sales", "by ben", token=current.fencing_token)
        with fence.fenced(database, LOCK, token=current.fencing_token) as inside:
            inside.execute("INSERT INTO report VALUES ('costs', 'by ben', 0)")
        say("ben writes one row, and another in a transaction\n")
        refused = [attempt(database, stale) for attempt in (row, transaction)]
        say(f"anna wakes up and writes one row: {_told(refused=refused[0])}\n")
        say(f"anna wakes up and writes a transaction: {_told(refused=refused[1])}\n")
        say(f"the report is {content(database)}\n")
        unharmed = content(database) == "by ben"

        values = {"name": "sales", "content": "by anna", "token": stale.fencing_token}
        with database:
            database.execute(fence.WRITE_ROW_UNFENCED, values)
        say(f"without the fence the same write goes through: the report is {content(database)}\n")
        return 0 if all(refused) and unharmed and content(database) == "by anna" else 1


def row(database: sqlite3.Connection, lock: Lock) -> bool:
    """Tries to write one row; returns whether the write was refused."""
    try:
        fence.write_report(database, "sales", "by anna", token=lock.fencing_token)
    except fence.StaleTokenError:
        return True
    return False


def transaction(database: sqlite3.Connection, lock: Lock) -> bool:
    """Tries a transaction; returns whether it was refused."""
    try:
        with fence.fenced(database, LOCK, token=lock.fencing_token) as inside:
            inside.execute("DELETE FROM report")
    except fence.StaleTokenError:
        return True
    return False


def content(database: sqlite3.Connection) -> str:
    """Reads the text of the report."""
    [(text,)] = database.execute("SELECT content FROM report WHERE name = 'sales'").fetchall()
    return str(text)


def _told(*, refused: bool) -> str:
    return "refused" if refused else "ACCEPTED"


if __name__ == "__main__":
    sys.exit(main())
