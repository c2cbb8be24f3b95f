"""`@locked` around handlers of Lambda, and around coroutine functions."""

from __future__ import annotations

import asyncio
import gc
import math
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from fairlock import (
    AsyncLock,
    AsyncLockClient,
    InvalidRequest,
    Lock,
    LockClient,
    LockLost,
    LockWaitTimeout,
    locked,
)
from fairlock.decorator import default_clients
from fairlock.decorator.locked_call import Call
from fairlock.testing import ManualClock
from fairlock.testing.fake_async_client import LoopClock
from tests.support.faulty_table import lost_reply
from tests.unit.client.doubles import AsyncTable, Table
from tests.unit.decorator.conftest import Context


def its_lease(_event: object, _context: object, lock: Lock | None = None) -> float:
    """A handler that returns the lease under which it runs."""
    assert lock is not None
    return lock.lease


handler = locked("deploy", client=lambda: Clients.current)(its_lease)


class Clients:
    """Where the handlers find their client, as it is made after their module."""

    current: LockClient


@pytest.fixture(autouse=True)
def current(locks: LockClient) -> None:
    Clients.current = locks


@pytest.mark.parametrize(
    ("seconds_left", "lease"),
    [(30, 31 / 0.98), (0.25, 1.25 / 0.98), (-1, 1), (899.5, 900.5 / 0.98)],
)
def test_the_lease_lasts_until_the_invocation_must_have_ended(
    seconds_left: float, lease: float
) -> None:
    assert handler({}, Context(seconds_left)) == pytest.approx(lease, abs=0.001)


def test_a_lease_that_is_given_stands() -> None:
    given = locked("deploy", lease=5, client=lambda: Clients.current)(its_lease)
    assert given({}, Context(30)) == 5


@pytest.mark.parametrize(("max_hold", "lease"), [(60, 61 / 0.98), (900, 301 / 0.98)])
def test_a_lease_that_nothing_renews_is_not_longer_than_the_lock_may_be_held(
    max_hold: float, lease: float
) -> None:
    capped = locked("deploy", max_hold=max_hold, client=lambda: Clients.current)(its_lease)
    assert capped({}, Context(300)) == pytest.approx(lease, abs=0.001)


def test_a_function_without_such_a_context_takes_the_clients_lease() -> None:
    assert handler({}, "no context") == 60


@pytest.mark.parametrize(
    ("wait", "seconds_left", "waited"), [(None, 30, 29), (10, 30, 10), (10, 0.5, 0)]
)
def test_no_wait_is_longer_than_what_is_left_of_the_invocation(
    wait: float | None, seconds_left: float, waited: float, locks: LockClient, clock: ManualClock
) -> None:
    bounded = locked("deploy", max_wait=wait, client=locks)(its_lease)
    locks.acquire("deploy", lease=3600)
    began = clock.monotonic()
    with pytest.raises(LockWaitTimeout):
        bounded({}, Context(seconds_left))
    assert clock.monotonic() - began == pytest.approx(waited)


@pytest.mark.parametrize("wait", [5, 150])
def test_without_a_wait_of_its_own_a_handler_waits_as_long_as_its_client(
    wait: float, table: Table, clock: ManualClock
) -> None:
    with LockClient(
        "locks",
        client=table,  # type: ignore[arg-type]  # a substitute
        clock=clock,
        max_wait=wait,
        heartbeat_every=math.inf,
    ) as own:
        own.acquire("deploy", lease=3600)
        began = clock.monotonic()
        with pytest.raises(LockWaitTimeout):
            locked("deploy", client=own)(its_lease)({}, Context(600))
    assert clock.monotonic() - began == pytest.approx(wait)


@dataclass
class Invocation:
    """A context whose time passes."""

    clock: ManualClock
    ends_at: float

    def get_remaining_time_in_millis(self) -> int:
        return round((self.ends_at - self.clock.monotonic()) * 1000)


def end_after_the_deadline(table: Table, clock: ManualClock, client: LockClient) -> float:
    """An invocation gets its lock late; returns by how many seconds the lease is too long."""
    first = client.acquire("deploy", lease=3600)
    clock.at(250, first.release)
    invocation = Invocation(clock, clock.monotonic() + 300)
    seen: list[float] = []

    @locked("deploy", max_wait=290, client=client)
    def work(_event: object, _context: object) -> None:
        [holder] = table.state("deploy").holders
        wall_seconds_ahead = clock.wall_ms() / 1000 - clock.monotonic()
        seen.append(holder.expires_at_ms / 1000 - wall_seconds_ahead - invocation.ends_at)

    work({}, invocation)
    return seen[0]


def test_a_lease_that_was_waited_for_ends_with_the_invocation_too(
    table: Table, clock: ManualClock, locks: LockClient
) -> None:
    assert end_after_the_deadline(table, clock, locks) == pytest.approx(
        51 / 0.98 + 1.5 - 50, abs=0.1
    )


def test_without_a_wait_that_takes_no_request(
    table: Table, clock: ManualClock, locks: LockClient
) -> None:
    locked("deploy", client=locks)(its_lease)({}, Invocation(clock, clock.monotonic() + 300))
    assert table.log == ["update_item"] * 2


def enter_again_later(clock: ManualClock, outer: Any, inner: Any) -> list[float]:  # noqa: ANN401 - decorators
    """Calls a handler that calls another one 20 s later; returns the leases of both."""
    leases: list[float] = []

    @inner  # type: ignore[untyped-decorator]  # any of them
    def part(_event: object, _context: object, lock: Lock | None = None) -> None:
        leases.append(its_lease(None, None, lock))

    @outer  # type: ignore[untyped-decorator]  # same
    def whole(event: object, context: object, lock: Lock | None = None) -> None:
        leases.append(its_lease(None, None, lock))
        clock.advance(20)
        part(event, context)

    whole({}, Invocation(clock, clock.monotonic() + 300))
    return leases


def test_a_handler_enters_its_lock_again_when_less_of_the_invocation_is_left(
    table: Table, clock: ManualClock, locks: LockClient
) -> None:
    again = locked("deploy", reentrant=True, client=locks)
    assert enter_again_later(clock, again, again) == [pytest.approx(301 / 0.98, abs=0.01)] * 2
    assert table.log == ["update_item"] * 2


def test_a_lease_that_the_inner_handler_gives_must_be_that_of_the_outer_one(
    clock: ManualClock, locks: LockClient
) -> None:
    outer = locked("deploy", client=locks)
    inner = locked("deploy", reentrant=True, lease=60, client=locks)
    with pytest.raises(InvalidRequest, match="lease"):
        enter_again_later(clock, outer, inner)


@pytest.mark.parametrize(("gone", "raises"), [(False, None), (True, LockLost)])
def test_a_lease_that_cannot_be_shortened_is_too_long_and_no_worse(
    table: Table,
    clock: ManualClock,
    locks: LockClient,
    *,
    gone: bool,
    raises: type[Exception] | None,
) -> None:
    def fail(_name: str, arguments: dict[str, Any]) -> None:
        if "#h_revision = #mine.#h_revision + :one" in arguments.get("UpdateExpression", ""):
            table.before = None
            if not gone:
                raise lost_reply()
            table.memory.items.clear()

    first = locks.acquire("deploy", lease=3600)
    clock.at(100, lambda: setattr(table, "before", fail))
    clock.at(100, first.release)
    handle = locked("deploy", max_wait=290, client=locks)(its_lease)
    invocation = Invocation(clock, clock.monotonic() + 300)
    with pytest.raises(raises) if raises else nullcontext():
        assert 190 < handle({}, invocation) <= 301 / 0.98 + 0.001


@pytest.mark.parametrize(("lease", "is_free"), [(None, True), (600, False)])
def test_the_lock_of_an_invocation_that_died_is_free_soon_after_its_deadline(
    lease: float | None,
    is_free: bool,  # noqa: FBT001 - a parameter of the test
    locks: LockClient,
    table: Table,
    clock: ManualClock,
) -> None:
    """It could not release. The control: with a lease of its own, its lock stays taken."""

    @locked("deploy", lease=lease, client=locks)
    def die(_event: object, _context: Context) -> None:
        table.outage = ConnectionClosedError(endpoint_url="https://dynamodb")

    deadline = clock.monotonic() + 30
    die({}, Context(30))
    table.outage = None
    try:
        locks.acquire("deploy", max_wait=45)
    except LockWaitTimeout:
        assert not is_free
    else:
        assert is_free
        assert 0 < clock.monotonic() - deadline < 10  # It looked for the first time after 5 s.


# Coroutine functions.


def client_over(table: AsyncTable, **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
    return AsyncLockClient("locks", client=table, clock=LoopClock(), **settings)


async def test_calls_run_one_at_a_time_and_without_the_lock_at_once() -> None:
    inside: list[int] = []

    async def work(number: int, *, lock: AsyncLock | None = None) -> int:
        inside.append(number)
        assert inside == [number] or lock is None
        await asyncio.sleep(1)
        together = len(inside)
        inside.remove(number)
        return together

    async with client_over(AsyncTable()) as locks:
        alone = locked("a", client=locks)(work)
        assert [*await asyncio.gather(*(alone(n) for n in range(4)))] == [1, 1, 1, 1]
    assert max(await asyncio.gather(*(work(n) for n in range(4)))) == 4


async def test_skip_and_raise_do_not_call_the_function() -> None:
    ran: list[str] = []

    async def work() -> str:
        ran.append("work")
        return "done"

    async with client_over(AsyncTable()) as locks:
        skipping = locked("a", if_taken="skip", otherwise=7, client=locks)(work)
        raising = locked("a", if_taken="raise", client=locks)(work)
        async with locks.hold("a"):
            assert await skipping() == 7
            with pytest.raises(LockWaitTimeout):
                await raising()
        assert ran == []
        assert (await skipping(), await raising()) == ("done", "done")


async def test_a_call_that_is_cancelled_releases() -> None:
    table = AsyncTable()
    async with client_over(table) as locks:

        @locked("a", client=locks)
        async def work() -> None:
            await asyncio.sleep(60)

        call = asyncio.create_task(work())
        await asyncio.sleep(1)
        assert table.state("a").held == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert table.state("a").held == 0


class LoopInvocation:
    """What the Lambda runtime hands to a handler of 300 s beside the event."""

    def get_remaining_time_in_millis(self) -> int:
        return round((300 - LoopClock().monotonic()) * 1000)


@pytest.mark.parametrize("shortens", [True, False])
async def test_a_coroutine_that_waited_has_a_lease_that_ends_with_the_invocation_too(
    monkeypatch: pytest.MonkeyPatch, *, shortens: bool
) -> None:
    """The control is one that no one shortens."""
    if not shortens:
        monkeypatch.setattr(Call, "shorter_lease", lambda _self, _lease: None)

    async def work(_event: object, _context: object, *, lock: AsyncLock | None = None) -> float:
        assert lock is not None
        return lock.lease

    async with client_over(AsyncTable()) as locks:
        first = await locks.acquire("a")
        call = asyncio.create_task(
            locked("a", max_wait=290, client=locks)(work)({}, LoopInvocation())
        )
        await asyncio.sleep(250)
        await first.release()
        assert (await call <= 51 / 0.98 + 0.001) is shortens


async def test_a_client_of_the_wrong_kind_is_refused(locks: LockClient) -> None:
    async def work() -> None: ...

    def plain() -> None: ...

    with pytest.raises(InvalidRequest, match="must be an AsyncLockClient"):
        await locked("a", client=locks)(work)()
    async with client_over(AsyncTable()) as async_locks:
        with pytest.raises(InvalidRequest, match="must be a LockClient"):
            locked("a", client=async_locks)(plain)()


def test_clients_made_by_themselves_are_closed_with_their_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[AsyncLockClient] = []

    def make(name: str, **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
        client = AsyncLockClient(name, client=AsyncTable(), **settings)
        made.append(client)
        return client

    @locked("a")
    async def work() -> bool:
        return made[-1]._closed  # noqa: SLF001 - the question

    async def twice() -> list[bool]:
        return [await work(), await work()]

    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setattr("fairlock.aio.AsyncLockClient", make)
    gc.collect()  # What earlier tests have left would warn in this one.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (1, 2):
            assert asyncio.run(twice()) == [False, False]
            assert [client._closed for client in made] == [True] * number  # noqa: SLF001 - same
        gc.collect()
    assert len(default_clients._loops) == 0  # noqa: SLF001 - nothing of them is left
