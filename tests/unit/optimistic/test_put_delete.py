"""`put` and `delete` on the condition of what was read before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlock import optimistic
from fairlock.errors import InvalidRequest, VersionConflict
from tests.support import CountingClient
from tests.unit.optimistic.tables import ANNA, plain, stored

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


def test_what_put_returns_is_what_was_seen_next_time(table: Table) -> None:
    counting: Any = CountingClient(table)
    first = optimistic.put(counting, ANNA, {"balance": 1}, seen=None)
    second = optimistic.put(counting, ANNA, {**first, "balance": 2}, seen=first)
    optimistic.delete(counting, ANNA, seen=second)
    assert counting.calls == ["put_item", "put_item", "delete_item"]
    assert (plain(second), stored(table)) == ({"account": "anna", "balance": 2, "version": 2}, None)


def test_the_first_write_is_refused_if_there_is_an_item(table: Table) -> None:
    table.put_item(Item={**ANNA, "balance": 7})
    with pytest.raises(VersionConflict):
        optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    assert stored(table) == {"account": "anna", "balance": 7}


def test_who_read_before_another_write_is_refused(table: Table) -> None:
    seen = optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    optimistic.put(table, ANNA, {"balance": 2}, seen=seen)
    with pytest.raises(VersionConflict, match=r"{'account': 'anna'} was changed by others"):
        optimistic.put(table, ANNA, {"balance": 3}, seen=seen)
    with pytest.raises(VersionConflict):
        optimistic.delete(table, ANNA, seen=seen)
    assert stored(table) == {"account": "anna", "balance": 2, "version": 2}


def test_an_item_that_was_deleted_meanwhile_is_not_written_again(table: Table) -> None:
    seen = optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    optimistic.delete(table, ANNA, seen=seen)
    with pytest.raises(VersionConflict):
        optimistic.put(table, ANNA, {"balance": 2}, seen=seen)
    with pytest.raises(VersionConflict):
        optimistic.delete(table, ANNA, seen=seen)
    assert stored(table) is None


def test_read_is_consistent_and_gives_what_put_wants_to_know(table: Table) -> None:
    assert optimistic.read(table, ANNA) is None
    optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    optimistic.put(table, ANNA, {"balance": 2}, seen=optimistic.read(table, ANNA))
    assert stored(table) == {"account": "anna", "balance": 2, "version": 2}


def test_without_a_condition_the_second_writer_wins(table: Table) -> None:
    """The negative control: both have read version 1."""
    optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    table.put_item(Item={**ANNA, "balance": 2})
    table.put_item(Item={**ANNA, "balance": 3})
    assert stored(table) == {"account": "anna", "balance": 3}


def test_put_deletes_nothing_for_want_of_an_item(table: Table) -> None:
    nothing: Any = None
    seen = optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    with pytest.raises(InvalidRequest, match="item: must be an item"):
        optimistic.put(table, ANNA, nothing, seen=seen)
    assert stored(table) == {"account": "anna", "balance": 1, "version": 1}
