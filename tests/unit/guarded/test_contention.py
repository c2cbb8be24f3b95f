"""Many holders in turn over real HTTP, each releasing with its writes; and holders gone stale."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from fairlock import InvalidRequest, Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.guarded.guarded_writes import GuardedWrites
from tests.support import LOCK, TABLE
from tests.support.faulty_table import Fault, FaultyTable, client_error, fault, refusal
from tests.unit.client.doubles import TimeLimitError
from tests.unit.guarded.conftest import LEDGER, Bench, deposit, is_refused, locked

THREADS, HOLDS = 8, 24
MOST_SECONDS = 60


@pytest.mark.parametrize("limit", [1, 3])
def test_of_many_holders_that_release_with_their_writes_each_holds_once_and_no_write_is_lost(
    bench: Bench, limit: int
) -> None:
    """One that is alone writes the balance that it has read plus one: two at a time would lose."""

    def hold_once(_number: int) -> int:
        lock = locks.acquire(LOCK, limit=limit, max_wait=MOST_SECONDS)
        balance = (bench.balance("x") or 0) + 1
        item = {"account": {"S": "x"}, "balance": {"N": str(balance)}}
        put: Any = {"Put": {"TableName": LEDGER, "Item": item}}
        lock.transact_write([put if limit == 1 else deposit("x")], release=True)
        return lock.fencing_token

    with (
        LockClient(TABLE, client=bench.client, longest_poll=0.2) as locks,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        tokens = list(pool.map(hold_once, range(HOLDS)))
    assert len(set(tokens)) == bench.balance("x") == HOLDS
    state = bench.state
    assert (state.held, state.holders, bench.waiters()) == (0, (), [])


def test_a_write_that_races_with_a_takeover_is_written_or_refused_and_never_both(
    bench: Bench,
) -> None:
    barrier = threading.Barrier(2)

    def write(writes: GuardedWrites, account: str) -> bool:
        barrier.wait(MOST_SECONDS)
        return is_refused(lambda: writes.transact_write([deposit(account)]))

    def take_over(account: str) -> None:
        barrier.wait(MOST_SECONDS)
        bench.grant(f"after-{account}", lease_ms=1_000)

    for account in map(str, range(20)):
        writes = bench.writes(bench.grant(f"stale-{account}", lease_ms=1_000))
        bench.clock.advance(10)
        with ThreadPoolExecutor(2) as pool:
            refused = pool.submit(write, writes, account)
            pool.submit(take_over, account).result(MOST_SECONDS)
        assert bench.balance(account) == (None if refused.result(MOST_SECONDS) else 1)
        bench.clock.advance(10)


# A guarded write is interrupted, and made again: by Ctrl-C, or by a signal handler that raises.

EACH_WAY = pytest.mark.parametrize("release", [False, True])


@pytest.fixture
def faulty_lock(bench: Bench) -> Iterator[tuple[Any, Lock]]:
    with locked(bench) as faulty_lock:
        yield faulty_lock


@pytest.fixture
def faulty(faulty_lock: tuple[Any, Lock]) -> FaultyTable:
    """What its requests go through."""
    client: FaultyTable = faulty_lock[0]
    return client


@pytest.fixture
def lock(faulty_lock: tuple[Any, Lock], faulty: FaultyTable) -> Lock:
    """Its next write is done; then an interrupt comes instead of the answer."""
    faulty.will(fault(TimeLimitError(), 1, when="after"))
    return faulty_lock[1]


def interrupted(lock: Lock, *, release: bool) -> None:
    with suppress(KeyboardInterrupt, TimeLimitError):
        lock.transact_write([deposit("x")], token="one", release=release)
        raise AssertionError("it was not interrupted")


@EACH_WAY
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), TimeLimitError()])
def test_an_interrupted_write_that_is_made_again_is_done_once(
    bench: Bench,
    faulty: FaultyTable,
    lock: Lock,
    when: Literal["before", "after"],
    *,
    interrupt: BaseException,
    release: bool,
) -> None:
    faulty.will(fault(interrupt, 1, when=when))
    interrupted(lock, release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert (bench.balance("x"), len(bench.holders())) == (1, 0 if release else 1)
    assert not lock.lost.is_set()


def test_after_an_interrupted_write_with_release_no_heartbeat_tells_of_a_theft(
    bench: Bench, lock: Lock
) -> None:
    interrupted(lock, release=True)
    assert bench.holders() == []
    with pytest.raises(LockLost, match="may have been released"):
        lock.heartbeat()
    assert not lock.lost.is_set()
    assert lock.release() is True


def test_the_end_of_the_client_releases_what_an_interrupted_write_has_not(bench: Bench) -> None:
    with locked(bench) as (client, lock):
        client.will(fault(TimeLimitError(), 1))
        interrupted(lock, release=True)
        assert len(bench.holders()) == 1
    assert bench.holders() == []


@pytest.mark.parametrize(("token", "balance"), [(None, 2), ("one", 1)])
def test_the_same_write_of_two_threads_at_a_time_is_one_write_if_it_has_a_token(
    bench: Bench, faulty: FaultyTable, lock: Lock, *, token: str | None, balance: int
) -> None:
    first_is_done, go_on = threading.Event(), threading.Event()

    def hold_the_answer() -> None:
        first_is_done.set()
        assert go_on.wait(10)

    def write() -> None:
        lock.transact_write([deposit("x")], token=token)

    faulty.will(Fault(at=1, after=hold_the_answer))
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


def test_a_refusal_that_another_thread_has_overtaken_with_the_same_write_is_none(
    bench: Bench,
) -> None:
    """Both send the same call: one is refused, then the other is done, then both are answered."""
    refused: Any = refusal("TransactionCanceledException")
    refused.response["CancellationReasons"] = [{"Code": "None"}, {"Code": "ConditionalCheckFailed"}]
    faulty = FaultyTable(bench.client)
    writes = bench.writes(bench.grant("anna"), faulty)

    def write() -> None:
        writes.transact_write([deposit("x")], token="one")

    faulty.will(fault(refused, 1, then=write))
    write()
    assert bench.balance("x") == 1
