"""Writes and release in one transaction: all of it or nothing, and no waiter is forgotten."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.aws.executions import Delivery, Liveness
from fairlock.client.base_lock import BaseLock
from fairlock.errors import TransactionRefused
from fairlock.guarded.guarded_table import GuardedCall
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.leaving import release_permit
from fairlock.protocol.model import AcquireRequest, ReleaseRequest
from fairlock.protocol.outcomes import NotHeld, Released
from fairlock.protocol.schema import lock_key
from tests.support import LOCK, START_MS, TABLE, FakeClock, owner
from tests.support.faulty_table import (
    TRANSACTIONS,
    FaultyTable,
    client_error,
    fault,
    lose,
    meanwhile,
)
from tests.support.store_bench import FakeWorkflows
from tests.unit.guarded.conftest import Bench, deposit, open_account

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
HOUR_MS = 3_600_000
LATE = AcquireRequest(lock_name=LOCK, owner_id=owner("late"), owner_name="late", waits=True)


@pytest.mark.parametrize("same", [True, False], ids=["protected", "control"])
def test_a_repeat_that_comes_before_the_first_call_is_sent_is_the_same_write(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, same: bool
) -> None:
    """The first call waits for a heartbeat of its lock; the repeat is sent after it."""
    if not same:
        answered = property(lambda _: True, lambda _call, _value: None)
        monkeypatch.setattr(GuardedCall, "is_answered", answered, raising=False)
    writes = bench.writes(bench.granted("anna"))
    first, second = (writes.call([deposit("x")], token="t", release=True) for _ in range(2))
    writes.send(first)
    if same:
        writes.send(second)
    else:
        with pytest.raises(LockLost):
            writes.send(second)
    assert (bench.balance("x"), bench.holders()) == (1, [])


def test_a_lock_released_with_writes_is_released_for_everybody_else_to_see(bench: Bench) -> None:
    grant = bench.granted("anna")
    bench.writes(grant).transact_write([deposit("x")], release=True)
    assert isinstance(bench.release("anna"), Released)
    assert isinstance(bench.heartbeat("anna"), NotHeld)
    assert bench.granted("ben").fencing_token == grant.fencing_token + 1


def test_the_oldest_waiter_becomes_the_holder_in_the_same_transaction(bench: Bench) -> None:
    workflows = bench.workflows = FakeWorkflows()
    grant = bench.granted("anna")
    bench.waits("ben")
    bench.waits("carl")
    counting = FaultyTable(bench.inner)
    bench.through(counting).writes(grant).transact_write([deposit("x")], release=True)
    assert counting.calls == ["transact_write_items", "query", "transact_write_items"]
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["ben"], ["carl"])
    assert [task_token for task_token, _ in workflows.woken] == ["ben"]
    assert bench.state().holders[0].fencing_token == grant.fencing_token + 1


def test_the_queue_goes_on_from_one_releasing_writer_to_the_next(bench: Bench) -> None:
    bench.granted("anna")
    names = ["anna", "ben", "carl"]
    for name in names[1:]:
        bench.waits(name)
    for name in names:
        assert bench.holders() == [name]
        grant = bench.granted(name)  # asks again, and is told that it holds
        bench.writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (3, [], [])
    assert bench.state().contended is False


def test_a_queue_that_emptied_meanwhile_is_closed_in_the_same_transaction(bench: Bench) -> None:
    grant = bench.granted("anna", lease_ms=12 * HOUR_MS)
    bench.waits("ben", task_token=None)
    bench.clock.advance(HOUR_MS / 1000)  # ben has stopped asking
    bench.writes(grant).transact_write([deposit("x")], release=True)
    state = bench.state()
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, [], [])
    assert (state.contended, state.last_released) == (False, owner("anna"))


def test_a_waiter_with_a_lowered_limit_is_not_let_in_too_early(bench: Bench) -> None:
    grants = [bench.granted(name, limit=3) for name in ("anna", "ben", "carl")]
    bench.waits("dora", limit=1)
    bench.writes(grants[0]).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben", "carl"])
    bench.writes(grants[1]).transact_write([deposit("x")], release=True)
    bench.writes(grants[2]).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (3, ["dora"])


def test_after_a_raised_limit_all_permits_are_handed_on_and_written_once(bench: Bench) -> None:
    workflows = bench.workflows = FakeWorkflows()
    grant = bench.granted("anna", limit=1)
    for name in ("ben", "carl"):
        bench.waits(name, limit=1)
    bench.waits("dora", limit=1)
    raise_limit_of_waiters(bench, limit=2)
    bench.writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben", "carl"])
    assert [task_token for task_token, _ in workflows.woken] == ["ben", "carl"]


def raise_limit_of_waiters(bench: Bench, *, limit: int) -> None:
    """As if they had asked again under a raised limit, and no one had served them yet."""
    found = bench.inner.query(
        TableName=TABLE,
        KeyConditionExpression="pk = :lock AND begins_with(sk, :waiter)",
        ExpressionAttributeValues={":lock": {"S": f"LOCK#{LOCK}"}, ":waiter": {"S": "WAITER#"}},
    )
    for item in found["Items"]:
        bench.inner.put_item(TableName=TABLE, Item={**item, "limit": {"N": str(limit)}})


def test_refused_items_keep_the_lock_and_leave_the_queue_alone(bench: Bench) -> None:
    grant = bench.granted("anna")
    bench.writes(grant).transact_write([open_account("x", 5)])
    bench.waits("ben")
    with pytest.raises(TransactionRefused) as caught:
        bench.writes(grant).transact_write([deposit("y"), open_account("x")], release=True)
    assert caught.value.failed == (1,)
    assert (bench.balance("y"), bench.holders(), bench.waiters()) == (None, ["anna"], ["ben"])
    bench.writes(grant).transact_write([deposit("y")], release=True)
    assert (bench.balance("y"), bench.holders(), bench.waiters()) == (1, ["ben"], [])


def test_who_joins_just_before_the_transaction_is_handed_the_lock(bench: Bench) -> None:
    grant = bench.granted("anna")
    between = FaultyTable(bench.inner, meanwhile(1, lambda: bench.waits("ben"), of=TRANSACTIONS))
    bench.through(between).writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["ben"], [])


def test_who_joins_while_the_queue_is_being_closed_is_handed_the_lock(bench: Bench) -> None:
    grant = bench.granted("anna", lease_ms=12 * HOUR_MS)
    bench.waits("ben", task_token=None)
    bench.clock.advance(HOUR_MS / 1000)  # ben is gone: the second transaction closes the queue
    between = FaultyTable(bench.inner, meanwhile(2, lambda: bench.waits("carl"), of=TRANSACTIONS))
    bench.through(between).writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["carl"], [])


def test_a_waiter_that_gives_up_in_between_is_passed_over(bench: Bench) -> None:
    grant = bench.granted("anna")
    entered_ms = bench.clock.now_ms
    bench.waits("ben")
    bench.waits("carl")
    key = {"pk": lock_key(LOCK)["pk"], "sk": {"S": f"WAITER#{entered_ms:015d}#{owner('ben')}"}}
    give_up = functools.partial(bench.inner.delete_item, TableName=TABLE, Key=key)
    between = FaultyTable(bench.inner, meanwhile(2, give_up, of=TRANSACTIONS))
    bench.through(between).writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["carl"], [])


@pytest.mark.parametrize("transaction", [1, 2])
def test_who_loses_the_lock_while_it_releases_has_written_nothing(
    bench: Bench, transaction: int
) -> None:
    grant = bench.granted("anna", lease_ms=1_000)
    if transaction == 2:  # the second one hands over
        bench.waits("ben", lease_ms=60_000)
    bench.clock.advance(10)
    take = meanwhile(transaction, lambda: bench.operations.acquire(LATE), of=TRANSACTIONS)
    between = FaultyTable(bench.inner, take)
    with pytest.raises(LockLost):
        bench.through(between).writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (None, ["late" if transaction == 1 else "ben"])


def test_a_waiter_whose_workflow_is_over_is_passed_over_right_after_the_commit(
    bench: Bench,
) -> None:
    grant = bench.granted("anna")
    bench.waits("ben", execution_arn=EXECUTION)
    bench.context = replace(
        bench.context, workflows=FakeWorkflows(wakes=Delivery.GONE, runs=Liveness.OVER)
    )
    bench.writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, [], [])
    assert bench.state().contended is False


def test_an_outage_right_after_the_commit_is_no_error_of_the_commit(bench: Bench) -> None:
    grant = bench.granted("anna")
    bench.waits("ben")
    bench.waits("carl")
    raise_limit_of_waiters(bench, limit=2)
    outage = FaultyTable(bench.inner, fault(client_error("InternalServerError", 500), 3))
    bench.through(outage).writes(grant).transact_write([deposit("x")], release=True)
    assert outage.writes == 3  # the third was to hand carl the second permit
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["ben"], ["carl"])
    answered = bench.granted("carl", waits=True, limit=2)  # it asks again by itself
    assert answered.fencing_token == grant.fencing_token + 2


def test_writes_without_the_release_in_them_can_be_torn_from_it(bench: Bench) -> None:
    """The negative control: two calls, and the process dies in between."""
    grant = bench.granted("anna")
    dying = FaultyTable(bench.inner, fault(client_error("InternalServerError", 500), 2))
    through = bench.through(dying)
    through.writes(grant).transact_write([deposit("x")])
    with pytest.raises(LockStoreUnavailable):
        through.release("anna")
    assert (bench.balance("x"), bench.holders()) == (1, ["anna"])


def test_a_release_that_does_not_look_at_the_queue_forgets_the_waiter(bench: Bench) -> None:
    """The negative control of all hand-offs above."""
    bench.granted("anna")
    bench.waits("ben")
    request = ReleaseRequest(lock_name=LOCK, owner_id=owner("anna"))
    leave = release_permit(request, left_at_ms=START_MS)
    bench.inner.update_item(
        TableName=TABLE,
        Key=leave.key,
        UpdateExpression=leave.change,
        ConditionExpression="attribute_exists(#mine)",
        ExpressionAttributeNames={
            name: attribute for name, attribute in leave.names.items() if name != "#contended"
        },
        ExpressionAttributeValues={
            name: value for name, value in leave.values.items() if name != ":late_limit"
        },
    )
    assert (bench.holders(), bench.waiters()) == ([], ["ben"])


# A lock whose transaction has an unknown outcome: the repeat tells, whatever became of it.


LEASE_SECONDS = 30
EACH_WAY = pytest.mark.parametrize("release", [False, True])


def lock_over(client: Any, clock: FakeClock) -> Lock:  # noqa: ANN401 - a client, or what wraps one
    locks = LockClient(
        TABLE, client=client, clock=clock, lease=LEASE_SECONDS, heartbeat_every=math.inf
    )
    return locks.acquire(LOCK)


@pytest.fixture
def lock(bench: Bench, clock: FakeClock) -> Iterator[Lock]:
    """A lock whose first transaction happened, and whose reply to it got lost."""
    client = FaultyTable(bench.inner)
    lock = lock_over(client, clock)
    client.will(lose(1))
    yield lock
    lock.release()


def unknown(lock: Lock, *, release: bool) -> None:
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([deposit("x")], token="one", release=release)


@EACH_WAY
def test_a_repeat_after_the_end_of_the_lease_tells_of_the_commit(
    bench: Bench, lock: Lock, clock: FakeClock, *, release: bool
) -> None:
    unknown(lock, release=release)
    clock.advance(LEASE_SECONDS + 1)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1
    with pytest.raises(LockLost):
        lock.transact_write([deposit("x")], token="two", release=release)
    assert bench.balance("x") == 1


def test_without_a_token_the_lock_says_lost_of_the_repeat(
    bench: Bench, lock: Lock, clock: FakeClock
) -> None:
    """The negative control."""
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([deposit("x")])
    clock.advance(LEASE_SECONDS + 1)
    with pytest.raises(LockLost):
        lock.transact_write([deposit("x")])
    assert bench.balance("x") == 1


def test_a_repeat_after_a_release_tells_of_the_commit(bench: Bench, lock: Lock) -> None:
    unknown(lock, release=True)
    assert lock.release()
    lock.transact_write([deposit("x")], token="one", release=True)
    assert bench.balance("x") == 1


@EACH_WAY
def test_a_repeat_that_is_not_let_in_is_forgotten_by_no_one(
    bench: Bench, clock: FakeClock, *, release: bool
) -> None:
    """Expired credentials, say: then it is still unknown whether the first try was written."""
    client = FaultyTable(bench.inner)
    lock = lock_over(client, clock)
    client.will(lose(1))
    unknown(lock, release=release)
    client.will(fault(client_error("ExpiredTokenException"), 1))
    with pytest.raises(Exception, match="ExpiredToken"):
        lock.transact_write([deposit("x")], token="one", release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1


def test_threads_that_begin_together_share_one_memory(
    bench: Bench, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_over(bench.inner, clock)
    together = threading.Barrier(2)
    make = GuardedWrites.__init__

    def make_together(self: GuardedWrites, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as it is
        together.wait(10)
        make(self, *args, **kwargs)

    monkeypatch.setattr(GuardedWrites, "__init__", make_together)
    made: list[GuardedWrites] = []
    threads = [
        threading.Thread(target=lambda: made.append(BaseLock._guarded(lock)))  # noqa: SLF001 - seen from nowhere else
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert made[0] is made[1]
