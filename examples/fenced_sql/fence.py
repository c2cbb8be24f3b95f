"""The two statements. They run as they stand on SQLite and, with BIGINT, on PostgreSQL.

One row keeps its own fence: the write itself refuses an older token, first write included.
Several rows share the fence of the lock: the first statement of a transaction moves it, and holds
it until the commit, so that the rest of the transaction is as safe as that statement.
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
    """Somebody with a newer fencing token has written before. Nothing was written."""


def write_report(database: sqlite3.Connection, name: str, content: str, *, token: int) -> None:
    """One row, in one statement."""
    with database:
        values = {"name": name, "content": content, "token": token}
        if database.execute(WRITE_ROW, values).rowcount == 0:
            raise StaleTokenError


@contextmanager
def fenced(
    database: sqlite3.Connection, lock_name: str, *, token: int
) -> Iterator[sqlite3.Connection]:
    """A transaction of as many statements as one likes."""
    with transaction(database):
        moved = database.execute(MOVE_FENCE, {"lock_name": lock_name, "token": token})
        if moved.rowcount == 0:
            raise StaleTokenError
        yield database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Begun here: Python's sqlite3 does so by itself with some settings only (`isolation_level`).

    Without a transaction the fence would be moved and not held.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
