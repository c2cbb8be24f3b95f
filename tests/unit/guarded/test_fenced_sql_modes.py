"""The SQL pattern is one transaction, however Python's sqlite3 handles transactions by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from examples.fenced_sql import fence

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


def contents(file: Path) -> list[str]:
    """What others see."""
    with closing(sqlite3.connect(file)) as database:
        return [text for (text,) in database.execute("SELECT content FROM report ORDER BY name")]


def test_nothing_is_written_before_the_end_and_everything_then(
    database: sqlite3.Connection, file: Path
) -> None:
    with fence.fenced(database, "lock", token=7) as inside:
        for name in ("costs", "sales"):
            inside.execute("INSERT INTO report VALUES (?, ?, 0)", (name, name))
        assert contents(file) == []
    assert contents(file) == ["costs", "sales"]


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
    assert contents(file) == ["under 6"]


def test_nobody_else_moves_the_fence_until_the_end(
    database: sqlite3.Connection, file: Path
) -> None:
    with (
        closing(sqlite3.connect(file, timeout=0)) as successor,
        fence.fenced(database, "lock", token=6) as inside,
    ):
        inside.execute("INSERT INTO report VALUES ('sales', 'under 6', 0)")
        with (
            pytest.raises(sqlite3.OperationalError, match="locked"),
            fence.fenced(successor, "lock", token=7),
        ):
            pass
    assert contents(file) == ["under 6"]
    with (
        closing(sqlite3.connect(file, timeout=0)) as successor,
        fence.fenced(successor, "lock", token=7),
    ):
        pass
    with pytest.raises(fence.StaleTokenError), fence.fenced(database, "lock", token=6):
        pass
