"""Ctrl-C, or a signal handler that raises: no heartbeat ends by it, and no lock stays behind."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlock import Lock, LockClient, locked
from fairlock.client.acquisition import Acquisition
from fairlock.client.heartbeats import Heartbeats
from fairlock.client.lease_handle import Unreleased
from fairlock.client.reporting import LockEventKind, LockEvents
from fairlock.client.threads import WorkerPool
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import Table, TimeLimitError, interrupt

LEASE_SECONDS = 3600.0
pytestmark = pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
"""Of a block that an interrupt has kept from beginning."""
MOST_MOMENTS = 200
MOST_MOMENTS_OF_A_USE = 500
OUR_CODE = "fairlock/client/"
RETURNS_OF_THE_LOCK = 2
"""From `_acquire`, and from `acquire` or to the block: Python runs no signal handler there."""


def is_free(lock: threading.RLock) -> bool:
    """Whether another thread gets it."""
    got: list[bool] = []

    def look() -> None:
        got.append(lock.acquire(timeout=0.5))
        if got[0]:
            lock.release()

    looking = threading.Thread(target=look)
    looking.start()
    looking.join(30)
    return got[0]


def a_moment_stops_all_heartbeats(
    make_client: MakeClient, prepare: Callable[[Heartbeats], object]
) -> bool:
    """Interrupts `add` and `remove` at each of their moments; whether one of them is the end."""
    for at in range(MOST_MOMENTS):
        locks = make_client(lease=LEASE_SECONDS)
        heartbeats = locks._services.heartbeats  # noqa: SLF001 - an interrupt is aimed at it
        prepare(heartbeats)
        handle = locks.acquire("a")._handle  # noqa: SLF001 - same
        actions = [partial(heartbeats.remove, handle), partial(heartbeats.add, handle)]
        came = [interrupt(action, at=at) for action in actions]
        if not is_free(heartbeats._mutex):  # noqa: SLF001 - same
            with suppress(RuntimeError):
                heartbeats._mutex.release()  # noqa: SLF001 - for the end of the test
            return True
        locks.acquire("b").release()
        if not any(came):
            return False
    raise AssertionError("these take more moments than were tried")


def test_an_interrupt_at_any_moment_of_add_and_remove_leaves_no_lock_locked(
    make_client: MakeClient,
) -> None:
    assert not a_moment_stops_all_heartbeats(make_client, lambda _: None)


def test_entered_through_the_condition_some_would_stop_all_heartbeats_for_good(
    make_client: MakeClient,
) -> None:
    def enter_the_condition(heartbeats: Heartbeats) -> None:
        heartbeats._mutex = heartbeats._changed  # type: ignore[assignment]  # noqa: SLF001 - the control

    assert a_moment_stops_all_heartbeats(make_client, enter_the_condition)


class Interrupts:
    """Raises in the middle of the next requests of a table that write."""

    def __init__(self, table: Table, *errors: BaseException, when: str) -> None:
        self.errors = list(errors)
        self.when = when
        self.update = table.memory.update_item
        setattr(table.memory, "update_item", self.update_item)  # noqa: B010 - a stand-in's

    def update_item(self, **request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        error = self.errors.pop(0) if self.errors else None
        if error is not None and self.when == "before":
            raise error
        answer = self.update(**request)
        if error is not None:
            raise error
        return answer


EACH_WAY = pytest.mark.parametrize("when", ["before", "after"])


@EACH_WAY
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), TimeLimitError()])
def test_an_interrupted_release_is_tried_once_more_and_the_interrupt_goes_on(
    make_client: MakeClient, table: Table, error: BaseException, when: str
) -> None:
    told: list[Lock] = []
    lock = make_client(lease=LEASE_SECONDS).acquire(
        "a", on_lost=lambda lost, _reason: told.append(lost)
    )
    Interrupts(table, error, when=when)
    with pytest.raises(type(error)):
        lock.release()
    assert table.state("a").held == 0
    assert (lock.release(), lock.lost.is_set(), told) == (True, False, [])


@EACH_WAY
@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeLimitError()])
def test_an_interrupt_in_the_release_of_a_with_leaves_it(
    make_client: MakeClient, table: Table, error: BaseException, when: str
) -> None:
    """Also one that is no more than an Exception: nothing went wrong that could be logged."""

    def work() -> None:
        with make_client(lease=LEASE_SECONDS).hold("a"):
            Interrupts(table, error, when=when)

    with pytest.raises(type(error)):
        work()
    assert table.state("a").held == 0


def interrupted_twice(locks: LockClient, table: Table) -> int:
    """Ctrl-C, Ctrl-C in a release at the end of two blocks; returns how many hold the lock then."""
    with suppress(KeyboardInterrupt), locks, locks.hold("a"):
        Interrupts(table, KeyboardInterrupt(), KeyboardInterrupt(), when="before")
    return table.state("a").held


def test_an_impatient_interrupt_leaves_the_release_to_the_end_of_the_client(
    make_client: MakeClient, table: Table
) -> None:
    assert interrupted_twice(make_client(lease=LEASE_SECONDS), table) == 0


def test_a_client_that_knows_only_what_it_renews_would_leave_it_to_the_lease(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unreleased, "unsettled", lambda _self: [])
    assert interrupted_twice(make_client(lease=LEASE_SECONDS), table) == 1


def test_an_interrupt_before_the_release_was_sent_releases_too(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = make_client(lease=LEASE_SECONDS)
    lock = locks.acquire("a")
    leave = type(lock._handle)._release  # noqa: SLF001 - the moment before anything is sent
    interrupts = [KeyboardInterrupt()]

    def interrupted(held: Any, **wanted: Any) -> bool:  # noqa: ANN401 - as it is
        if interrupts:
            raise interrupts.pop()
        return leave(held, **wanted)

    monkeypatch.setattr(type(lock._handle), "_release", interrupted)  # noqa: SLF001 - same
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert table.state("a").held == 0


def test_what_is_free_or_over_is_not_remembered(
    make_client: MakeClient,
    table: Table,
    clock: Any,  # noqa: ANN401 - the fixture's
) -> None:
    locks = make_client(lease=10, heartbeat_every=math.inf)
    for number in range(3):
        lock = locks.acquire(f"over-{number}")
        table.outage = ConnectionResetError()
        with pytest.raises(ConnectionResetError):
            lock.release()
        table.outage = None
    remembered = locks._services.unreleased  # noqa: SLF001 - nothing outside tells that
    assert len(remembered.unsettled()) == 3
    clock.advance(11)
    assert remembered.unsettled() == []
    locks.acquire("free").release()
    assert remembered._all == {}  # noqa: SLF001 - same


def moments_that_leave_the_lock(
    make_client: MakeClient,
    table: Table,
    use: Callable[[LockClient], object],
    *,
    within: str = OUR_CODE,
) -> list[int]:
    """Interrupts a use of a lock at each of its moments; returns those after which it is held."""
    left = []
    for at in range(MOST_MOMENTS_OF_A_USE):
        locks = make_client(lease=LEASE_SECONDS)
        came = interrupt(partial(use, locks), at=at, within=within)
        if came and table.state("a").held:
            left.append(at)
            locks.close(release=True)
            assert table.state("a").held == 0, "the client knows of the grant"
        locks.close(release=True)
        if not came:
            return left
    raise AssertionError("this takes more moments than were tried")


def hold(locks: LockClient) -> None:
    with locks.hold("a"):
        pass


def test_an_interrupt_at_any_moment_of_hold_leaves_no_lock(
    make_client: MakeClient, table: Table
) -> None:
    left = moments_that_leave_the_lock(make_client, table, hold)
    assert len(left) <= RETURNS_OF_THE_LOCK


def test_an_interrupt_at_any_moment_of_acquire_leaves_no_lock(
    make_client: MakeClient, table: Table
) -> None:
    left = moments_that_leave_the_lock(make_client, table, lambda locks: locks.acquire("a"))
    assert len(left) <= RETURNS_OF_THE_LOCK


def test_without_the_last_steps_a_lock_would_stay_that_not_even_its_client_knows(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.client.lock_client._release_if_held", lambda _lock: None)
    monkeypatch.setattr(Acquisition, "is_abandoned", lambda _acquisition: False)
    with pytest.raises(AssertionError, match="the client knows of the grant"):
        moments_that_leave_the_lock(make_client, table, hold)


def call_locked_function(locks: LockClient) -> None:
    locked("a", client=locks)(lambda: None)()


@pytest.mark.parametrize("within", ["fairlock/decorator/", "contextlib"])
def test_an_interrupt_at_any_moment_of_a_locked_function_leaves_no_lock(
    make_client: MakeClient, table: Table, within: str
) -> None:
    left = moments_that_leave_the_lock(make_client, table, call_locked_function, within=within)
    assert left == []


def test_with_acquire_a_locked_function_would_leave_a_lock_that_is_renewed(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acquire(locks: LockClient, name: str, **_options: object) -> Lock:
        return locks.acquire(name)

    monkeypatch.setattr(LockClient, "hold", acquire)
    within = "fairlock/decorator/"
    left = moments_that_leave_the_lock(make_client, table, call_locked_function, within=within)
    assert left


def moments_that_end_all_heartbeats(*, seconds: float) -> list[int]:
    """Interrupts the start of a client's threads at each of its moments.

    Returns those after which the next lock is not renewed within so many seconds.
    """
    left = []
    for at in range(MOST_MOMENTS):
        table = Table()
        locks = LockClient("locks", client=table, heartbeat_every=0.05)  # type: ignore[arg-type]  # a substitute
        heartbeats = locks._services.heartbeats  # noqa: SLF001 - an interrupt is aimed at it

        def start(heartbeats: Heartbeats = heartbeats) -> None:
            with heartbeats._mutex:  # noqa: SLF001 - as `add` does
                heartbeats._start()  # noqa: SLF001 - same

        came = interrupt(start, at=at, within=OUR_CODE)
        locks.acquire("a")
        if not table.does_more(1, seconds=seconds):
            left.append(at)
        locks.close(release=True)
        if not came:
            return left
    raise AssertionError("this takes more moments than were tried")


def test_an_interrupt_at_any_moment_of_the_start_of_threads_leaves_a_client_that_renews() -> None:
    assert moments_that_end_all_heartbeats(seconds=5) == []


def test_with_a_thread_before_its_pool_some_would_leave_a_client_that_renews_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_thread_first(heartbeats: Heartbeats) -> None:
        scheduler = threading.Thread(target=heartbeats._run_scheduler, daemon=True)  # noqa: SLF001 - the control
        heartbeats._scheduler = scheduler  # noqa: SLF001 - same
        scheduler.start()
        heartbeats._pool = WorkerPool(1, name="fairlock-heartbeat")  # noqa: SLF001 - same

    monkeypatch.setattr(Heartbeats, "_start", start_thread_first)
    assert moments_that_end_all_heartbeats(seconds=0.2) != []


def test_a_grant_that_is_not_undone_would_be_unknown_to_the_client(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Acquisition, "undo", lambda _acquisition: None)
    monkeypatch.setattr(Acquisition, "is_abandoned", lambda _acquisition: False)
    with pytest.raises(AssertionError, match="the client knows of the grant"):
        moments_that_leave_the_lock(make_client, table, hold)


def moments_that_leave_heartbeats(
    locks: LockClient, use: Callable[[LockClient], object]
) -> list[int]:
    """Interrupts a use at each of its moments; returns those after which its lock is renewed.

    Its caller has got no lock then, so it would never be released.
    """
    heartbeats, left = locks._services.heartbeats, []  # noqa: SLF001 - nothing outside tells that
    for at in range(MOST_MOMENTS_OF_A_USE):
        came = interrupt(partial(use, locks), at=at, within=OUR_CODE)
        if came and heartbeats.handles():
            left.append(at)
        for handle in heartbeats.handles():
            heartbeats.remove(handle)
        if not came:
            return left
    raise AssertionError("this takes more moments than were tried")


def adopt_interrupted(make_client: MakeClient) -> list[int]:
    owner_id = make_client(lease=LEASE_SECONDS).acquire("a").owner_id
    locks = make_client(lease=LEASE_SECONDS)
    return moments_that_leave_heartbeats(locks, lambda locks: locks.adopt("a", owner_id))


def test_an_interrupted_adoption_leaves_no_heartbeats(make_client: MakeClient) -> None:
    assert len(adopt_interrupted(make_client)) <= 1  # The return of the lock.


def test_begun_by_the_lock_itself_heartbeats_would_be_left_without_one(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Lock.__init__

    def make_and_begin(lock: Lock, *arguments: Any) -> None:  # noqa: ANN401 - as the original
        made(lock, *arguments)
        lock._begin_heartbeats()  # noqa: SLF001 - the control

    monkeypatch.setattr(Lock, "__init__", make_and_begin)
    assert len(adopt_interrupted(make_client)) > 1


def moments_that_silence_the_hook() -> list[int]:
    """Interrupts the first event at each of its moments; returns those after which none is told."""
    left = []
    for at in range(MOST_MOMENTS):
        told: list[str] = []
        events = LockEvents(lambda event, told=told: told.append(event.lock_name))  # type: ignore[misc]  # a default
        report = partial(events.report, LockEventKind.GRANTED, owner_name="anna")
        came = interrupt(partial(report, lock_name="a"), at=at, within=OUR_CODE)
        report(lock_name="b")
        events.close()
        if "b" not in told:
            left.append(at)
        if not came:
            return left
    raise AssertionError("this takes more moments than were tried")


def test_an_interrupt_at_any_moment_of_the_first_event_does_not_silence_the_hook() -> None:
    assert moments_that_silence_the_hook() == []


def test_a_start_that_is_not_undone_would_silence_it_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_once(events: LockEvents) -> None:
        if events._may_start.acquire(blocking=False):  # noqa: SLF001 - the control
            start(events)

    def start(events: LockEvents) -> None:
        events.has_thread  # noqa: B018 - a moment of an interrupt
        events._thread = threading.Thread(target=events._run, daemon=True)  # noqa: SLF001 - the control
        events._thread.start()  # noqa: SLF001 - same

    monkeypatch.setattr(LockEvents, "_start_once", start_once)
    assert moments_that_silence_the_hook() != []
