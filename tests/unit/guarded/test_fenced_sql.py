"""The SQL pattern: the example runs, and its statements refuse what they should."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from examples.fenced_sql import fence

ROOT = Path(__file__).resolve().parents[3]


# Python's sqlite3 handles transactions by itself, in one of several modes.

MODES: list[dict[str, Any]] = [
    {"isolation_level": "DEFERRED"},
    {"isolation_level": None},
    *([{"autocommit": True}] if hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL") else []),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "reports"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(fence.SCHEMA)
    return file


@pytest.fixture(params=MODES, ids=str)
def database(file: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, **request.param)) as database:
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
    with pytest.raises(fence.StaleTokenError), fence.fenced(database, "lock", token=6) as inside:
        inside.execute("DELETE FROM report")
    assert contents(database) == ["under 7"]


def seen_by_others(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return contents(database)


def test_a_transaction_that_fails_undoes_its_first_write_and_its_fence(
    database: sqlite3.Connection, file: Path
) -> None:
    def fail_halfway() -> None:
        with fence.fenced(database, "lock", token=7) as inside:
            inside.execute("INSERT INTO report VALUES ('sales', 'under 7', 0)")
            inside.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        fail_halfway()
    with fence.fenced(database, "lock", token=6) as inside:
        inside.execute("INSERT INTO report VALUES ('sales', 'under 6', 0)")
    assert seen_by_others(file) == ["under 6"]


def test_until_the_end_no_one_else_sees_a_write_or_moves_the_fence(
    database: sqlite3.Connection, file: Path
) -> None:
    with closing(sqlite3.connect(file, timeout=0)) as successor:
        with fence.fenced(database, "lock", token=6) as inside:
            for name in ("costs", "sales"):
                inside.execute("INSERT INTO report VALUES (?, ?, 0)", (name, name))
            with (
                pytest.raises(sqlite3.OperationalError, match="locked"),
                fence.fenced(successor, "lock", token=7),
            ):
                pass
            assert seen_by_others(file) == []
        assert seen_by_others(file) == ["costs", "sales"]
        with fence.fenced(successor, "lock", token=7):
            pass
    with pytest.raises(fence.StaleTokenError), fence.fenced(database, "lock", token=6):
        pass
