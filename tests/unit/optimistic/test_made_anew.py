"""An item that was deleted and created again looks as if it was written once: that is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlock import optimistic
from fairlock.errors import OutcomeUnknown
from fairlock.protocol import versions
from tests.support.faults import FaultyClient, lost_reply
from tests.unit.optimistic.tables import ANNA, retry_budget

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Item = dict[str, Any]


def append(job: str) -> Any:  # noqa: ANN401 - a change
    return lambda queue: {"jobs": [*(queue or {}).get("jobs", []), job]}


class Queue:
    """Jobs in one item, which is deleted when they are taken."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.taken: list[str] = []

    def take_all(self) -> None:
        seen = optimistic.read(self.table, ANNA) or {}
        optimistic.delete(self.table, ANNA, seen=seen)
        self.taken += seen["jobs"]

    def jobs(self) -> list[str]:
        """Those taken, and those left."""
        return [*self.taken, *(optimistic.read(self.table, ANNA) or {"jobs": []})["jobs"]]

    def add_and_lose_the_reply(self, job: str, *, then: list[str]) -> None:
        """All are taken, and others add these, before the change is sent again."""

        def others() -> None:
            self.take_all()
            for other in then:
                optimistic.update(self.table, ANNA, append(other))

        faulty: Any = FaultyClient(self.table, lost_reply(), when="after", calls=[1], then=others)
        optimistic.update(faulty, ANNA, append(job), retry_budget=retry_budget())


@pytest.fixture
def queue(table: Table) -> Queue:
    return Queue(table)


@pytest.mark.parametrize("before", [[], ["a"], ["a", "b"]], ids=len)
def test_the_change_is_not_made_twice_although_the_new_item_has_the_next_version(
    queue: Queue, before: list[str]
) -> None:
    for job in before:
        optimistic.update(queue.table, ANNA, append(job))
    others = ["x", "y", "z"][: len(before) + 1]
    with pytest.raises(OutcomeUnknown):
        queue.add_and_lose_the_reply("pay 30", then=others)
    assert queue.jobs() == [*before, "pay 30", *others]
    assert (optimistic.read(queue.table, ANNA) or {})["version"] == len(before) + 1


@pytest.mark.parametrize("before", [[], ["a"]], ids=len)
def test_by_its_version_it_would_be_taken_for_a_conflict_and_made_twice(
    queue: Queue, before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr("fairlock.protocol.versions.happened", lambda **_: False)
    for job in before:
        optimistic.update(queue.table, ANNA, append(job))
    queue.add_and_lose_the_reply("pay 30", then=["x", "y"][: len(before) + 1])
    assert queue.jobs().count("pay 30") == 2


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
