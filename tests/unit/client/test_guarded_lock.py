"""A lock's own guarded writes: what their outcome means for the lock, its heartbeats, its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.client.local_lease import LocalLease
from fairlock.errors import TransactionRefused
from tests.support import TABLE, release, store_over
from tests.support.faulty_table import FaultyTable, fault, lose, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import EventfulClock, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


KEY = {"pk": {"S": "report"}, "sk": {"S": "7"}}
PUT: Any = {"Put": {"TableName": TABLE, "Item": {**KEY, "text": {"S": "done"}}}}


def locks_over(client: object, clock: EventfulClock) -> LockClient:
    return LockClient(TABLE, client=client, clock=clock, lease=30)  # type: ignore[arg-type]  # or a wrapper


def is_written(client: DynamoDBClient) -> bool:
    return "Item" in client.get_item(TableName=TABLE, Key=KEY)


def test_a_guarded_write_is_one_request_and_keeps_the_lock(
    dynamodb: DynamoDBClient, clock: EventfulClock
) -> None:
    counting = FaultyTable(dynamodb)
    with locks_over(counting, clock) as locks:
        lock = locks.acquire("a")
        counting.calls.clear()
        lock.transact_write([PUT])
        assert counting.calls == ["transact_write_items"]
        lock.check()
    assert is_written(dynamodb)


def test_a_guarded_write_with_release_is_one_request_and_ends_the_lock(
    dynamodb: DynamoDBClient, clock: EventfulClock
) -> None:
    counting = FaultyTable(dynamodb)
    with locks_over(counting, clock) as locks:
        with locks.hold("a") as lock:
            counting.calls.clear()
            lock.transact_write([PUT], release=True)
            with pytest.raises(LockLost, match="released"):
                lock.check()
        assert counting.calls == ["transact_write_items"]
        assert not lock.lost.is_set()
        assert locks.try_acquire("a") is not None
    assert is_written(dynamodb)


@pytest.mark.parametrize("with_release", [True, False])
def test_a_refusal_because_the_lock_is_gone_is_its_loss(
    dynamodb: DynamoDBClient, clock: EventfulClock, *, with_release: bool
) -> None:
    with locks_over(dynamodb, clock) as locks:
        lock = locks.acquire("a")
        # By its own clock it is held; the table knows better.
        direct = store_over(dynamodb, clock)
        direct.release(release("anna", lock_name="a", owner_id=lock.owner_id))
        with pytest.raises(LockLost):
            lock.transact_write([PUT], release=with_release)
        assert lock.lost.is_set()
        assert lock.release() is False
    assert not is_written(dynamodb)


@pytest.mark.parametrize("with_release", [True, False])
def test_a_lease_that_is_over_refuses_without_a_request(
    dynamodb: DynamoDBClient, clock: EventfulClock, *, with_release: bool
) -> None:
    counting = FaultyTable(dynamodb)
    with locks_over(counting, clock) as locks:
        lock = locks.acquire("a")
        counting.calls.clear()
        clock.advance(30)
        with pytest.raises(LockLost, match="its lease is over"):
            lock.transact_write([PUT], release=with_release)
        assert counting.calls == []


@pytest.mark.parametrize("with_release", [True, False])
def test_a_refusal_of_the_items_keeps_the_lock(
    dynamodb: DynamoDBClient, clock: EventfulClock, *, with_release: bool
) -> None:
    refused: Any = {"Put": {**PUT["Put"], "ConditionExpression": "attribute_exists(pk)"}}
    with locks_over(dynamodb, clock) as locks:
        lock = locks.acquire("a")
        with pytest.raises(TransactionRefused):
            lock.transact_write([refused], release=with_release)
        lock.check()
        lock.heartbeat()
        assert lock.release() is True


def test_a_release_with_writes_whose_reply_got_lost_is_no_loss(
    dynamodb: DynamoDBClient, clock: EventfulClock
) -> None:
    faulty = FaultyTable(dynamodb, lose(2))
    with locks_over(faulty, clock) as locks:
        with locks.hold("a") as lock:
            with pytest.raises(LockStoreUnavailable):
                lock.transact_write([PUT], release=True)
            with pytest.raises(LockLost, match="released"):
                lock.heartbeat()  # It would say "not held", and that would look like a theft.
        assert not lock.lost.is_set()
    assert is_written(dynamodb)


def test_a_release_with_writes_whose_reply_got_lost_may_be_repeated(
    dynamodb: DynamoDBClient, clock: EventfulClock
) -> None:
    faulty = FaultyTable(dynamodb, fault(lost_reply(), 2))
    with locks_over(faulty, clock) as locks:
        lock = locks.acquire("a")
        with pytest.raises(LockStoreUnavailable):
            lock.transact_write([PUT], token="one", release=True)
        assert not is_written(dynamodb)
        lock.transact_write([PUT], token="one", release=True)
        assert locks.try_acquire("a") is not None
    assert is_written(dynamodb)


def test_a_condition_check_goes_into_a_transaction_of_the_applications_own(
    dynamodb: DynamoDBClient, clock: EventfulClock
) -> None:
    with locks_over(dynamodb, clock) as locks:
        lock = locks.acquire("a")
        dynamodb.transact_write_items(TransactItems=[lock.condition_check(), PUT])
        lock.release()
        with pytest.raises(dynamodb.exceptions.TransactionCanceledException):
            dynamodb.transact_write_items(TransactItems=[lock.condition_check(), PUT])


def test_a_fence_carries_the_token_of_the_grant(
    dynamodb: DynamoDBClient, clock: EventfulClock
) -> None:
    with locks_over(dynamodb, clock) as locks:
        lock = locks.acquire("a")
        assert str(lock.fencing_token) in repr(lock.fence_condition())


# Guarded writes beside a release, and after one of which no one knows: no false loss.

RELEASE_PUT: Any = {"Put": {"TableName": "notes", "Item": {"pk": {"S": "n"}, "sk": {"S": "n"}}}}
REFUSED: Any = {
    "Put": {
        **RELEASE_PUT["Put"],
        "ConditionExpression": "attribute_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": "pk"},
    }
}


class SlowTable(Table):
    """A release overtakes the write, and its answer is on its way until that is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.refused = threading.Event(), threading.Event()
        self.releasing = threading.Thread()

    def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        if name == "transact_write_items":
            self.releasing.start()
            assert self.released.wait(10)
        answer = super()._send(name, arguments)
        if "REMOVE #mine" in arguments.get("UpdateExpression", ""):
            self.released.set()
            assert self.refused.wait(10)
        return answer


def write_during_a_release(told: list[Lock]) -> Lock:
    table = SlowTable()
    with LockClient("locks", client=table, lease=3600) as locks:  # type: ignore[arg-type]  # a substitute
        lock = locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        table.releasing = threading.Thread(target=lock.release)
        with pytest.raises(LockLost):
            lock.transact_write([RELEASE_PUT])
        table.refused.set()
        table.releasing.join(10)
    return lock


def test_a_write_that_is_refused_because_of_our_own_release_is_no_loss() -> None:
    told: list[Lock] = []
    assert not write_during_a_release(told).lost.is_set()
    assert told == []


def test_one_that_takes_every_refusal_for_a_loss_would_tell_a_false_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose = LocalLease.lose

    def always(self: LocalLease, reason: str, **how: Any) -> None:  # noqa: ANN401 - as it is
        lose(self, reason, **{**how, "unless_releasing": False})

    monkeypatch.setattr(LocalLease, "lose", always)
    told: list[Lock] = []
    assert write_during_a_release(told).lost.is_set()
    assert len(told) == 1


def test_after_a_refused_repeat_of_an_unknown_release_the_lock_waits_for_its_release(
    make_client: MakeClient, table: Table
) -> None:
    """It is held in the table, but not renewed; and the first sending may be written yet."""
    lock = make_client().acquire("a")
    table.outage = lost_reply()
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([REFUSED], token="one", release=True)
    table.outage = None
    with pytest.raises(LockStoreUnavailable, match="may be written yet"):
        lock.transact_write([REFUSED], token="one", release=True)
    with pytest.raises(LockLost, match="may have been released"):
        lock.check()
    assert (table.state("a").held, lock.lost.is_set()) == (1, False)
    lock.transact_write([RELEASE_PUT], token="two", release=True)
    assert (table.state("a").held, lock.release()) == (0, True)


def test_a_first_refusal_leaves_all_as_it_was(make_client: MakeClient, table: Table) -> None:
    """The control of the one before."""
    lock = make_client().acquire("a")
    with pytest.raises(TransactionRefused):
        lock.transact_write([REFUSED], release=True)
    lock.check()
    lock.heartbeat()
    assert table.state("a").holders[0].revision == 2


def test_after_an_unknown_release_another_write_that_is_refused_is_no_loss(
    make_client: MakeClient, table: Table
) -> None:
    told: list[Lock] = []
    lock = make_client().acquire("a", on_lost=lambda lost, _reason: told.append(lost))
    table.loses_replies = True
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([RELEASE_PUT], release=True)
    table.loses_replies = False
    with pytest.raises(LockLost):
        lock.transact_write([REFUSED], release=True)
    assert (lock.lost.is_set(), lock.release(), told) == (False, True, [])
