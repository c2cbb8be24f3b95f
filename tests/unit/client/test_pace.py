"""A pace of calls, and `only_newest` on many machines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from fairlock import (
    ClientUnusable,
    InvalidRequest,
    LockClient,
    LockStoreUnavailable,
    SlotTooLate,
    Superseded,
    locked,
)
from fairlock.testing import (
    FakeAsyncLockClient,
    FakeLockClient,
    FakeTable,
    ManualClock,
    run_in_virtual_time,
)
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import EventfulClock, SkewedClock, Table

# `pace` of both clients: waits for its slot, says why it refuses, and writes nothing then.

Outcome = tuple[float, list[str]]
"""The seconds that a call took, and its requests."""


class Threads:
    """A client with threads, in virtual time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = FakeTable()
        self._locks = FakeLockClient(table=self.table, clock=self.clock)

    def pace(self, name: str, **options: Any) -> Outcome:  # noqa: ANN401 - of pace
        self.table.requests.clear()
        began = self.clock.monotonic()
        self._locks.pace(name, **options)
        return self.clock.monotonic() - began, list(self.table.requests)


class Tasks:
    """A client of asyncio, in an event loop of its own for each call."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = FakeTable()

    def pace(self, name: str, **options: Any) -> Outcome:  # noqa: ANN401 - of pace
        self.table.requests.clear()

        async def main() -> Outcome:
            async with FakeAsyncLockClient(table=self.table) as locks:
                locks.clock.stall(self.clock.monotonic())
                began = locks.clock.monotonic()
                try:
                    await locks.pace(name, **options)
                finally:
                    waited = locks.clock.monotonic() - began
                    self.clock.advance(waited)
                return waited, list(self.table.requests)

        return run_in_virtual_time(main())


@pytest.fixture(params=[Threads, Tasks])
def driver(request: pytest.FixtureRequest) -> Threads | Tasks:
    made: Threads | Tasks = request.param()
    return made


def test_callers_begin_an_interval_apart(driver: Threads | Tasks) -> None:
    began: list[float] = []
    for _ in range(5):
        driver.pace("vendor", rate=(10, 60))
        began.append(driver.clock.monotonic())
    gaps = [b - a for a, b in pairwise(began)]
    assert gaps[0] == pytest.approx(6 + 2, abs=0.1)  # AWS's time is known within two seconds.
    assert gaps[1:] == pytest.approx([6] * 3, abs=1.6)


def test_the_first_call_of_a_client_reads_the_time_and_writes_once(
    driver: Threads | Tasks,
) -> None:
    assert driver.pace("vendor", rate=(10, 60)) == (0, ["get_item", "update_item"])


def test_a_slot_later_than_max_wait_is_refused_and_names_the_pace(driver: Threads | Tasks) -> None:
    driver.pace("report", rate=(1, timedelta(hours=1)), max_wait=0)
    items = dict(driver.table._memory.items)  # noqa: SLF001 - nothing else shows them
    with pytest.raises(SlotTooLate, match="pace 'report': the next slot begins in 36") as refused:
        driver.pace("report", rate=(1, 3600), max_wait=timedelta(minutes=1))
    assert isinstance(refused.value, TimeoutError)
    assert refused.value.pace_name == "report"
    assert 3600 <= refused.value.wait_seconds <= 3603
    assert driver.table._memory.items == items  # noqa: SLF001 - same


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rate": (0, 60)}, "rate"),
    ({"rate": (-10, 60)}, "rate"),
    ({"rate": (10, 0)}, "rate"),
    ({"rate": (10, float("nan"))}, "rate"),
    ({"rate": (10, float("inf"))}, "rate"),
    ({"rate": (10, "minute")}, "rate"),
    ({"rate": (10, 60, 1)}, "rate"),
    ({"rate": 10}, "rate"),
    ({"rate": "10/60"}, "rate"),
    ({"rate": None}, "rate"),
    ({"rate": (10, timedelta(days=32))}, "rate"),
    ({"burst": 0}, "burst"),
    ({"burst": 1.5}, "burst"),
    ({"burst": True}, "burst"),
    ({"max_wait": -1}, "max_wait"),
    ({"max_wait": "long"}, "max_wait"),
    ({"max_wait": timedelta(days=8)}, "max_wait"),
    ({"name": ""}, "name"),
    ({"name": "n" * 513}, "name"),
    ({"name": 7}, "name"),
]


@pytest.mark.parametrize(("options", "field"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_use_is_told_at_once(
    driver: Threads | Tasks, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        driver.pace(**{"name": "vendor", "rate": (10, 60), **options})
    assert refused.value.field == field
    assert driver.table.requests == []


def test_an_outage_is_no_refusal(driver: Threads | Tasks) -> None:
    driver.table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        driver.pace("vendor", rate=(10, 60), max_wait=0)


def test_lost_replies_are_no_refusal() -> None:
    locks = FakeLockClient()
    locks.pace("another", rate=(10, 60))
    locks.table.loses_replies = True
    with pytest.raises(LockStoreUnavailable):
        locks.pace("report", rate=(1, 3600), max_wait=0)
    locks.table.loses_replies = False
    with pytest.raises(SlotTooLate):  # The slot of the first call is wasted.
        locks.pace("report", rate=(1, 3600), max_wait=0)


def test_a_refusal_that_no_repeat_makes_certain_is_an_unknown_outcome_at_once() -> None:
    """Another client has reserved since the reply was lost. It would be the same for all hours."""
    locks = FakeLockClient()
    locks.pace("another", rate=(10, 60))
    locks.table.loses_replies = True

    def another_reserves() -> None:
        locks.table.loses_replies = False
        locks.another().pace("report", rate=(1, 3600), burst=2)  # So it need not wait.
        locks.table.requests.clear()

    locks.clock.at(0.5, another_reserves)
    with pytest.raises(LockStoreUnavailable, match="the next one is too late"):
        locks.pace("report", rate=(1, 3600), max_wait=1800)
    assert (locks.clock.monotonic() < 5, locks.table.requests) == (True, ["update_item"])


def test_in_a_long_outage_a_caller_with_hours_to_wait_asks_twice_a_minute() -> None:
    locks, sent = FakeLockClient(), list[str]()
    send = locks.table._send  # noqa: SLF001 - what does not reach the table is counted nowhere

    def count(name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        sent.append(name)
        return send(name, request)

    locks.table._send = count  # type: ignore[method-assign]  # noqa: SLF001 - same
    locks.table.is_down = True
    locks.clock.at(3000, lambda: setattr(locks.table, "is_down", False))
    locks.pace("report", rate=(1, 3600), max_wait=7200)
    assert len(sent) < 3000 / 10
    assert locks.clock.monotonic() < 3000 + 60


def test_the_hourly_job_runs_although_the_first_replies_were_lost() -> None:
    locks = FakeLockClient()
    locks.table.loses_replies = True
    locks.clock.at(2, lambda: setattr(locks.table, "loses_replies", False))
    locks.pace("report", rate=(1, 3600), max_wait=0)
    with pytest.raises(SlotTooLate):
        locks.another().pace("report", rate=(1, 3600), max_wait=0)


def test_the_wait_is_that_of_the_client_unless_the_call_says_otherwise() -> None:
    locks = FakeLockClient(max_wait=5)
    locks.pace("vendor", rate=(10, 60))
    with pytest.raises(SlotTooLate, match="the longest wait is 5 s"):
        locks.pace("vendor", rate=(10, 60))


def test_a_closed_client_takes_no_turns() -> None:
    locks = FakeLockClient()
    locks.close()
    with pytest.raises(ClientUnusable):
        locks.pace("vendor", rate=(10, 60))


def test_once_an_hour_in_the_fleet_exactly_one_of_twenty_runs() -> None:
    """All ask at the same moment, each as a process of its own."""

    async def main() -> list[bool]:
        first = FakeAsyncLockClient()
        fleet = [first, *(first.another(f"{number}") for number in range(19))]

        async def ran(locks: FakeAsyncLockClient) -> bool:
            try:
                await locks.pace("report", rate=(1, 3600), max_wait=0)
            except SlotTooLate:
                return False
            return True

        ran_all: list[Awaitable[bool]] = [ran(locks) for locks in fleet]
        return await asyncio.gather(*ran_all)

    for _ in range(10):
        assert sum(run_in_virtual_time(main())) == 1


@pytest.mark.parametrize(("count_", "burst"), [(10, 1), (12, 3)])
def test_no_period_has_more_than_the_rate_and_the_burst_no_matter_who_asks(
    count_: int, burst: int
) -> None:
    locks = FakeLockClient()
    callers = [locks.another(f"{number}") for number in range(4)]
    begun: list[float] = []
    for number in range(40):
        callers[number % 4].pace("api", rate=(count_, 60), burst=burst, max_wait=600)
        begun.append(locks.clock.monotonic())
    for at in begun:
        assert sum(at <= one < at + 60 for one in begun) <= count_ + burst


def test_a_lock_pays_nothing_for_paces() -> None:
    locks = FakeLockClient()
    requests: list[dict[str, Any]] = []
    send: Callable[..., Any] = locks.table._memory.update_item  # noqa: SLF001 - its requests

    def noted(**request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        requests.append(request)
        return send(**request)

    locks.table._memory.update_item = noted  # type: ignore[method-assign]  # noqa: SLF001 - same
    with locks.hold("vendor"):
        pass
    assert locks.table.requests == ["update_item"] * 2
    assert not any("slot" in str(request) for request in requests)


# `only_newest` of the clients: the newest waiter gets the lock, and the others are told.


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
    monkeypatch.setattr("fairlock.clock.AwsClock.edges_ms", lambda _: (0, 0))
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
