"""A read that DynamoDB does not answer is tried again for as long as the retry_budget lasts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from fairlock import optimistic
from tests.support import FakeClock
from tests.support.faults import client_error, defects, unknown_outcomes
from tests.unit.optimistic.tables import ANNA, BusyTable, add, retry_budget, stored

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


@pytest.mark.parametrize("failure", unknown_outcomes())
def test_a_read_without_an_answer_is_tried_again(table: Table, failure: str) -> None:
    busy: Any = BusyTable(table, unknown_outcomes()[failure], times=3)
    optimistic.update(busy, ANNA, add(10), retry_budget=retry_budget())
    assert (busy.reads, stored(table)) == (4, {"account": "anna", "balance": 10, "version": 1})


def test_the_single_read_has_the_same_retry_budget(table: Table, clock: FakeClock) -> None:
    written = optimistic.update(table, ANNA, add(10))
    busy: Any = BusyTable(table, client_error("ThrottlingException"), times=3)
    assert optimistic.read(busy, ANNA, retry_budget=retry_budget(clock)) == written
    assert clock.waits == [pytest.approx(seconds) for seconds in (0.01, 0.02, 0.04)]


def test_without_a_retry_budget_the_first_throttle_is_raised_as_boto3_raises_it(
    table: Table,
) -> None:
    busy: Any = BusyTable(table, client_error("ThrottlingException"), times=1)
    with pytest.raises(ClientError, match="ThrottlingException"):
        optimistic.update(busy, ANNA, add(10), retry_budget=replace(retry_budget(), seconds=0))
    assert (busy.reads, stored(table)) == (1, None)


def test_reads_end_with_the_retry_budget(table: Table, clock: FakeClock) -> None:
    busy: Any = BusyTable(table, client_error("ThrottlingException"), times=10_000)
    with pytest.raises(ClientError, match="ThrottlingException"):
        optimistic.update(busy, ANNA, add(10), retry_budget=retry_budget(clock))
    assert 5 <= sum(clock.waits) < 5.5


@pytest.mark.parametrize("defect", defects())
def test_a_defect_is_raised_at_once(table: Table, defect: str) -> None:
    busy: Any = BusyTable(table, defects()[defect], times=1)
    with pytest.raises(ClientError, match=defect):
        optimistic.update(busy, ANNA, add(10), retry_budget=retry_budget())
    assert busy.reads == 1
