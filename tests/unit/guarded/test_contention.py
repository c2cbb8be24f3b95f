"""Many holders in turn over real HTTP, each releasing with its writes; and holders gone stale."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from fairlock.aws.executions import Delivery
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.protocol.model import AcquireRequest
from fairlock.protocol.outcomes import Grant
from fairlock.store.context import LockContext
from tests.support import LOCK, TABLE, FakeClock, owner
from tests.support.operations import Operations
from tests.support.workflows import FakeWorkflows
from tests.unit.guarded.bench import LEDGER, Bench, deposit, is_refused

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

THREADS = 8
MOST_SECONDS = 60


@dataclass
class Crowd:
    """Threads that queue for one lock, each woken only by the push of the departing holder."""

    bench: Bench
    limit: int = 1
    woken: dict[str, threading.Event] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    queued: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.bench.context = LockContext(  # real time: the fake clock is for one thread
            table=LockTable(self.bench.client, TABLE),
            workflows=FakeWorkflows(wakes=self._wake),
            retry_budget=RetryBudget(
                seconds=60
            ),  # on a busy machine another caller may be outrun for seconds
        )
        self.bench.store = Operations(self.bench.context)

    def _wake(self, task_token: str, grant: Grant) -> Delivery:
        self.tokens.append(grant.fencing_token)
        self.woken[task_token].set()
        return Delivery.DELIVERED

    def hold_once(self, name: str) -> None:
        """Waits for the lock, writes to the ledger, and leaves in the same transaction."""
        self.woken[name] = threading.Event()
        request = AcquireRequest(
            lock_name=LOCK,
            owner_id=owner(name),
            owner_name=name,
            lease_ms=600_000,
            limit=self.limit,
            waits=True,
            task_token=name,
        )
        answer = self.bench.store.acquire(request)
        if not isinstance(answer, Grant):
            self.queued.release()
            assert self.woken[name].wait(30), f"no one woke {name}"
            answer = self.bench.store.acquire(request)
        assert isinstance(answer, Grant)
        one_more = self.one_more() if self.limit == 1 else deposit("x")
        self.bench.writes(answer).transact_write([one_more], release=True)

    def one_more(self) -> TransactWriteItemTypeDef:
        """The balance as it is read now, plus one: it loses updates unless one is inside."""
        balance = (self.bench.balance("x") or 0) + 1
        item = {"account": {"S": "x"}, "balance": {"N": str(balance)}}
        return {"Put": {"TableName": LEDGER, "Item": item}}


@pytest.mark.parametrize("limit", [1, 3])
def test_every_waiter_holds_the_lock_once_and_none_is_forgotten(
    dynamodb: DynamoDBClient, clock: FakeClock, limit: int
) -> None:
    bench = Bench(dynamodb, clock, dynamodb)
    crowd = Crowd(bench, limit=limit)
    names = [f"visitor-{i:03d}" for i in range(40)]
    first = [f"first-{i}" for i in range(limit)]
    for name in first:
        bench.granted(name, limit=limit, lease_ms=600_000)
    with ThreadPoolExecutor(THREADS) as pool:
        holds = pool.map(crowd.hold_once, names)
        assert all(crowd.queued.acquire(timeout=30) for _ in range(THREADS))
        for name in first:
            bench.release(name)
        list(holds)
    state = bench.state()
    assert bench.balance("x") == len(names)
    assert (state.held, state.holders, bench.waiters()) == (0, (), [])
    assert len(crowd.tokens) == len(set(crowd.tokens))
    assert len(crowd.tokens) >= THREADS  # so many at least had to wait, and were woken


def stale_attempts(bench: Bench, *, holders: int, writes_each: int, guarded: bool) -> int:
    """How many writes of holders whose place was taken over are accepted, while others hold."""
    stale = []
    for number in range(holders):
        stale.append(bench.granted(f"stale-{number}", lease_ms=1_000))
        bench.clock.advance(10)
    bench.granted("current", lease_ms=3_600_000)

    def attempt(grant: Grant) -> bool:
        if guarded:
            return not is_refused(lambda: bench.writes(grant).transact_write([deposit("x")]))
        bench.inner.transact_write_items(TransactItems=[deposit("x")])
        return True

    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(attempt, stale * writes_each))


def test_of_two_hundred_writes_of_stale_holders_none_is_accepted(bench: Bench) -> None:
    assert stale_attempts(bench, holders=10, writes_each=20, guarded=True) == 0
    assert bench.balance("x") is None


def test_with_the_guard_off_they_are_all_accepted(bench: Bench) -> None:
    assert stale_attempts(bench, holders=2, writes_each=10, guarded=False) == 20
    assert bench.balance("x") == 20


def test_a_write_that_races_with_a_takeover_is_written_or_refused_and_never_both(
    bench: Bench,
) -> None:
    for number in range(20):
        grant = bench.granted(f"stale-{number}", lease_ms=1_000)
        bench.clock.advance(10)
        account = f"account-{number}"
        race = _Race(bench, grant, account)
        with ThreadPoolExecutor(2) as pool:
            refused = pool.submit(race.write)
            pool.submit(race.take_over_permit).result(MOST_SECONDS)
        assert bench.balance(account) == (None if refused.result(MOST_SECONDS) else 1)
        bench.clock.advance(10)


@dataclass
class _Race:
    bench: Bench
    grant: Grant
    account: str
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def write(self) -> bool:
        self.barrier.wait(MOST_SECONDS)
        writes = self.bench.writes(self.grant)
        return is_refused(lambda: writes.transact_write([deposit(self.account)]))

    def take_over_permit(self) -> None:
        self.barrier.wait(MOST_SECONDS)
        self.bench.granted(f"after-{self.account}", lease_ms=1_000)
