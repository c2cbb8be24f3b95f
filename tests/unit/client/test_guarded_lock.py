"""A lock's own guarded writes: what their outcome means for the lock, its heartbeats, its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.errors import TransactionRefused
from fairlock.testing import FakeLockClient, ManualClock
from tests.support import TABLE, release, store_over
from tests.support.faulty_table import FaultyTable, fault, lose, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


KEY = {"pk": {"S": "report"}, "sk": {"S": "7"}}
PUT: Any = {"Put": {"TableName": TABLE, "Item": {**KEY, "text": {"S": "done"}}}}
REFUSED: Any = {"Put": {**PUT["Put"], "ConditionExpression": "attribute_exists(pk)"}}
EACH_WAY = pytest.mark.parametrize("with_release", [True, False])


@pytest.fixture
def faulty(dynamodb: DynamoDBClient) -> FaultyTable:
    return FaultyTable(dynamodb)


@pytest.fixture
def locks(faulty: FaultyTable, clock: ManualClock) -> Iterator[LockClient]:
    with LockClient(TABLE, client=faulty, clock=clock, lease=30) as client:  # type: ignore[arg-type]  # a wrapper
        yield client


@pytest.fixture
def lock(locks: LockClient, faulty: FaultyTable) -> Lock:
    lock = locks.acquire("a")
    faulty.calls.clear()
    return lock


def is_written(client: DynamoDBClient) -> bool:
    return "Item" in client.get_item(TableName=TABLE, Key=KEY)


def test_a_guarded_write_is_one_request_and_keeps_the_lock(
    dynamodb: DynamoDBClient, faulty: FaultyTable, lock: Lock
) -> None:
    lock.transact_write([PUT])
    assert faulty.calls == ["transact_write_items"]
    lock.check()
    assert is_written(dynamodb)


def test_a_guarded_write_with_release_is_one_request_and_ends_the_lock(
    dynamodb: DynamoDBClient, faulty: FaultyTable, locks: LockClient, lock: Lock
) -> None:
    with lock:
        lock.transact_write([PUT], release=True)
        with pytest.raises(LockLost, match="released"):
            lock.check()
    assert faulty.calls == ["transact_write_items"]
    assert not lock.lost.is_set()
    assert locks.try_acquire("a") is not None
    assert is_written(dynamodb)


@EACH_WAY
def test_a_refusal_because_the_lock_is_gone_is_its_loss(
    dynamodb: DynamoDBClient, clock: ManualClock, lock: Lock, *, with_release: bool
) -> None:
    # By its own clock it is held; the table knows better.
    store_over(dynamodb, clock).release(release("anna", lock_name="a", owner_id=lock.owner_id))
    with pytest.raises(LockLost):
        lock.transact_write([PUT], release=with_release)
    assert lock.lost.is_set()
    assert lock.release() is False
    assert not is_written(dynamodb)


@EACH_WAY
def test_a_lease_that_is_over_refuses_without_a_request(
    clock: ManualClock, faulty: FaultyTable, lock: Lock, *, with_release: bool
) -> None:
    clock.advance(30)
    with pytest.raises(LockLost, match="its lease is over"):
        lock.transact_write([PUT], release=with_release)
    assert faulty.calls == []


@EACH_WAY
def test_a_refusal_of_the_items_keeps_the_lock(lock: Lock, *, with_release: bool) -> None:
    with pytest.raises(TransactionRefused):
        lock.transact_write([REFUSED], release=with_release)
    lock.check()
    lock.heartbeat()
    assert lock.release() is True


def test_a_release_with_writes_whose_reply_got_lost_is_no_loss(
    dynamodb: DynamoDBClient, faulty: FaultyTable, lock: Lock
) -> None:
    faulty.will(lose(1))
    with lock:
        with pytest.raises(LockStoreUnavailable):
            lock.transact_write([PUT], release=True)
        with pytest.raises(LockLost, match="released"):
            lock.heartbeat()  # It would say "not held", and that would look like a theft.
    assert not lock.lost.is_set()
    assert is_written(dynamodb)


def test_a_release_with_writes_whose_reply_got_lost_may_be_repeated(
    dynamodb: DynamoDBClient, faulty: FaultyTable, locks: LockClient, lock: Lock
) -> None:
    faulty.will(fault(lost_reply(), 1))
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([PUT], token="one", release=True)
    assert not is_written(dynamodb)
    lock.transact_write([PUT], token="one", release=True)
    assert locks.try_acquire("a") is not None
    assert is_written(dynamodb)


def test_a_condition_check_goes_into_a_transaction_of_the_applications_own(
    dynamodb: DynamoDBClient, lock: Lock
) -> None:
    dynamodb.transact_write_items(TransactItems=[lock.condition_check(), PUT])
    lock.release()
    with pytest.raises(dynamodb.exceptions.TransactionCanceledException):
        dynamodb.transact_write_items(TransactItems=[lock.condition_check(), PUT])


# Guarded writes beside a release, and after one of which no one knows: no false loss.


def test_a_write_that_is_refused_because_of_our_own_release_is_no_loss() -> None:
    """The release overtakes the write, and its answer is on its way until that is refused."""
    table, told = Table(), list[Lock]()
    released, refused = threading.Event(), threading.Event()

    def overtake(name: str, _request: object) -> None:
        if name == "transact_write_items":
            pool.submit(lock.release)
            assert released.wait(10)

    def hold_the_first_answer_back(_headers: object) -> None:
        if not released.is_set():
            released.set()
            assert refused.wait(10)

    with LockClient("locks", client=table, lease=3600) as locks, ThreadPoolExecutor() as pool:
        lock = locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        table.before, table.answers = overtake, hold_the_first_answer_back
        with pytest.raises(LockLost):
            lock.transact_write([PUT])
        refused.set()
    assert (lock.lost.is_set(), told) == (False, [])


def test_while_a_release_with_writes_is_under_way_the_lock_is_not_held(
    make_client: MakeClient, table: Table
) -> None:
    """The next owner may hold it before the answer is here."""
    lock = make_client().acquire("a")
    seen: list[tuple[str, float]] = []
    table.before = lambda name, _: seen.append((name, lock.remaining))
    lock.transact_write([PUT], release=True)
    assert seen == [("transact_write_items", 0)]


def test_a_lease_that_ends_before_the_answer_to_a_release_with_writes_is_no_loss(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    told: list[Lock] = []
    with make_client().hold("a", on_lost=lambda lost, _reason: told.append(lost)) as lock:
        table.before = lambda _name, _arguments: clock.advance(lock.lease)
        lock.transact_write([PUT], release=True)
    assert (lock.lost.is_set(), told) == (False, [])


def test_a_lock_is_renewed_on_after_a_release_with_writes_that_was_refused(
    table: Table, clock: ManualClock
) -> None:
    """Its heartbeat is due while the write is under way."""
    with FakeLockClient(table=table, clock=clock, lease=30).hold("a") as lock:
        table.before = lambda name, _: clock.advance(20) if name.startswith("transact") else None
        with pytest.raises(TransactionRefused):
            lock.transact_write([REFUSED], release=True)
        clock.advance(300)
        assert lock.remaining > 0


def test_after_a_refused_repeat_of_an_unknown_release_the_lock_waits_for_its_release(
    make_client: MakeClient, table: Table
) -> None:
    """It is held in the table, but not renewed; and the first sending may be written yet."""
    lock = make_client().acquire("a")
    table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([REFUSED], token="one", release=True)
    table.is_down = False
    with pytest.raises(LockStoreUnavailable, match="may be written yet"):
        lock.transact_write([REFUSED], token="one", release=True)
    with pytest.raises(LockLost, match="may have been released"):
        lock.check()
    assert (table.state("a").held, lock.lost.is_set()) == (1, False)
    lock.transact_write([PUT], token="two", release=True)
    assert (table.state("a").held, lock.release()) == (0, True)


def test_after_an_unknown_release_another_write_that_is_refused_is_no_loss(
    make_client: MakeClient, table: Table
) -> None:
    told: list[Lock] = []
    lock = make_client().acquire("a", on_lost=lambda lost, _reason: told.append(lost))
    table.loses_replies = True
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([PUT], release=True)
    table.loses_replies = False
    with pytest.raises(LockLost):
        lock.transact_write([REFUSED], release=True)
    assert (lock.lost.is_set(), lock.release(), told) == (False, True, [])
