"""The SQL pattern: the example runs, and its statements refuse what they should."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.fenced_sql import fence

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(fence.SCHEMA)
        yield database


def contents(database: sqlite3.Connection) -> list[str]:
    return [text for (text,) in database.execute("SELECT content FROM report ORDER BY name")]


def test_the_example_shows_a_stale_writer_refused_and_the_control_accepted() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "examples.fenced_sql"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[3:] == [
        "anna wakes up and writes one row: refused",
        "anna wakes up and writes a transaction: refused",
        "the report is by ben",
        "without the fence the same write goes through: the report is by anna",
    ]


def test_a_row_takes_the_first_write_and_equal_and_newer_tokens(
    database: sqlite3.Connection,
) -> None:
    for token in (5, 5, 7):
        fence.write_report(database, "sales", f"under {token}", token=token)
    with pytest.raises(fence.StaleTokenError):
        fence.write_report(database, "sales", "under 6", token=6)
    assert contents(database) == ["under 7"]


def test_a_transaction_under_an_older_token_writes_nothing(database: sqlite3.Connection) -> None:
    with fence.fenced(database, "lock", token=7) as inside:
        inside.execute("INSERT INTO report VALUES ('sales', 'under 7', 7)")
    with (
        pytest.raises(fence.StaleTokenError),
        fence.fenced(database, "lock", token=6) as inside,
    ):
        inside.execute("DELETE FROM report")
    assert contents(database) == ["under 7"]


def test_a_transaction_that_fails_moves_no_fence(database: sqlite3.Connection) -> None:
    with (
        pytest.raises(sqlite3.OperationalError),
        fence.fenced(database, "lock", token=7) as inside,
    ):
        inside.execute("INSERT INTO nowhere VALUES (1)")
    with fence.fenced(database, "lock", token=6) as inside:
        inside.execute("INSERT INTO report VALUES ('sales', 'under 6', 6)")
    assert contents(database) == ["under 6"]


def test_without_the_fence_the_older_token_overwrites(database: sqlite3.Connection) -> None:
    fence.write_report(database, "sales", "under 7", token=7)
    values = {"name": "sales", "content": "under 6", "token": 6}
    database.execute(fence.WRITE_ROW_UNFENCED, values)
    assert contents(database) == ["under 6"]
