"""A lock's guarded write without an answer: interrupted, its reply lost, or not let in.

An interrupt is Ctrl-C, or a signal handler that raises.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from fairlock import InvalidRequest, Lock, LockLost, LockStoreUnavailable
from fairlock.client.base_lock import BaseLock
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.testing import ManualClock
from tests.support.faulty_table import (
    Fault,
    FaultyTable,
    client_error,
    fault,
    lose,
    lost_reply,
    refusal,
)
from tests.unit.client.doubles import TimeLimitError
from tests.unit.guarded.conftest import Bench, deposit, locked

LEASE_SECONDS = 30
EACH_WAY = pytest.mark.parametrize("release", [False, True])


@pytest.fixture
def faulty_lock(bench: Bench) -> Iterator[tuple[Any, Lock]]:
    with locked(bench, lease=LEASE_SECONDS) as faulty_lock:
        yield faulty_lock


@pytest.fixture
def faulty(faulty_lock: tuple[Any, Lock]) -> FaultyTable:
    """What the requests of the lock go through."""
    client: FaultyTable = faulty_lock[0]
    return client


@pytest.fixture
def lock(faulty_lock: tuple[Any, Lock], faulty: FaultyTable) -> Lock:
    """Its next write is done, and the reply to it gets lost."""
    faulty.will(lose(1))
    return faulty_lock[1]


def unanswered(lock: Lock, *, release: bool) -> None:
    with suppress(KeyboardInterrupt, TimeLimitError, LockStoreUnavailable):
        lock.transact_write([deposit("x")], token="one", release=release)
        raise AssertionError("it was answered")


@EACH_WAY
def test_a_repeat_after_the_end_of_the_lease_tells_of_the_commit(
    bench: Bench, lock: Lock, clock: ManualClock, *, release: bool
) -> None:
    unanswered(lock, release=release)
    clock.advance(LEASE_SECONDS + 1)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1
    with pytest.raises(LockLost):
        lock.transact_write([deposit("x")], token="two", release=release)
    assert bench.balance("x") == 1


def test_a_repeat_after_a_release_tells_of_the_commit(bench: Bench, lock: Lock) -> None:
    unanswered(lock, release=True)
    assert lock.release()
    lock.transact_write([deposit("x")], token="one", release=True)
    assert bench.balance("x") == 1


@EACH_WAY
def test_a_repeat_that_is_not_let_in_is_forgotten_by_no_one(
    bench: Bench, faulty: FaultyTable, lock: Lock, *, release: bool
) -> None:
    """Expired credentials, say: then it is still unknown whether the first try was written."""
    unanswered(lock, release=release)
    faulty.will(fault(client_error("ExpiredTokenException"), 1))
    with pytest.raises(Exception, match="ExpiredToken"):
        lock.transact_write([deposit("x")], token="one", release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1


def test_threads_that_begin_together_share_one_memory(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@EACH_WAY
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeLimitError(), lost_reply()])
def test_a_write_without_an_answer_that_is_made_again_is_done_once(
    bench: Bench,
    faulty: FaultyTable,
    lock: Lock,
    when: Literal["before", "after"],
    *,
    error: BaseException,
    release: bool,
) -> None:
    faulty.will(fault(error, 1, when=when))
    unanswered(lock, release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert (bench.balance("x"), len(bench.holders())) == (1, 0 if release else 1)
    assert not lock.lost.is_set()


def test_the_end_of_the_client_releases_what_an_interrupted_write_has_not(bench: Bench) -> None:
    with locked(bench) as (client, lock):
        client.will(fault(TimeLimitError(), 1))
        unanswered(lock, release=True)
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
