"""Many writers of one item over real HTTP: every change is there once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

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
