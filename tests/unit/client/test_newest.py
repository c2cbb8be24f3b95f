"""`only_newest` of the clients: the newest waiter gets the lock, and the others are told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fairlock import (
    InvalidRequest,
    LockClient,
    Superseded,
    locked,
)
from fairlock.testing import FakeTable
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table


class Fleet:
    """Deployments on machines of their own, in real threads over one table in memory."""

    def __init__(self, *, has_one_client: bool = False) -> None:
        self.table: Any = FakeTable()
        self.shared = self.client()
        self._has_one_client = has_one_client
        self.ran: list[int] = []
        self.superseded: list[Superseded] = []
        self._threads: list[threading.Thread] = []

    def client(self, **settings: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        return LockClient("locks", client=self.table, longest_poll=0.05, **settings)

    def deploy(self, version: int) -> None:
        """Begins a deployment, and returns once it waits."""
        before = self.waiting()
        thread = threading.Thread(target=self._deploy, args=(version,))
        thread.start()
        self._threads.append(thread)
        paused = threading.Event()
        for _ in range(1_000):
            if self.waiting() > before:
                return
            paused.wait(0.01)
        pytest.fail("it does not wait")

    def _deploy(self, version: int) -> None:
        locks = self.shared if self._has_one_client else self.client()
        try:
            with locks.hold("deploy", only_newest=version, max_wait=60):
                self.ran.append(version)
        except Superseded as error:
            self.superseded.append(error)
        finally:
            if locks is not self.shared:
                locks.close()

    def waiting(self) -> int:
        return sum("WAITER" in key[1] for key in self.table._memory.items)  # noqa: SLF001 - the test's own

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        self.shared.close()


def test_of_many_waiting_deployments_only_the_newest_runs() -> None:
    fleet = Fleet()
    holder = fleet.shared.acquire("deploy", only_newest=1)
    for version in (4, 2, 9, 3):
        fleet.deploy(version)
    holder.release()
    fleet.join()
    assert fleet.ran == [9]
    assert sorted(error.version for error in fleet.superseded) == [2, 3, 4]
    assert {(error.lock_name, error.newest) for error in fleet.superseded} == {("deploy", 9)}
    assert str(fleet.superseded[0]).endswith("is superseded, 9 was granted the lock")
    assert fleet.waiting() == 0


def test_waiters_of_one_client_learn_it_from_each_other() -> None:
    """One of them reads; the others need not ask, nor does their own client's hold keep them."""
    fleet = Fleet(has_one_client=True)
    holder = fleet.shared.acquire("deploy", only_newest=1)
    for version in (4, 2, 3, 9):
        fleet.deploy(version)
    holder.release()
    fleet.join()
    assert fleet.ran == [9]
    assert sorted(error.version for error in fleet.superseded) == [2, 3, 4]


@pytest.mark.parametrize("skew_seconds", [-600, -0.3, 0.3, 600])
def test_by_time_counts_the_time_of_aws_and_not_that_of_the_machine(
    make_client: MakeClient, table: Table, clock: EventfulClock, skew_seconds: float
) -> None:
    wrong = SkewedClock(clock, skew_seconds)
    make_client(clock=wrong).acquire("a", only_newest=True).release()
    newest = table.state("a").newest
    assert newest is not None
    assert abs(newest - clock.now_ms) <= 1_000
    assert table.log[0] == "get_item"  # AWS's time
    clock.advance(2)
    assert make_client().acquire("a", only_newest=True)


def test_by_its_own_clock_a_machine_would_refuse_all_newer_ones(
    make_client: MakeClient, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aws.aws_clock.AwsClock.edges_ms", lambda _: (0, 0))
    make_client(clock=SkewedClock(clock, 600)).acquire("a", only_newest=True).release()
    clock.advance(2)
    with pytest.raises(Superseded):
        make_client().acquire("a", only_newest=True)


def test_a_locked_function_gives_way_to_a_newer_call(make_client: MakeClient) -> None:
    ran: list[int] = []
    client = make_client()

    @locked("a", only_newest=7, client=client)
    def seven() -> None:
        ran.append(7)

    @locked("a", only_newest=6, client=client)
    def six() -> None:
        ran.append(6)

    seven()
    with pytest.raises(Superseded):
        six()
    assert ran == [7]
    with pytest.raises(InvalidRequest, match="only_newest: must be left out with if_taken"):
        locked("a", only_newest=7, if_taken="skip")  # type: ignore[call-overload]  # the point
