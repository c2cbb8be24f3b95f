"""Many holders in turn over real HTTP, each releasing with its writes; and holders gone stale."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from fairlock import InvalidRequest, Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.aws.executions import Delivery
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.protocol.model import AcquireRequest, Grant
from fairlock.store.context import LockContext
from tests.support import LOCK, TABLE, FakeClock, Operations, owner
from tests.support.faulty_table import Fault, FaultyTable, client_error, fault
from tests.support.store_bench import FakeWorkflows
from tests.unit.client.doubles import TimeLimitError
from tests.unit.guarded.conftest import LEDGER, Bench, deposit, is_refused

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
        self.bench.operations = Operations(self.bench.context)

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
        answer = self.bench.operations.acquire(request)
        if not isinstance(answer, Grant):
            self.queued.release()
            assert self.woken[name].wait(30), f"no one woke {name}"
            answer = self.bench.operations.acquire(request)
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
    bench = Bench(dynamodb, clock)
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


# A guarded write is interrupted, and made again: by Ctrl-C, or by a signal handler that raises.

EACH_WAY = pytest.mark.parametrize("release", [False, True])
INTERRUPTS = pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), TimeLimitError()])


@pytest.fixture
def faulty(bench: Bench) -> FaultyTable:
    return FaultyTable(bench.inner)


@pytest.fixture
def lock(faulty: FaultyTable, clock: FakeClock) -> Iterator[Lock]:
    """Its next write is done; then an interrupt comes instead of the answer."""
    client: Any = faulty
    with LockClient(TABLE, client=client, clock=clock, heartbeat_every=math.inf) as locks:
        lock = locks.acquire(LOCK)
        faulty.will(fault(TimeLimitError(), 1, when="after"))
        yield lock


def interrupted(lock: Lock, *, release: bool) -> None:
    with suppress(KeyboardInterrupt, TimeLimitError):
        lock.transact_write([deposit("x")], token="one", release=release)
        raise AssertionError("it was not interrupted")


@EACH_WAY
@INTERRUPTS
def test_an_interrupted_write_that_is_made_again_is_done_once(
    bench: Bench, faulty: FaultyTable, lock: Lock, *, interrupt: BaseException, release: bool
) -> None:
    faulty.will(fault(interrupt, 1, when="after"))
    interrupted(lock, release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert (bench.balance("x"), len(bench.holders())) == (1, 0 if release else 1)
    assert not lock.lost.is_set()


def test_one_that_is_made_again_without_a_token_is_done_twice(bench: Bench, lock: Lock) -> None:
    """The negative control."""
    with pytest.raises(TimeLimitError):
        lock.transact_write([deposit("x")])
    lock.transact_write([deposit("x")])
    assert bench.balance("x") == 2


@EACH_WAY
def test_one_that_was_interrupted_before_it_was_sent_is_made_up_for(
    bench: Bench, faulty: FaultyTable, lock: Lock, *, release: bool
) -> None:
    faulty.will(fault(TimeLimitError(), 1))
    interrupted(lock, release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert (bench.balance("x"), len(bench.holders())) == (1, 0 if release else 1)


def test_after_an_interrupted_write_with_release_no_heartbeat_tells_of_a_theft(
    bench: Bench, lock: Lock
) -> None:
    interrupted(lock, release=True)
    assert bench.holders() == []
    with pytest.raises(LockLost, match="may have been released"):
        lock.heartbeat()
    assert not lock.lost.is_set()
    assert lock.release() is True


def test_the_end_of_the_client_releases_what_an_interrupted_write_has_not(
    bench: Bench, clock: FakeClock
) -> None:
    client: Any = FaultyTable(bench.inner)
    with LockClient(TABLE, client=client, clock=clock, heartbeat_every=math.inf) as locks:
        lock = locks.acquire(LOCK)
        client.will(fault(TimeLimitError(), 1))
        interrupted(lock, release=True)
        assert len(bench.holders()) == 1
    assert bench.holders() == []


@pytest.mark.parametrize(("token", "balance"), [(None, 2), ("one", 1)])
def test_the_same_write_of_two_threads_at_a_time_is_one_write_if_it_has_a_token(
    bench: Bench, clock: FakeClock, *, token: str | None, balance: int
) -> None:
    first_is_done, go_on = threading.Event(), threading.Event()

    def hold_the_answer() -> None:
        first_is_done.set()
        assert go_on.wait(10)

    client: Any = FaultyTable(bench.inner)
    with LockClient(TABLE, client=client, clock=clock, heartbeat_every=math.inf) as locks:
        lock = locks.acquire(LOCK)
        client.will(Fault(at=1, after=hold_the_answer))

        def write() -> None:
            lock.transact_write([deposit("x")], token=token)

        first = threading.Thread(target=write)
        first.start()
        assert first_is_done.wait(10)
        write()
        go_on.set()
        first.join(10)
    assert bench.balance("x") == balance


@EACH_WAY
@pytest.mark.parametrize(
    "error",
    [client_error("ValidationException"), ParamValidationError(report="no such thing")],
    ids=["refused by DynamoDB", "refused by boto3"],
)
def test_a_write_that_was_not_let_in_is_certainly_not_written(
    bench: Bench, faulty: FaultyTable, lock: Lock, *, error: Exception, release: bool
) -> None:
    """botocore has sent it once, at most: the lock is held, and the same call is a new one."""
    if isinstance(error, ClientError):
        error.response["ResponseMetadata"]["RetryAttempts"] = 0
    faulty.will(fault(error, 1))
    with pytest.raises(InvalidRequest, match=r"^items: must be a valid transaction"):
        lock.transact_write([deposit("x")], token="one", release=release)
    lock.check()
    lock.transact_write([deposit("x")])
    lock.transact_write([deposit("x")])
    assert bench.balance("x") == 2


@EACH_WAY
def test_a_write_that_is_not_let_in_when_botocore_repeats_it_may_be_written(
    bench: Bench, faulty: FaultyTable, lock: Lock, *, release: bool
) -> None:
    """The reply to the first sending got lost, and the credentials are over at the second."""
    faulty.will(fault(client_error("ExpiredTokenException"), 1, when="after"))
    with pytest.raises(LockStoreUnavailable, match=r"may be written yet.*repeat the call"):
        lock.transact_write([deposit("x")], token="one", release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1
