"""Many writers of one item over real HTTP: every change is there once."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.bank.account import OverdrawnError, debited
from fairlock import optimistic
from tests.unit.optimistic.tables import ANNA, add, stored

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


WRITERS = 8
CHANGES_EACH = 6


def all_at_once(table: Table, make_change: Callable[[Table], object]) -> None:
    barrier = threading.Barrier(WRITERS)

    def work(_number: int) -> None:
        barrier.wait(60)
        for _ in range(CHANGES_EACH):
            make_change(table)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(work, range(WRITERS)))


def test_of_many_concurrent_changes_none_is_lost_and_none_is_made_twice(table: Table) -> None:
    computed: list[Any] = []

    def change(item: Any) -> Any:  # noqa: ANN401 - an item
        computed.append(item)
        return add(1)(item)

    all_at_once(table, lambda table: optimistic.update(table, ANNA, change, retries=100))
    changes = WRITERS * CHANGES_EACH
    assert stored(table) == {"account": "anna", "balance": changes, "version": changes}
    assert len(computed) > changes  # there were conflicts


def test_without_the_condition_changes_are_lost(table: Table) -> None:
    """The negative control."""

    def naive(table: Table) -> None:
        item: Any = table.get_item(Key=ANNA, ConsistentRead=True).get("Item")
        table.put_item(Item={**ANNA, **add(1)(item)})

    all_at_once(table, naive)
    assert (stored(table) or {})["balance"] < WRITERS * CHANGES_EACH


# The bank of the subject: two concurrent debits, both right ways and the naive one.


ROOT = Path(__file__).resolve().parents[3]
LINE = re.compile(r"debits of (\d+) .*\), (.+?) +paid +(\d+), .* balance +(-?\d+), .*: (\w+)")


def test_both_right_ways_are_right_and_the_naive_one_loses_a_debit() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "examples.bank"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert LINE.findall(finished.stdout) == [
        ("60", "naive", "120", "40", "WRONG"),
        ("60", "optimistic", "120", "-20", "right"),
        ("60", "with the lock", "120", "-20", "right"),
        ("80", "naive", "160", "20", "WRONG"),
        ("80", "optimistic", "80", "20", "right"),
        ("80", "with the lock", "80", "20", "right"),
    ]


def test_a_debit_may_reach_the_overdraft_limit_and_not_go_below() -> None:
    account = {"balance": 10, "overdraft_limit": 50}
    assert debited(account, 60) == {"balance": -50, "overdraft_limit": 50}
    with pytest.raises(OverdrawnError):
        debited(account, 61)
    with pytest.raises(LookupError):
        debited(None, 1)
