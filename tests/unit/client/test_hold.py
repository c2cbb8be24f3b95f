"""`with locks.hold(...)`: what the body raises leaves it, and a bad end is not hidden."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest

from fairlock import ClientUnusable, InvalidRequest, Lock, LockLost, LockStoreUnavailable
from tests.support.faults import lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, Table


class WorkFailedError(Exception):
    """What the body raises."""


def what_leaves(block: AbstractContextManager[object]) -> Exception | None:
    try:
        with block:
            raise WorkFailedError  # noqa: TRY301 - it has to pass through the block
    except Exception as error:  # noqa: BLE001 - the very question
        return error
    return None


def test_what_the_body_raises_leaves_it_after_the_release(
    make_client: MakeClient, table: Table
) -> None:
    assert isinstance(what_leaves(make_client().hold("a")), WorkFailedError)
    assert table.state("a").held == 0


def test_an_exit_that_says_that_all_is_well_would_swallow_it(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = Lock.__exit__

    def all_is_well(self: Lock, *raised: Any) -> bool:  # noqa: ANN401 - as it is
        leave(self, *raised)
        return True

    monkeypatch.setattr(Lock, "__exit__", all_is_well)
    assert what_leaves(make_client().acquire("a")) is None


def test_a_lock_in_a_with_statement_is_released_too(make_client: MakeClient, table: Table) -> None:
    with make_client().acquire("a") as lock:
        lock.check()
    assert table.state("a").held == 0


@pytest.mark.parametrize("is_released", [False, True])
def test_a_lock_is_entered_once_and_while_it_is_held(
    is_released: bool,  # noqa: FBT001 - parametrized
    make_client: MakeClient,
) -> None:
    lock, bodies = make_client().acquire("a"), []
    if is_released:
        lock.release()
    with suppress(LockLost), lock:
        bodies.append("alone")
        with pytest.raises(InvalidRequest, match="whose inner end would release it"), lock:
            bodies.append("not alone")
        lock.check()
    with pytest.raises(LockLost, match="acquire it again"), lock:
        bodies.append("not alone")
    assert bodies == ([] if is_released else ["alone"])


def test_a_release_that_fails_is_a_note_on_the_bodys_exception(
    make_client: MakeClient, table: Table
) -> None:
    locks = make_client()

    def work() -> None:
        with locks.hold("a"):
            table.outage = lost_reply()
            raise WorkFailedError

    with pytest.raises(WorkFailedError) as raised:
        work()
    (note,) = raised.value.__notes__
    assert note.startswith("At the end of the lock: the lock table did not answer")


def test_a_release_that_fails_leaves_the_works_result(
    make_client: MakeClient, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fairlock"), make_client().hold("a"):
        table.outage = lost_reply()
    assert "lock 'a': release failed, its lease ends it" in caplog.text


def test_a_release_that_fails_raises_if_that_is_wanted(
    make_client: MakeClient, table: Table
) -> None:
    locks = make_client(best_effort_release=False)
    with pytest.raises(LockStoreUnavailable), locks.hold("a"):
        table.outage = lost_reply()


def test_a_body_that_succeeds_without_its_lock_is_told(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    with pytest.raises(LockLost, match="its lease is over"), make_client(lease=10).hold("a"):
        clock.advance(10)


@pytest.mark.parametrize("best_effort", [True, False])
def test_a_body_that_succeeds_in_an_outage_that_outlasts_its_lease_is_told(
    make_client: MakeClient, table: Table, clock: EventfulClock, *, best_effort: bool
) -> None:
    locks = make_client(lease=10, best_effort_release=best_effort)

    def work() -> None:
        with locks.hold("a"):
            clock.advance(10)
            table.outage = lost_reply()

    with pytest.raises(LockLost, match="its lease is over") as raised:
        work()
    assert isinstance(raised.value.__cause__, LockStoreUnavailable)


def test_a_body_that_fails_without_its_lock_keeps_its_exception(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    def work() -> None:
        with make_client(lease=10).hold("a"):
            clock.advance(10)
            raise WorkFailedError

    with pytest.raises(WorkFailedError) as raised:
        work()
    assert raised.value.__notes__ == ["At the end of the lock: lock 'a': its lease is over"]


def test_a_lock_released_in_the_body_is_not_released_again(
    make_client: MakeClient, table: Table
) -> None:
    with make_client().hold("a") as lock:
        lock.release()
    assert table.writes() == 2


def test_closing_a_client_gives_back_its_locks_only_if_told(
    make_client: MakeClient, table: Table
) -> None:
    keeps, gives = make_client("keeps"), make_client("gives")
    keeps.acquire("a")
    for name in ("b", "c", "d"):
        gives.acquire(name)
    keeps.close()
    gives.close(release=True)
    assert [table.state(name).held for name in "abcd"] == [1, 0, 0, 0]


def test_a_closed_client_acquires_nothing(make_client: MakeClient, table: Table) -> None:
    locks = make_client()
    with locks, suppress(WorkFailedError):
        raise WorkFailedError
    with pytest.raises(ClientUnusable, match="closed"):
        locks.acquire("a")
    assert table.log == []


def test_a_lock_may_be_released_after_its_client_was_closed(
    make_client: MakeClient, table: Table
) -> None:
    locks = make_client()
    lock = locks.acquire("a")
    locks.close()
    lock.check()
    assert lock.release() is True
    assert table.state("a").held == 0


@pytest.mark.parametrize("best_effort", [True, False])
def test_an_explicit_release_raises_what_prevents_it_also_with_best_effort(
    make_client: MakeClient, table: Table, *, best_effort: bool
) -> None:
    lock = make_client(best_effort_release=best_effort).acquire("a")
    table.outage = lost_reply()
    with pytest.raises(LockStoreUnavailable):
        lock.release()


def test_after_the_client_is_closed_its_locks_can_still_be_renewed_and_released(
    make_client: MakeClient, table: Table
) -> None:
    locks = make_client()
    lock = locks.acquire("a")
    locks.close()
    lock.heartbeat()
    assert table.state("a").holders[0].revision == 2
    assert lock.release() is True
    assert table.state("a").held == 0


def test_a_safe_period_of_the_other_meaning_is_logged(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """20 of 30 seconds are what python_dynamodb_lock suggests; there they count from a renewal."""
    make_client(lease=30, heartbeat_every=5, safe_period=20)
    assert "danger is reported 10 s after a renewal" in caplog.text
    assert "give safe_period=10" in caplog.text
    caplog.clear()
    make_client(lease=30, heartbeat_every=5, safe_period=10)
    make_client(lease=30)
    assert caplog.text == ""
