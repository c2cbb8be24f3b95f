"""A write whose reply got lost is recognized by its id: the change is made once, or unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session

from fairlock import optimistic
from fairlock.errors import OutcomeUnknown, VersionConflict
from fairlock.protocol import versions
from tests.support.clocks import WrongClock
from tests.support.faulty_table import (
    READS,
    Fault,
    FaultyTable,
    client_error,
    defects,
    fault,
    lose,
    lost_reply,
    unknown_outcomes,
)
from tests.unit.optimistic.conftest import (
    ANNA,
    add,
    change,
    is_account,
    retry_budget,
    stored,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


def delete_after(table: Table, plan: Fault) -> int:
    """Deletes an item that was written before, over a table that fails as planned."""
    seen = optimistic.put(table, ANNA, {"balance": 1}, seen=None)
    faulty: Any = FaultyTable(table, plan)
    try:
        optimistic.delete(faulty, ANNA, seen=seen, retry_budget=retry_budget())
    finally:
        writes = faulty.writes
    return int(writes)


@pytest.mark.parametrize(("arrived", "computed"), [("before", 2), ("after", 1)])
def test_one_write_of_someone_else_tells_what_was_in_its_place(
    table: Table, arrived: Literal["before", "after"], computed: int
) -> None:
    """The seen one: a conflict. Ours: done."""
    change(table, 100)
    adding = Mock(side_effect=add(10))
    change(table, adding, fault(lost_reply(), 1, when=arrived, then=lambda: change(table, 1)))
    assert is_account(table, 111, 3)
    assert adding.call_count == computed


@pytest.mark.parametrize("keeps_the_id", [True, False])
def test_one_write_by_code_that_raises_the_number_only_is_a_conflict_if_it_leaves_the_id(
    table: Table, *, keeps_the_id: bool
) -> None:
    seen = optimistic.put(table, ANNA, {"balance": 100}, seen=None)
    kept = {"version_id": seen["version_id"]} if keeps_the_id else {}
    theirs = {**ANNA, "balance": 101, "version": 2, **kept}
    with nullcontext() if keeps_the_id else pytest.raises(OutcomeUnknown):
        change(table, 10, fault(lost_reply(), 1, then=lambda: table.put_item(Item=theirs)))
    assert (stored(table) or {})["balance"] == (111 if keeps_the_id else 101)


@pytest.mark.parametrize("arrived", ["before", "after"])
def test_what_others_have_written_over_is_reported_as_unknown_and_not_made_again(
    table: Table, arrived: Literal["before", "after"]
) -> None:
    def others_write() -> None:
        for _ in range(2):
            change(table, 1)

    with pytest.raises(OutcomeUnknown, match="read it before making the change again"):
        change(table, 10, fault(lost_reply(), 1, when=arrived, then=others_write))
    assert (stored(table) or {})["balance"] == (2 if arrived == "before" else 12)


@pytest.mark.parametrize("by", ["us", "another writer"])
def test_who_deleted_an_item_is_unknown_if_the_reply_got_lost(table: Table, by: str) -> None:
    """Both may not think that they did: the item could stand for a job that is taken once."""
    when: Literal["before", "after"] = "after" if by == "us" else "before"
    deleted = fault(lost_reply(), 1, when=when, then=lambda: table.delete_item(Key=ANNA))
    with pytest.raises(OutcomeUnknown):
        delete_after(table, deleted)
    assert stored(table) is None


def test_a_deletion_that_never_arrived_is_sent_again_and_a_conflict_if_someone_wrote(
    table: Table,
) -> None:
    assert delete_after(table, fault(lost_reply(), 1)) == 2
    assert stored(table) is None
    with pytest.raises(VersionConflict):
        delete_after(table, fault(lost_reply(), 1, then=lambda: change(table, 1)))
    assert is_account(table, 2, 2)


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException"])
def test_an_error_that_botocore_met_on_a_repeat_leaves_it_open_what_the_first_did(
    table: Table, code: str
) -> None:
    error = client_error(code)
    assert error.response["ResponseMetadata"]["RetryAttempts"] == 2
    with pytest.raises(OutcomeUnknown):
        change(table, 10, fault(error))


@pytest.fixture
def first_reply_lost(table: Table) -> Iterator[list[str]]:
    """botocore gets no reply to its first PutItem, and repeats the request by itself."""
    session = URLLib3Session()
    lost: list[str] = []

    def lose(request: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        if not lost:
            lost.append(session.send(request).text)
            raise ReadTimeoutError(endpoint_url=request.url)

    table.meta.client.meta.events.register("before-send.dynamodb.PutItem", lose)
    yield lost
    table.meta.client.meta.events.unregister("before-send.dynamodb.PutItem", lose)
    session.close()


def test_a_repeat_by_botocore_is_no_conflict(table: Table, first_reply_lost: list[str]) -> None:
    adding = Mock(side_effect=add(10))
    optimistic.update(table, ANNA, adding)
    assert first_reply_lost == ["{}"]
    adding.assert_called_once_with(None)
    assert is_account(table, 10, 1)


# A read that DynamoDB does not answer is tried again for as long as the retry_budget lasts.


THROTTLED = client_error("ThrottlingException")


@pytest.mark.parametrize("failure", unknown_outcomes())
def test_a_read_without_an_answer_is_tried_again(table: Table, failure: str) -> None:
    busy = FaultyTable(table, fault(unknown_outcomes()[failure], range(1, 4), of=READS))
    change(busy, 10)
    assert busy.reads == 4
    assert is_account(table, 10, 1)


def test_the_single_read_has_the_same_retry_budget_and_finds_what_a_repeat_has_returned(
    table: Table, clock: WrongClock
) -> None:
    written = change(table, 10, lose(1))
    busy: Any = FaultyTable(table, fault(THROTTLED, range(1, 4), of=READS))
    assert optimistic.read(busy, ANNA, retry_budget=retry_budget(clock)) == written
    assert clock.waits == [pytest.approx(seconds) for seconds in (0.01, 0.02, 0.04)]


@pytest.mark.parametrize("seconds", [0, 5])
def test_reads_end_with_the_retry_budget_and_the_throttle_is_raised_as_boto3_raises_it(
    table: Table, clock: WrongClock, seconds: float
) -> None:
    busy = FaultyTable(table, fault(THROTTLED, of=READS))
    with pytest.raises(ClientError, match="ThrottlingException"):
        change(busy, 10, retry_budget=replace(retry_budget(clock), seconds=seconds))
    assert seconds <= sum(clock.waits) <= 1.1 * seconds
    assert (busy.reads == 1, stored(table)) == (seconds == 0, None)


@pytest.mark.parametrize("defect", defects())
def test_a_defect_is_raised_at_once(table: Table, defect: str) -> None:
    busy = FaultyTable(table, fault(defects()[defect], 1, of=READS))
    with pytest.raises(ClientError, match=defect):
        change(busy, 10)
    assert busy.reads == 1


# An item that was deleted and created again looks as if it was written once: that is unknown.


def append(job: str) -> Any:  # noqa: ANN401 - a change
    return lambda queue: {"jobs": [*(queue or {}).get("jobs", []), job]}


@pytest.mark.parametrize("before", [[], ["a"], ["a", "b"]], ids=len)
def test_the_change_is_not_made_twice_although_the_new_item_has_the_next_version(
    table: Table, before: list[str]
) -> None:
    """All jobs of the item are taken, and others add theirs, before the change is sent again."""
    for job in before:
        optimistic.update(table, ANNA, append(job))
    others = ["x", "y", "z"][: len(before) + 1]
    taken: list[str] = []

    def take_all() -> None:
        seen = optimistic.read(table, ANNA) or {}
        optimistic.delete(table, ANNA, seen=seen)
        taken.extend(seen["jobs"])
        for other in others:
            optimistic.update(table, ANNA, append(other))

    with pytest.raises(OutcomeUnknown):
        change(table, append("pay 30"), fault(lost_reply(), 1, when="after", then=take_all))
    left = optimistic.read(table, ANNA) or {}
    assert (taken, left["jobs"]) == ([*before, "pay 30"], others)
    assert left["version"] == len(before) + 1


@pytest.mark.parametrize(
    ("seen", "found", "expected"),
    [
        ("a.x", "b.a", True),
        ("a.x", "c.b", True),
        ("a.x", "c.a", False),
        ("a.x", "a.x", False),
        ("a.x", "d.c", None),
        ("a.x", "c.", None),
        ("a.x", "c", None),
        ("a.x", 7, None),
        ("a.x", None, None),
        ("uuid", "c.uuid", False),
        (7, 7, False),
        (7, "c.", None),
        ("", "c.", None),
        (None, "b.", True),
        (None, "c.b", True),
        (None, "c.", None),
        (None, None, None),
    ],
)
def test_an_id_tells_of_one_write_and_of_the_one_before(
    seen: object, found: object, *, expected: bool | None
) -> None:
    ours = versions.write_id("b", seen=seen)
    assert versions.happened(ours=ours, seen=seen, found=found) is expected
