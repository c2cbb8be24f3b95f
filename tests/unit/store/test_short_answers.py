"""What DynamoDB sends back has to be read: no more is asked for than is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlock.protocol.model import ReleaseRequest
from fairlock.protocol.outcomes import Grant, Released
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, owner, store_over
from tests.support.capacity import item_bytes

HOLDERS = 50


@dataclass
class WeighingTable:
    """Passes requests on to a table in memory; notes the bytes of each answer to an update.

    Args:
        always: what every update asks for, whatever it says.
    """

    always: str | None = None
    inner: MemoryTable = field(default_factory=MemoryTable)
    answers: list[int] = field(default_factory=list)

    def update_item(self, **request: Any) -> Any:  # noqa: ANN401 - as boto3 takes and answers it
        if self.always is not None:
            request["ReturnValues"] = self.always
        answer = self.inner.update_item(**request)
        self.answers.append(item_bytes(answer["Attributes"]))
        return answer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("always", "grows", "has_the_record"),
    [(None, False, False), ("ALL_OLD", True, False), ("ALL_NEW", True, True)],
)
def test_the_answer_to_an_acquire_has_no_record_of_a_holder(
    always: str | None,
    grows: bool,  # noqa: FBT001 - a parameter of the test
    has_the_record: bool,  # noqa: FBT001 - same
) -> None:
    table = WeighingTable(always)
    store = store_over(table, FakeClock())
    for number in range(HOLDERS):
        store.acquire(acquire(f"holder-{number:02d}", limit=HOLDERS))
    first, second, last = table.answers[0], table.answers[1], table.answers[-1]
    assert (last > 10 * second) == grows
    assert (first > 0) == has_the_record


@pytest.mark.parametrize("tells_grant", [False, True])
def test_a_release_asks_for_the_item_only_if_it_has_to_tell_of_the_grant(
    tells_grant: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    table, clock = WeighingTable(), FakeClock()
    store = store_over(table, clock)
    granted = store.acquire(acquire("anna"))
    assert isinstance(granted, Grant)
    clock.advance(3)
    request = ReleaseRequest(lock_name=LOCK, owner_id=owner("anna"), tells_grant=tells_grant)
    released = store.release(request)
    assert isinstance(released, Released)
    told = (3_000, granted.fencing_token) if tells_grant else (None, None)
    assert (released.held_ms, released.fencing_token) == told
    assert (table.answers[-1] > 0) == tells_grant
    assert store.release(request) == Released(lock_name=LOCK, owner_id=owner("anna"))
