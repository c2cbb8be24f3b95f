"""Write units of a lock that many guards hold: each write pays for the records of all of them."""

from __future__ import annotations

import uuid

import pytest

from leasehold.protocol.model import AcquireRequest, Grant, Queued, Released, ReleaseRequest
from leasehold.store.lock_store import LockStore
from tests.support import FakeClock, store_over
from tests.support.capacity import MeteredTable

ARN = "arn:aws:states:us-east-1:123456789012:execution:Billing-MachineD1A2B3C4-x1y2z3:"
CLAIM_UNITS = 1
"""Of the write of a claim, which is an item in another partition."""


def request(number: int, limit: int, *, waits: bool = False) -> AcquireRequest:
    arn = f"{ARN}{uuid.UUID(int=(number + 1) << 90)}"
    return AcquireRequest(
        lock_name="customer/1234",
        owner_id=str(uuid.UUID(int=(number + 1) << 91)),
        owner_name=arn,
        execution_arn=arn,
        limit=limit,
        waits=waits,
        task_token="t" * 1000 if waits else None,
        entered_at_ms=1 + number if waits else None,
    )


def acquire_units(table: MeteredTable, store: LockStore, asked: AcquireRequest) -> int:
    before = table.write_units
    assert isinstance(store.acquire(asked), Queued if asked.waits else Grant)
    return table.write_units - before - CLAIM_UNITS


def release_units(table: MeteredTable, store: LockStore, asked: AcquireRequest) -> int:
    before = table.write_units
    answer = store.release(ReleaseRequest(lock_name=asked.lock_name, owner_id=asked.owner_id))
    assert isinstance(answer, Released)
    return table.write_units - before - CLAIM_UNITS


@pytest.mark.parametrize(
    ("permits", "acquire", "release", "join", "hand_off"),
    [(1, 1, 1, 8, 7), (5, 1, 1, 8, 7), (20, 3, 3, 16, 13), (100, 14, 14, 60, 46)],
)
def test_the_table_of_permits_and_rates_in_protocol_md_is_right(
    permits: int, acquire: int, release: int, join: int, hand_off: int
) -> None:
    """Once guards hold all permits: the last to come and to leave, and one through the queue."""
    table = MeteredTable()
    store = store_over(table, FakeClock())
    holders = [request(number, permits) for number in range(permits)]
    spent = [acquire_units(table, store, holder) for holder in holders]
    first, second = (request(permits + n, permits, waits=True) for n in (1, 2))
    assert spent[-1] == acquire
    assert release_units(table, store, holders[-1]) == release
    last = request(permits + 3, permits)
    acquire_units(table, store, last)
    assert acquire_units(table, store, first) == join
    acquire_units(table, store, second)
    assert release_units(table, store, last) == hand_off
