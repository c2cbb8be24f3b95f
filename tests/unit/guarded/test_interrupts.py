"""A guarded write is interrupted, and made again: by Ctrl-C, or by a signal handler that raises."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from fairlock import InvalidRequest, Lock, LockClient, LockLost, LockStoreUnavailable
from tests.support import LOCK, TABLE, FakeClock
from tests.support.faults import client_error
from tests.support.faulty_table import Fault, FaultyTable, fault
from tests.unit.client.support.interrupts import TimeLimitError
from tests.unit.guarded.bench import Bench, deposit

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
