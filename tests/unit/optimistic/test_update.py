"""`optimistic.update`: what one client sees, and what becomes of a change when others write too."""

from __future__ import annotations

import itertools
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from examples.bank import __main__ as bank
from examples.bank.account import OverdrawnError, debited
from fairlock import LockClient, optimistic
from fairlock.errors import InvalidRequest, VersionConflict
from testbed.localaws import LocalAws
from tests.support.clocks import WrongClock
from tests.support.faulty_table import FaultyTable, fault, refusal
from tests.unit.optimistic.conftest import (
    ANNA,
    Item,
    add,
    change,
    is_account,
    others_write,
    plain,
    retry_budget,
    stored,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


def test_each_write_raises_the_version_by_one_and_has_an_id_of_its_own(table: Table) -> None:
    written = [change(table, 100) for _ in range(3)]
    assert [item["version"] for item in written if item] == [1, 2, 3]
    assert len({item["version_id"] for item in written if item}) == 3
    assert is_account(table, 300, 3)


@pytest.mark.parametrize("conflicts", [0, 2])
def test_an_update_is_one_read_and_one_write_and_as_many_more_for_a_conflict(
    table: Table, conflicts: int
) -> None:
    plan = [others_write(table, conflicts)] if conflicts else []
    counting = FaultyTable(table, *plan)
    change(counting, 10)
    assert counting.calls == ["get_item", "put_item"] * (1 + conflicts)
    assert is_account(table, 10 + conflicts, 1 + conflicts)


def test_a_change_that_changes_nothing_writes_nothing_whatever_it_does_to_what_it_gets(
    table: Table,
) -> None:
    before = optimistic.put(table, ANNA, {"balance": 100, "tags": ["a"]}, seen=None)

    def spoil(item: Any) -> Any:  # noqa: ANN401 - an item
        item["tags"].append("b")
        return {**item, "tags": ["a"]}

    counting: Any = FaultyTable(table)
    for keep in (lambda item: item, lambda _: {"balance": Decimal(100), "tags": ["a"]}, spoil):
        assert change(counting, keep) == before
    assert optimistic.update(counting, {"account": "ben"}, lambda _: None) is None
    assert counting.calls == ["get_item"] * 4


def test_a_change_may_delete_the_item_and_make_it_again(table: Table) -> None:
    change(table, 100)
    assert optimistic.update(table, ANNA, lambda _: None) is None
    assert stored(table) is None
    change(table, 5)
    assert is_account(table, 5, 1)


def test_an_error_of_the_change_leaves_the_update_and_writes_nothing(table: Table) -> None:
    with pytest.raises(OverdrawnError):
        change(table, Mock(side_effect=OverdrawnError))
    assert stored(table) is None


@pytest.mark.parametrize(("before", "version"), [({}, 2), ({"version": 41}, 43)])
def test_an_item_whose_version_others_count_or_no_one_is_taken_over(
    table: Table, before: dict[str, Any], version: int
) -> None:
    table.put_item(Item={**ANNA, "balance": 7, **before})
    for _ in range(2):
        change(table, 1)
    assert is_account(table, 9, version)


@pytest.mark.parametrize(
    "before",
    [None, {**ANNA, "balance": 0}, {**ANNA, "balance": 0, "version": 41}],
    ids=["no item", "no version", "no id"],
)
@pytest.mark.parametrize("by", ["update", "code that keeps the number only"])
def test_a_writer_in_between_is_not_overwritten(
    table: Table, before: dict[str, Any] | None, by: str
) -> None:
    if before is not None:
        table.put_item(Item=before)

    def write_in_between() -> None:
        if by == "update":
            change(table, 5)
        else:
            version = (before or {}).get("version", 0) + 1
            table.put_item(Item={**ANNA, "balance": 5, "version": version})

    change(table, 10, others_write(table, action=write_in_between))
    assert (stored(table) or {})["balance"] == 15


def test_an_item_made_again_at_the_same_version_is_not_taken_for_the_old_one(table: Table) -> None:
    change(table, 100)

    def delete_and_open_another() -> None:
        optimistic.update(table, ANNA, lambda _: None)
        change(table, 3)

    change(table, 1, others_write(table, action=delete_and_open_another))
    assert is_account(table, 4, 2)


def test_a_change_to_delete_what_others_changed_is_made_again(table: Table) -> None:
    change(table, 0)
    others = others_write(table, action=lambda: change(table, 5))
    change(table, lambda item: item if item["balance"] else None, others)
    assert is_account(table, 5, 2)


@pytest.mark.parametrize("retries", [0, 2])
def test_after_the_last_try_it_is_a_conflict_and_nothing_was_written(
    table: Table, retries: int
) -> None:
    with pytest.raises(VersionConflict, match=rf"before {retries + 1} tries to write it"):
        change(table, 1000, others_write(table, 99), retries=retries)
    assert is_account(table, retries + 1, retries + 1)


def test_the_pauses_have_full_jitter_and_double_up_to_half_a_second(
    table: Table, clock: WrongClock
) -> None:
    change(table, 1, others_write(table, 7), retry_budget=retry_budget(clock))
    longest = [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert clock.waits == [pytest.approx(seconds * 0.5) for seconds in longest]


def test_a_deadline_ends_the_tries(table: Table, clock: WrongClock) -> None:
    limited = replace(retry_budget(clock), deadline=clock.monotonic() + 0.1)
    with pytest.raises(VersionConflict) as caught:
        change(table, 1, others_write(table, 99), retry_budget=limited, retries=10_000)
    assert sum(clock.waits) < 0.3
    assert f"before {len(clock.waits) + 1} tries" in str(caught.value)


def test_an_attribute_of_another_name_can_keep_the_version(table: Table) -> None:
    written = optimistic.update(table, ANNA, add(1), version_attribute="edition")
    assert written is not None
    assert set(written) == {"account", "balance", "edition", "edition_id"}


def test_a_stored_version_that_cannot_be_counted_on_from_is_refused(table: Table) -> None:
    versions: list[Any] = ["1", True, Decimal("1.5"), None, 10**18, Decimal("1e37")]
    for version in versions:
        table.put_item(Item={**ANNA, "balance": 7, "version": version})
        with pytest.raises(InvalidRequest) as caught:
            change(table, 1)
        assert caught.value.field == "version"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"key": {}}, "key: "),
        ({"key": "anna"}, "key: "),
        ({"version_attribute": ""}, "version_attribute: "),
        ({"version_attribute": "account"}, "version_attribute: "),
        ({"retries": -1}, "retries: "),
        ({"retries": 1.5}, "retries: "),
        ({"retries": True}, "retries: "),
        ({"change": None}, "change: "),
        ({"change": lambda item: item.update(balance=70)}, "change: must return"),
        ({"change": lambda _: 5}, "item: must be"),
        ({"change": lambda _: {"account": "ben"}}, "account: .*'ben'"),
    ],
)
def test_arguments_and_changes_that_break_a_rule_are_refused_by_name(
    table: Table, arguments: dict[str, Any], told: str
) -> None:
    change(table, 100)
    with pytest.raises(InvalidRequest, match=f"^{told}") as caught:
        optimistic.update(table, **{"key": ANNA, "change": add(1), **arguments})
    assert told.startswith(f"{caught.value.field}: ")
    assert is_account(table, 100, 1)


def test_a_defect_is_raised_as_boto3_raises_it(table: Table) -> None:
    denied = FaultyTable(table, fault(refusal("AccessDeniedException")))
    with pytest.raises(ClientError, match="AccessDenied"):
        change(denied, 1)
    assert denied.writes == 1


def test_a_change_between_a_number_and_a_truth_value_is_a_change(table: Table) -> None:
    """Python says that True == 1; DynamoDB does not."""
    optimistic.put(table, ANNA, {"open": 1, "parts": [{"done": 0}]}, seen=None)
    optimistic.update(table, ANNA, lambda item: {**(item or {}), "open": True})
    assert (stored(table) or {})["open"] is True
    optimistic.update(table, ANNA, lambda item: {**(item or {}), "parts": [{"done": False}]})
    assert (stored(table) or {})["parts"] == [{"done": False}]
    assert (stored(table) or {})["parts"][0]["done"] is False


def test_what_put_cannot_write_is_refused_by_name(table: Table) -> None:
    puts: list[tuple[Any, Any, str]] = [(5, None, "item"), (None, None, "item"), ({}, 5, "seen")]
    for item, seen, field in puts:
        with pytest.raises(InvalidRequest, match=f"{field}: must be"):
            optimistic.put(table, ANNA, item, seen=seen)
    assert stored(table) is None


# `put` and `delete` on the condition of what was read before.


def test_what_put_returns_is_what_read_finds_and_what_was_seen_next_time(table: Table) -> None:
    counting: Any = FaultyTable(table)
    assert optimistic.read(counting, ANNA) is None
    first = optimistic.put(counting, ANNA, {"balance": 1}, seen=None)
    assert optimistic.read(counting, ANNA) == first
    second = optimistic.put(counting, ANNA, {**first, "balance": 2}, seen=first)
    optimistic.delete(counting, ANNA, seen=second)
    assert counting.calls == ["get_item", "put_item", "get_item", "put_item", "delete_item"]
    assert (plain(second), stored(table)) == ({"account": "anna", "balance": 2, "version": 2}, None)


def test_the_first_write_is_refused_if_there_is_an_item(table: Table) -> None:
    table.put_item(Item={**ANNA, "balance": 7})
    with pytest.raises(VersionConflict):
        optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    assert stored(table) == {"account": "anna", "balance": 7}


@pytest.mark.parametrize("others", ["write", "delete"])
def test_who_read_before_another_write_is_refused(table: Table, others: str) -> None:
    seen = optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    if others == "write":
        optimistic.put(table, ANNA, {"balance": 2}, seen=seen)
    else:
        optimistic.delete(table, ANNA, seen=seen)
    after = stored(table)
    with pytest.raises(VersionConflict, match=r"{'account': 'anna'} was changed by others"):
        optimistic.put(table, ANNA, {"balance": 3}, seen=seen)
    with pytest.raises(VersionConflict):
        optimistic.delete(table, ANNA, seen=seen)
    assert stored(table) == after


# Many writers of one item over real HTTP: every change is there once, in the bank, too.

WRITERS, CHANGES = 8, 48


def test_of_many_concurrent_changes_none_is_lost_and_none_is_made_twice(table: Table) -> None:
    """The first changes wait until all have read, so that all but one of them are in conflict."""
    calls, all_have_read = itertools.count(), threading.Barrier(WRITERS)

    def add_one(item: Item | None) -> Item:
        if next(calls) < WRITERS:
            all_have_read.wait(60)
        return add(1)(item)

    update = partial(optimistic.update, table, ANNA, add_one, retries=100)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda _: update(), range(CHANGES)))
    assert is_account(table, CHANGES, CHANGES)
    assert next(calls) >= CHANGES + WRITERS - 1


LINE = re.compile(r"debits of (\d+) .*\), (.+?) +paid +(\d+), .* balance +(-?\d+), .*: (\w+)")


def test_both_right_ways_are_right_and_the_naive_one_loses_a_debit(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program in this process, on the embedded AWS that is there; its waiter polls often."""
    monkeypatch.setattr(bank, "LocalAws", lambda: nullcontext(aws))
    monkeypatch.setattr(bank, "LockClient", partial(LockClient, longest_poll=0.2))
    try:
        assert bank.main() == 0
    finally:
        for name in ("accounts", "locks"):
            aws.client("dynamodb").delete_table(TableName=name)
    assert LINE.findall(capsys.readouterr().out) == [
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
