"""What operators see of locks, and what a release by force takes out: the grant that was seen."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from fairlock.clock import utc
from fairlock.errors import LockItemMalformed
from fairlock.protocol.description import LockDescription
from fairlock.protocol.outcomes import NotHeld, RefusalReason, Released
from fairlock.store.context import HandedOver, ReleasedByForce
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import lock_json
from tests.support import LOCK, owner
from tests.support.faulty_table import meanwhile
from tests.support.store_bench import RUN, Bench, by_force

OTHER_LOCKS: Final = ("orders/1", "orders/2", "payments/1")


def described(bench: Bench) -> LockDescription:
    found = bench.store().describe(LOCK)
    assert found is not None
    return found


def listed(bench: Bench, prefix: str = "", after: str | None = None) -> list[LockDescription]:
    found = list(bench.store().list_locks(prefix, after=after))
    return [lock for lock in found if isinstance(lock, LockDescription)]


def test_a_description_tells_holders_waiters_and_nothing_that_proves_ownership(
    fresh_dynamodb: object, clock: ManualClock
) -> None:
    """On moto, so that the names in the requests are judged by other code."""
    bench = Bench(fresh_dynamodb, clock)
    began = utc(clock.wall_ms())
    bench.ask("anna", data='{"job":7}', execution_arn=RUN, owner_name=RUN, limit=2)
    bench.ask("ben", limit=3)
    for name in ("carl", "dora"):
        bench.wait(name, task_token="secret")
    lock = described(bench)
    anna, ben = lock.holders
    assert (lock.name, lock.limit, lock.seen_at) == (LOCK, 2, utc(clock.wall_ms()))
    assert (anna.owner_name, anna.execution_arn, anna.data) == (RUN, RUN, {"job": 7})
    assert (anna.acquired_at, anna.expires_at) == (began, began + timedelta(seconds=61.5))
    assert (anna.lease, anna.limit, ben.limit) == (60, 2, 3)
    assert (ben.owner_name, ben.data, ben.execution_arn) == ("ben", None, None)
    assert ben.fencing_token == anna.fencing_token + 1
    assert (lock.waiters.count, lock.waiters.oldest) == (2, began + timedelta(seconds=1))
    assert [waiter.owner_name for waiter in lock.waiters.first] == ["carl", "dora"]
    assert {waiter.execution_arn for waiter in lock.waiters.first} == {RUN}
    assert [lock] == listed(bench) == listed(bench, LOCK[:3])
    assert listed(bench, "other") == []
    shown = repr(lock)
    for secret in (*map(owner, ("anna", "ben", "carl", "dora")), "secret"):
        assert secret not in shown


def test_a_free_lock_has_no_limit_and_no_holders_and_one_never_used_no_description(
    bench: Bench,
) -> None:
    assert bench.store().describe(LOCK) is None
    bench.ask("anna", limit=5)
    bench.release("anna")
    assert bench.requests(lambda store: store.describe(LOCK)) == ["query", "get_item"]
    lock = described(bench)
    assert (lock.limit, lock.holders) == (None, ())
    assert (lock.waiters.count, lock.waiters.oldest) == (0, None)


def test_waiters_that_stopped_asking_are_not_counted(bench: Bench) -> None:
    bench.ask("anna")
    bench.queue("ben", waiter_timeout_ms=10_000)
    bench.queue("carl", waiter_timeout_ms=60_000)
    bench.clock.advance(10.4)
    assert described(bench).waiters.count == 2
    bench.clock.advance(1)
    assert [waiter.owner_name for waiter in described(bench).waiters.first] == ["carl"]


@pytest.mark.parametrize("before", [0, 1])
def test_a_waiter_that_is_handed_the_lock_meanwhile_is_seen_once(bench: Bench, before: int) -> None:
    """In the other order of reads it would be seen as neither: `before` 1 then shows no one."""
    bench.ask("anna")
    bench.queue("ben")
    lock = bench.store(meanwhile(before + 1, lambda: bench.release("anna"))).describe(LOCK)
    assert lock is not None
    assert [holder.owner_name for holder in lock.holders] == ["ben"]
    assert lock.waiters.count == 0


def test_twenty_waiters_are_shown_and_all_are_counted(bench: Bench) -> None:
    bench.ask("anna")
    for number in range(25):
        bench.clock.advance(0.001)
        bench.queue(f"w{number}")
    for lock in (described(bench), *listed(bench)):
        assert lock.waiters.count == 25
        assert [w.owner_name for w in lock.waiters.first] == [f"w{n}" for n in range(20)]


@pytest.mark.parametrize("page_size", [1, 2, 3, 1_000])
def test_a_list_is_the_same_wherever_its_pages_end(bench: Bench, page_size: int) -> None:
    for name in OTHER_LOCKS:
        bench.ask("anna", lock_name=name, execution_arn=RUN)
        for waiter in ("ben", "carl"):
            bench.queue(waiter, lock_name=name)
    bench.client.page_size = page_size
    assert [lock.name for lock in listed(bench)] == sorted(OTHER_LOCKS)
    assert {lock.waiters.count for lock in listed(bench)} == {2}
    assert [lock.name for lock in listed(bench, "orders/")] == ["orders/1", "orders/2"]
    assert [lock.name for lock in listed(bench, after="orders/1")] == ["orders/2", "payments/1"]


def test_a_lock_that_someone_has_changed_hides_no_other(bench: Bench) -> None:
    for name in OTHER_LOCKS:
        bench.ask("anna", lock_name=name)
    damaged: dict[str, Any] = bench.client.items["LOCK#orders/1", "STATE"]
    damaged[f"holder:{owner('anna')}"] = {"S": "nonsense"}
    first, *others = bench.store().list_locks()
    assert isinstance(first, LockItemMalformed)
    assert first.partition_key == "LOCK#orders/1"
    assert [getattr(lock, "name", None) for lock in others] == ["orders/2", "payments/1"]


UNREADABLE = ("[1]", "{", "[" * 2000, '{"a":' * 33 + "1" + "}" * 33, '{"a":' * 1018 + "1")


@pytest.mark.parametrize("data", UNREADABLE)
def test_data_that_is_no_readable_object_is_shown_as_its_text(bench: Bench, data: str) -> None:
    bench.ask("anna", data=data)
    lock = described(bench)
    assert [holder.data for holder in lock.holders] == [data]
    assert listed(bench) == [lock]
    assert json.loads(json.dumps(lock_json(lock)))["holders"][0]["data"] == data


def test_data_of_as_many_levels_as_may_be_stored_is_shown_as_an_object(bench: Bench) -> None:
    bench.ask("anna", data='{"a":' * 32 + "1" + "}" * 32)
    assert isinstance(described(bench).holders[0].data, dict)


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
    clock: ManualClock, *, remembers: bool, grows: bool
) -> None:
    """The control remembers what it has read."""
    peaks = []
    for locks in (400, 1_600):
        store = Bench(ManyLocks(locks), clock).store()
        tracemalloc.start()
        seen = [lock for lock in store.list_locks() if remembers or lock is None]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(seen) == (locks if remembers else 0)
    assert (peaks[1] > 1.3 * peaks[0]) is grows


# Release by force: the grant that was seen, or nothing; the next waiter gets the lock.


def test_a_stuck_holder_is_taken_out_with_two_requests_and_logged_with_who_and_why(
    fresh_dynamodb: object, clock: ManualClock
) -> None:
    """On moto, so that the expressions are judged by other code."""
    bench = Bench(fresh_dynamodb, clock)
    grant = bench.grant("anna")
    clock.advance(7)
    client, store = bench.counting()
    assert isinstance(store.force_release(by_force(grant)), Released)
    assert client.calls == ["get_item", "update_item"]
    assert bench.events == [
        ReleasedByForce(
            lock_name=LOCK,
            fencing_token=grant.fencing_token,
            owner_name="anna",
            execution_arn=None,
            held_ms=7_000,
            requested_by="olga",
            reason="a test",
        )
    ]
    assert (bench.state.held, bench.state.holders) == (0, ())
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert lock.last_forced_release is not None
    assert lock.last_forced_release.reason == "a test"
    assert bench.grant("ben").fencing_token == grant.fencing_token + 1


def test_the_mark_of_the_owner_who_released_last_stays(bench: Bench) -> None:
    """So a late copy of that owner's acquire is refused, as before."""
    bench.ask("anna")
    bench.release("anna")
    grant = bench.grant("ben")
    bench.force(grant)
    assert bench.refuse("anna").reason is RefusalReason.ALREADY_RELEASED


def test_the_oldest_waiter_gets_the_lock_in_the_same_transaction(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.wait("ben")
    bench.wait("carl")
    client, store = bench.counting()
    assert isinstance(store.force_release(by_force(grant)), Released)
    assert client.calls == ["get_item", "query", "transact_write_items"]
    assert (bench.holders(), bench.pushed, bench.waiters()) == (["ben"], ["ben"], ["carl"])
    assert [type(event) for event in bench.events] == [HandedOver, ReleasedByForce]
    [ben] = bench.state.holders
    assert ben.fencing_token == grant.fencing_token + 1


def pass_on(bench: Bench) -> None:
    """The holder that was seen leaves, and another comes."""
    bench.release("anna")
    bench.ask("dora")


def grant_again(bench: Bench) -> None:
    """The same acquisition is evicted and granted again: another grant, under the same owner_id."""
    bench.clock.advance(63)
    assert bench.grant("dora").taken_over == 1
    bench.release("dora")
    bench.ask("anna")


@pytest.mark.parametrize("changes", [pass_on, grant_again], ids=lambda change: change.__name__)
@pytest.mark.parametrize("number", [0, 1])
def test_a_holder_that_changed_meanwhile_stays_and_nothing_is_written(
    bench: Bench, changes: Callable[[Bench], None], number: int
) -> None:
    """Before the read, and between the read and the write."""
    grant = bench.grant("anna")
    after: list[dict[Any, Any]] = []

    def change() -> None:
        changes(bench)
        after.append(dict(bench.client.items))

    between = meanwhile(number + 1, change)
    assert bench.store(between).force_release(by_force(grant)) is None
    assert [dict(bench.client.items)] == after
    assert len(bench.holders()) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_waiter_that_joins_meanwhile_gets_the_lock(bench: Bench, number: int) -> None:
    grant = bench.grant("anna")
    if number == 2:
        bench.wait("first", waiter_timeout_ms=1)
    between = meanwhile(number + 1, lambda: bench.wait("ben"))
    assert isinstance(bench.store(between).force_release(by_force(grant)), Released)
    assert len(bench.holders()) == 1
    assert bench.holders()[0] in {"first", "ben"}


def test_a_heartbeat_in_between_does_not_prevent_it(bench: Bench) -> None:
    """It is there to free a holder that lives."""
    grant = bench.grant("anna")
    between = meanwhile(2, lambda: bench.renew("anna"))
    assert isinstance(bench.store(between).force_release(by_force(grant)), Released)
    assert bench.holders() == []


@pytest.mark.parametrize("kept_alive", [False, True])
def test_a_workflows_release_after_it_is_refused_and_ends_its_claim(
    bench: Bench, *, kept_alive: bool
) -> None:
    grant = bench.grant("anna", execution_arn=RUN)
    if kept_alive:
        bench.beat("anna")
    bench.wait("ben")
    bench.force(grant)
    assert len(bench.claims()) == 2
    late = bench.release("anna", execution_arn=RUN, keep_alive=kept_alive)
    assert isinstance(late, NotHeld)
    assert bench.holders() == ["ben"]
    assert [claim["owner_id"]["S"] for claim in bench.claims()] == [owner("ben")]
    annas = [each for each in bench.claims(done=True) if owner("anna") in each["sk"]["S"]]
    assert len(annas) >= int(kept_alive), "a claim that is done stays, for late heartbeats"


def test_the_reaper_finds_nothing_to_free_after_it_and_takes_no_other_lock(bench: Bench) -> None:
    """Of the holders of a semaphore, one was taken out."""
    grants = [bench.grant(n, limit=3, execution_arn=RUN) for n in ("anna", "ben")]
    bench.grant("carl", limit=3)
    bench.force(grants[1])
    assert (bench.holders(), bench.state.held) == (["anna", "carl"], 2)
    bench.end()
    assert bench.reap().holders == 1
    assert bench.holders() == ["carl"]
