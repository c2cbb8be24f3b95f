"""`only_newest` of the clients: the newest waiter gets the lock, and the others are told."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest

from fairlock import (
    InvalidRequest,
    LockClient,
    LockEvent,
    LockEventKind,
    LockWaitTimeout,
    Superseded,
    locked,
)
from fairlock.testing import FakeAsyncLockClient, FakeTable
from fairlock.wire.rules import HIGHEST_VERSION
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


def test_a_lower_version_is_superseded_at_once_and_holds_nothing(
    make_client: MakeClient, table: Table
) -> None:
    make_client().acquire("a", only_newest=7).release()
    table.log.clear()
    with pytest.raises(Superseded, match="version 6 is superseded, 7 was granted"):
        make_client().acquire("a", only_newest=6)
    assert table.log == ["update_item"]
    assert make_client().acquire("a", only_newest=7)


def test_a_version_costs_one_request_like_any_lock(make_client: MakeClient, table: Table) -> None:
    make_client().acquire("a", only_newest=1).release()
    assert table.log == ["update_item"] * 2


def test_a_call_that_does_not_wait_tells_busy_from_superseded(make_client: MakeClient) -> None:
    held = make_client().acquire("a", only_newest=7)
    with pytest.raises(LockWaitTimeout):
        make_client().acquire("a", only_newest=8, max_wait=0)
    with pytest.raises(Superseded):
        make_client().acquire("a", only_newest=6, max_wait=0)
    held.release()


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


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", None, HIGHEST_VERSION + 1, math.nan])
def test_a_version_that_is_none_is_refused_before_any_request(
    make_client: MakeClient,
    table: Table,
    wrong: Any,  # noqa: ANN401 - whatever is wrong
) -> None:
    with pytest.raises(InvalidRequest, match=r"only_newest: must be true, or the version"):
        make_client().acquire("a", only_newest=wrong)
    assert table.log == []


def test_a_reader_has_no_version(make_client: MakeClient, table: Table) -> None:
    with pytest.raises(InvalidRequest, match="only_newest: must be left out with shared"):
        make_client().acquire("a", only_newest=True, shared=True)
    assert table.log == []


def test_the_hook_is_told(make_client: MakeClient) -> None:
    told: list[LockEvent] = []
    client = make_client(on_event=told.append)
    client.acquire("a", only_newest=2).release()
    with pytest.raises(Superseded):
        client.acquire("a", only_newest=1)
    client.close()
    assert [event.kind for event in told][-1] is LockEventKind.SUPERSEDED


def test_asyncio_does_the_same() -> None:
    async def main() -> list[object]:
        table = FakeTable()
        async with FakeAsyncLockClient(table=table) as locks:
            async with locks.hold("deploy", only_newest=3):
                pass
            try:
                await locks.acquire("deploy", only_newest=2)
            except Superseded as error:
                return [error.version, error.newest]
        return []

    assert asyncio.run(main()) == [2, 3]


def test_describe_tells_the_newest_and_the_versions_that_wait(make_client: MakeClient) -> None:
    held = make_client().acquire("a", only_newest=7)
    with pytest.raises(LockWaitTimeout):
        make_client().acquire("a", only_newest=8, max_wait=1)
    found = make_client().describe("a")
    assert found is not None
    assert found.newest == 7
    held.release()


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


@pytest.mark.parametrize(("outer", "other"), [(4, 5), (False, 5), (True, 1), (False, 0)])
def test_a_block_inside_a_block_has_no_other_version_than_that(
    make_client: MakeClient, table: Table, outer: int, other: int
) -> None:
    """Its work would count as that of a version that was never granted."""
    locks = make_client()
    with locks.hold("a", only_newest=outer) as lock:
        table.log.clear()
        with (
            pytest.raises(InvalidRequest, match=r"^only_newest: must be left out, or be that"),
            locks.hold("a", only_newest=other, reentrant=True),
        ):
            pass
        with locks.hold("a", only_newest=outer, reentrant=True) as same:
            assert same is lock
        assert table.log == []
