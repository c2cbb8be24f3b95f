"""A thread inside the block of a lock does not wait for itself; it may enter the lock again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlock import InvalidRequest, Lock, LockClient, LockLost, LockWaitTimeout, locked
from fairlock.client.entered_locks import EnteredLocks
from fairlock.testing import FakeLockClient

WOULD_WAIT = r"^name: must not be 'a' here: this thread is inside a `with` that holds the lock"


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


def in_a_thread(work: Callable[[], object]) -> list[BaseException]:
    raised: list[BaseException] = []

    def catch() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    thread = threading.Thread(target=catch, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return raised


WAYS: dict[str, Callable[[LockClient], object]] = {
    "hold": lambda locks: locks.hold("a").__enter__(),
    "acquire": lambda locks: locks.acquire("a"),
    "locked": lambda locks: locked("a", client=locks)(print)(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_second_wait_of_the_same_thread_is_refused_at_once_and_nothing_is_sent(
    way: str, locks: FakeLockClient
) -> None:
    with locks.hold("a"):
        before = (locks.clock.monotonic(), len(locks.table.requests))
        with pytest.raises(InvalidRequest, match=WOULD_WAIT) as refused:
            WAYS[way](locks)
        assert "reentrant=True" in str(refused.value)
        assert (locks.clock.monotonic(), len(locks.table.requests)) == before


@pytest.mark.parametrize("way", WAYS)
def test_without_the_check_it_waits_until_the_end_of_its_wait(
    way: str, locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EnteredLocks, "require_that_others_can_release", lambda *_: None)
    with locks.hold("a"):
        with pytest.raises(LockWaitTimeout):
            WAYS[way](locks)
        assert locks.clock.monotonic() >= 120


def test_a_call_that_does_not_wait_is_refused_as_usual(locks: FakeLockClient) -> None:
    with locks.hold("a"):
        assert locks.try_acquire("a") is None
        with pytest.raises(LockWaitTimeout):
            locks.acquire("a", max_wait=0)


def test_another_thread_and_another_client_wait(locks: FakeLockClient) -> None:
    with locks.hold("a"):
        [late] = in_a_thread(lambda: locks.acquire("a", max_wait=1))
        assert isinstance(late, LockWaitTimeout)
        with pytest.raises(LockWaitTimeout):
            locks.another().acquire("a", max_wait=1)


def test_a_lock_outside_of_a_with_may_be_released_by_another_thread(locks: FakeLockClient) -> None:
    lock = locks.acquire("a")
    locks.clock.at(10, lock.release)
    with locks.hold("a") as second:
        assert second.fencing_token > lock.fencing_token


def test_a_block_that_has_ended_does_not_count(locks: FakeLockClient) -> None:
    with locks.hold("a"):
        pass
    with locks.hold("a") as lock:
        lock.release()
        with locks.hold("a"):
            pass


def test_a_lock_that_is_known_as_lost_does_not_count(locks: FakeLockClient) -> None:
    with pytest.raises(LockLost), locks.hold("a") as lost:  # noqa: PT012 - the whole block
        locks.clock.stall(61)
        assert lost.lost.is_set()
        with locks.hold("a", reentrant=True) as lock:
            assert lock.fencing_token > lost.fencing_token


def test_an_adopted_lock_counts_inside_its_block(locks: FakeLockClient) -> None:
    lock = locks.acquire("a")
    with locks.adopt("a", lock.owner_id), pytest.raises(InvalidRequest, match=WOULD_WAIT):
        locks.acquire("a")


@pytest.mark.parametrize(("limits", "is_refused"), [((2,), False), ((2, 2), True), ((1,), True)])
def test_a_thread_that_has_as_many_permits_as_may_be_out_is_refused(
    limits: tuple[int, ...],
    is_refused: bool,  # noqa: FBT001 - a parameter of the test
    locks: FakeLockClient,
) -> None:
    """Of a lock with two permits one may still come from others; beside a limit of 1 none may."""
    held = [locks.acquire("a", limit=limit) for limit in limits]
    for lock in held:
        lock.__enter__()
    if is_refused:
        with pytest.raises(InvalidRequest, match=WOULD_WAIT):
            locks.acquire("a", limit=2)
    else:
        assert locks.acquire("a", limit=2).release()
    for lock in held:
        lock.__exit__(None, None, None)


def test_a_generator_that_goes_on_in_another_thread_ends_its_own_block(
    locks: FakeLockClient,
) -> None:
    def block() -> Iterator[None]:
        with locks.hold("a"):
            yield

    generator = block()
    next(generator)
    with pytest.raises(InvalidRequest, match=WOULD_WAIT):
        locks.acquire("a")
    assert in_a_thread(lambda: next(generator, None)) == []
    assert locks.acquire("a").release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_inside_of_no_block(locks: FakeLockClient) -> None:
    with locks.hold("a"):
        child = os.fork()
        if child == 0:
            os._exit(len(locks._services.entered.held("a")))  # noqa: SLF001 - in the child
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(locks._services.entered.held("a")) == 1  # noqa: SLF001 - in the parent


def test_a_reentrant_block_gets_the_same_lock_and_only_the_outermost_releases(
    locks: FakeLockClient,
) -> None:
    with locks.hold("a", reentrant=True) as outer:
        sent = len(locks.table.requests)
        with locks.hold("a", reentrant=True) as inner, locks.hold("a", reentrant=True) as third:
            assert inner is outer is third
        assert (len(locks.table.requests), outer.remaining > 0) == (sent, True)
    assert outer.remaining == 0


def test_a_reentrant_block_of_another_thread_waits(locks: FakeLockClient) -> None:
    with locks.hold("a", reentrant=True):
        late = in_a_thread(lambda: locks.hold("a", reentrant=True, max_wait=1).__enter__())
        assert [type(error) for error in late] == [LockWaitTimeout]


def beep(_lock: Lock, _reason: str) -> None: ...


OTHER: dict[str, Any] = {
    "limit": 2,
    "lease": 30,
    "data": {"step": 2},
    "owner_name": "ben",
    "on_lost": print,
    "on_danger": print,
}


@pytest.mark.parametrize("field", OTHER)
def test_the_inner_options_are_those_of_the_outer_block_or_left_out(
    field: str, locks: FakeLockClient
) -> None:
    outer: dict[str, Any] = {"lease": 60, "data": {"step": 1}, "owner_name": "anna"}
    outer |= {"on_lost": beep, "on_danger": beep}
    with locks.hold("a", **outer):
        with locks.hold("a", reentrant=True), locks.hold("a", reentrant=True, **outer):
            pass
        with (
            pytest.raises(InvalidRequest, match=r"must be left out, or be that of the outer") as no,
            locks.hold("a", reentrant=True, **{field: OTHER[field]}),
        ):
            pass
        assert no.value.field == field


def test_an_inner_block_tells_of_a_loss_too(locks: FakeLockClient) -> None:
    outer = locks.hold("a")
    outer.__enter__()
    with pytest.raises(LockLost, match="lease is over"), locks.hold("a", reentrant=True):
        locks.clock.stall(61)
    with pytest.raises(LockLost, match="lease is over"):
        outer.__exit__(None, None, None)


def test_a_locked_function_may_call_itself_if_it_is_reentrant(locks: FakeLockClient) -> None:
    tokens: list[int] = []

    @locked("count", client=locks, reentrant=True)
    def count(down: int, *, lock: Lock | None = None) -> None:
        assert lock is not None
        tokens.append(lock.fencing_token)
        if down:
            count(down - 1)

    count(3)
    assert (len(tokens), len(set(tokens))) == (4, 1)
    assert locks.try_acquire("count") is not None


def test_a_reentrant_function_skips_what_others_hold(locks: FakeLockClient) -> None:
    others = locks.another().acquire("a")

    @locked("a", client=locks, if_taken="skip", otherwise=7, reentrant=True)
    def work() -> int:
        raise LockWaitTimeout

    assert work() == 7
    others.release()
    with pytest.raises(LockWaitTimeout):
        work()


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_reentrant_is_true_or_false(value: Any, locks: FakeLockClient) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidRequest, match="reentrant: must be True or False"):
        locks.hold("a", reentrant=value)
    with pytest.raises(InvalidRequest, match="reentrant: must be True or False"):
        locked("a", reentrant=value)
