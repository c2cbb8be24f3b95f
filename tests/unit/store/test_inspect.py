"""Who holds and who waits, of one lock and of a whole table, and what is not shown."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from fairlock.clock import utc
from fairlock.errors import LockItemMalformed
from fairlock.protocol.description import LockDescription
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import lock_json
from tests.support import LOCK, FakeClock, Operations, acquire, owner, release, store_over
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import RUN

OTHER_LOCKS: Final = ("orders/1", "orders/2", "payments/1")


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


def described(store: Operations, name: str = LOCK) -> LockDescription:
    found = store.describe(name)
    assert found is not None
    return found


def listed(store: Operations, prefix: str = "", after: str | None = None) -> list[LockDescription]:
    found = list(store.list_locks(prefix, after=after))
    return [lock for lock in found if isinstance(lock, LockDescription)]


def test_a_description_tells_holders_waiters_and_nothing_that_proves_ownership(
    fresh_dynamodb: object, clock: FakeClock
) -> None:
    """On moto, so that the names in the requests are judged by other code."""
    store = store_over(fresh_dynamodb, clock)
    began = utc(clock.now_ms)
    store.acquire(acquire("anna", data='{"job":7}', execution_arn=RUN, owner_name=RUN, limit=2))
    store.acquire(acquire("ben", limit=3))
    for name in ("carl", "dora"):
        clock.advance(1)
        store.acquire(acquire(name, waits=True, task_token="secret", execution_arn=RUN))
    lock = described(store)
    anna, ben = lock.holders
    assert (lock.name, lock.limit, lock.seen_at) == (LOCK, 2, utc(clock.now_ms))
    assert (anna.owner_name, anna.execution_arn, anna.data) == (RUN, RUN, {"job": 7})
    assert (anna.acquired_at, anna.expires_at) == (began, began + timedelta(seconds=61.5))
    assert (anna.lease, anna.limit, ben.limit) == (60, 2, 3)
    assert (ben.owner_name, ben.data, ben.execution_arn) == ("ben", None, None)
    assert ben.fencing_token == anna.fencing_token + 1
    assert (lock.waiters.count, lock.waiters.oldest) == (2, began + timedelta(seconds=1))
    assert [waiter.owner_name for waiter in lock.waiters.first] == ["carl", "dora"]
    assert {waiter.execution_arn for waiter in lock.waiters.first} == {RUN}
    assert [lock] == listed(store) == listed(store, LOCK[:3])
    assert listed(store, "other") == []
    shown = repr(lock)
    for secret in (*map(owner, ("anna", "ben", "carl", "dora")), "secret"):
        assert secret not in shown


def test_a_lock_that_no_one_has_used_is_none(table: MemoryTable, clock: FakeClock) -> None:
    assert store_over(table, clock).describe(LOCK) is None


def test_a_free_lock_has_no_limit_and_no_holders(table: MemoryTable, clock: FakeClock) -> None:
    store = store_over(table, clock)
    store.acquire(acquire("anna", limit=5))
    store.release(release("anna"))
    lock = described(store)
    assert (lock.limit, lock.holders, lock.waiters.count, lock.waiters.oldest) == (
        None,
        (),
        0,
        None,
    )


def test_a_description_is_two_requests(table: MemoryTable, clock: FakeClock) -> None:
    store_over(table, clock).acquire(acquire("anna"))
    client = FaultyTable(table)
    described(store_over(client, clock))
    assert client.calls == ["query", "get_item"]


def test_waiters_that_stopped_asking_are_not_counted(table: MemoryTable, clock: FakeClock) -> None:
    store = store_over(table, clock)
    store.acquire(acquire("anna"))
    store.acquire(acquire("ben", waits=True, waiter_timeout_ms=10_000))
    store.acquire(acquire("carl", waits=True, waiter_timeout_ms=60_000))
    clock.advance(10.4)
    assert described(store).waiters.count == 2
    clock.advance(1)
    assert [waiter.owner_name for waiter in described(store).waiters.first] == ["carl"]


@pytest.mark.parametrize("before", [0, 1])
def test_a_waiter_that_is_handed_the_lock_meanwhile_is_seen_once(
    table: MemoryTable, clock: FakeClock, before: int
) -> None:
    """In the other order of reads it would be seen as neither: `before` 1 then shows no one."""
    store = store_over(table, clock)
    store.acquire(acquire("anna"))
    store.acquire(acquire("ben", waits=True))
    between = FaultyTable(table, meanwhile(before + 1, lambda: store.release(release("anna"))))
    lock = described(store_over(between, clock))
    assert [holder.owner_name for holder in lock.holders] == ["ben"]
    assert lock.waiters.count == 0


def test_twenty_waiters_are_shown_and_all_are_counted(table: MemoryTable, clock: FakeClock) -> None:
    store = store_over(table, clock)
    store.acquire(acquire("anna"))
    for number in range(25):
        clock.advance(0.001)
        store.acquire(acquire(f"w{number}", waits=True))
    for lock in (described(store), *listed(store)):
        assert lock.waiters.count == 25
        assert [w.owner_name for w in lock.waiters.first] == [f"w{n}" for n in range(20)]


@pytest.mark.parametrize("page_size", [1, 2, 3, 1_000])
def test_a_list_is_the_same_wherever_its_pages_end(
    table: MemoryTable, clock: FakeClock, page_size: int
) -> None:
    store = store_over(table, clock)
    for name in OTHER_LOCKS:
        store.acquire(acquire("anna", lock_name=name, execution_arn=RUN))
        for waiter in ("ben", "carl"):
            store.acquire(acquire(waiter, lock_name=name, waits=True))
    table.page_size = page_size
    assert [lock.name for lock in listed(store)] == sorted(OTHER_LOCKS)
    assert {lock.waiters.count for lock in listed(store)} == {2}
    assert [lock.name for lock in listed(store, "orders/")] == ["orders/1", "orders/2"]
    assert [lock.name for lock in listed(store, after="orders/1")] == ["orders/2", "payments/1"]


def test_a_lock_that_someone_has_changed_hides_no_other(
    table: MemoryTable, clock: FakeClock
) -> None:
    store = store_over(table, clock)
    for name in OTHER_LOCKS:
        store.acquire(acquire("anna", lock_name=name))
    damaged: dict[str, Any] = table.items["LOCK#orders/1", "STATE"]
    damaged[f"holder:{owner('anna')}"] = {"S": "nonsense"}
    first, *others = store.list_locks()
    assert isinstance(first, LockItemMalformed)
    assert first.partition_key == "LOCK#orders/1"
    assert [lock.name for lock in others if isinstance(lock, LockDescription)] == [
        "orders/2",
        "payments/1",
    ]


UNREADABLE = ("[1]", "{", "[" * 2000, '{"a":' * 33 + "1" + "}" * 33, '{"a":' * 1018 + "1")


@pytest.mark.parametrize("data", UNREADABLE)
def test_data_that_is_no_readable_object_is_shown_as_its_text(
    table: MemoryTable, clock: FakeClock, data: str
) -> None:
    store = store_over(table, clock)
    store.acquire(acquire("anna", data=data))
    described = store.describe(LOCK)
    assert described is not None
    assert [holder.data for holder in described.holders] == [data]
    assert listed(store) == [described]
    assert json.loads(json.dumps(lock_json(described)))["holders"][0]["data"] == data


def test_data_of_as_many_levels_as_may_be_stored_is_shown_as_an_object(
    table: MemoryTable, clock: FakeClock
) -> None:
    store = store_over(table, clock)
    store.acquire(acquire("anna", data='{"a":' * 32 + "1" + "}" * 32))
    described = store.describe(LOCK)
    assert described is not None
    assert isinstance(described.holders[0].data, dict)


@dataclass
class ManyLocks:
    """A table of many held locks, whose pages are made while it is read."""

    locks: int
    page: int = 100

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the exceptions of a client
        return getattr(MemoryTable(), name)

    def scan(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        start = request.get("ExclusiveStartKey")
        first = 0 if start is None else int(start["pk"]["S"].rpartition("/")[2]) + 1
        numbers = range(first, min(first + self.page, self.locks))
        items = [
            {"pk": {"S": f"LOCK#orders/{number}"}, "sk": {"S": "STATE"}, "limit": {"N": "1"}}
            for number in numbers
        ]
        more = numbers.stop < self.locks
        key = {name: items[-1][name] for name in ("pk", "sk")}
        return {"Items": items, **({"LastEvaluatedKey": key} if more else {})}


@pytest.mark.parametrize(("remembers", "grows"), [(False, False), (True, True)])
def test_the_memory_of_a_list_does_not_grow_with_the_table(
    clock: FakeClock, *, remembers: bool, grows: bool
) -> None:
    """The control remembers what it has read."""
    peaks = []
    for locks in (400, 1_600):
        store = store_over(ManyLocks(locks), clock)
        tracemalloc.start()
        seen = [lock for lock in store.list_locks() if remembers or lock is None]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(seen) == (locks if remembers else 0)
    assert (peaks[1] > 1.3 * peaks[0]) is grows
