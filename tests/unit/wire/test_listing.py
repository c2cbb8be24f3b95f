"""The answer of a list: bounded in locks, bytes and time, and continued where it ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlock.testing.fake_table import MemoryTable
from fairlock.wire import answers
from fairlock.wire.answers import list_answer
from tests.support import FakeClock, acquire, release, store_over

NAMES = [f"lock-{number}" for number in range(5)]


@pytest.fixture
def table(clock: FakeClock) -> MemoryTable:
    table = MemoryTable()
    store = store_over(table, clock)
    for name in NAMES:
        store.acquire(acquire("anna", lock_name=name, data=json.dumps({"x": "y" * 1_000})))
    return table


def pages(table: MemoryTable, **options: Any) -> list[list[str]]:  # noqa: ANN401 - of list_answer
    """The names of each answer, until there is none to go on after."""
    found: list[list[str]] = []
    after: str | None = None
    while True:
        locks = store_over(table, FakeClock()).list_locks("", after=after)
        answer = list_answer(locks, **{"free": False, "has_time": lambda: True, **options})
        found.append([lock["lock_name"] for lock in answer["locks"]])
        after = answer["after"]
        if after is None:
            return found


def test_a_small_table_is_one_answer(table: MemoryTable) -> None:
    assert pages(table) == [NAMES]


@pytest.mark.parametrize(("bound", "most"), [("MOST_LOCKS", 2), ("MOST_BYTES", 2_000)])
def test_a_large_one_is_continued_and_no_lock_is_lost_or_told_twice(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(answers, bound, most)
    found = pages(table)
    assert found == [NAMES[:2], NAMES[2:4], NAMES[4:]]


def test_a_list_ends_in_time_also_while_it_finds_nothing_to_tell(
    table: MemoryTable, clock: FakeClock
) -> None:
    store = store_over(table, clock)
    for name in NAMES:
        store.release(release("anna", lock_name=name))
    assert pages(table, has_time=lambda: False) == [[]] * 6


def test_a_malformed_lock_is_named_and_the_others_come(table: MemoryTable) -> None:
    table.items["LOCK#lock-1", "STATE"]["held"] = {"S": "nonsense"}
    found = store_over(table, FakeClock()).list_locks()
    answer = list_answer(found, free=False, has_time=lambda: True)
    assert answer["malformed"] == ["LOCK#lock-1"]
    assert len(answer["locks"]) == 4
