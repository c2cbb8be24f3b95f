"""Two ways to refuse a stale writer in SQL. The statements run on SQLite and on PostgreSQL.

One row: the row stores the fencing token of its last writer, and the statement that writes it
refuses a smaller token.

Several rows: a table `fence` stores the largest token of each lock. The first statement of the
transaction updates that row, and the database keeps it locked until the commit. So no writer with
another token can write between the statements of the transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

SCHEMA = """
CREATE TABLE report (
    name TEXT PRIMARY KEY,
    content TEXT NOT NULL,
    fencing_token BIGINT NOT NULL
);
CREATE TABLE fence (
    lock_name TEXT PRIMARY KEY,
    fencing_token BIGINT NOT NULL
);
"""

WRITE_ROW = """
INSERT INTO report (name, content, fencing_token) VALUES (:name, :content, :token)
ON CONFLICT (name) DO UPDATE
SET content = excluded.content, fencing_token = excluded.fencing_token
WHERE report.fencing_token <= excluded.fencing_token
"""

WRITE_ROW_UNFENCED = """
INSERT INTO report (name, content, fencing_token) VALUES (:name, :content, :token)
ON CONFLICT (name) DO UPDATE SET content = excluded.content
"""

MOVE_FENCE = """
INSERT INTO fence (lock_name, fencing_token) VALUES (:lock_name, :token)
ON CONFLICT (lock_name) DO UPDATE
SET fencing_token = excluded.fencing_token
WHERE fence.fencing_token <= excluded.fencing_token
"""


class StaleTokenError(Exception):
    """A writer with a larger fencing token has written before; this call wrote nothing."""


def write_report(database: sqlite3.Connection, name: str, content: str, *, token: int) -> None:
    """Writes one row by one statement; raises StaleTokenError if the token is stale."""
    with database:
        values = {"name": name, "content": content, "token": token}
        if database.execute(WRITE_ROW, values).rowcount == 0:
            raise StaleTokenError


@contextmanager
def fenced(
    database: sqlite3.Connection, lock_name: str, *, token: int
) -> Iterator[sqlite3.Connection]:
    """A transaction that first checks the token; raises StaleTokenError if it is stale."""
    with transaction(database):
        moved = database.execute(MOVE_FENCE, {"lock_name": lock_name, "token": token})
        if moved.rowcount == 0:
            raise StaleTokenError
        yield database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """An explicit transaction. Python's sqlite3 begins one by itself with some settings only.

    Without a transaction the row of the fence would not stay locked until the commit.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
