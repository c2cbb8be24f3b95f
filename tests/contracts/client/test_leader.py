"""`lead` of both clients: one works, is asked to stop in time, and another one works after it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fairlock import ClientUnusable, InvalidRequest, LockEvent, LockLost, LockStoreUnavailable
from fairlock.client import leader
from tests.contracts.client.drivers import Threads, World, done, inside
from tests.support.faulty_table import down

LEASE = 60
SAFE = LEASE / 3


class Terms:
    """Work that goes on until it is told, and ends by itself in its last term."""

    def __init__(self, world: World, *, last: int, then: Callable[[], object]) -> None:
        self.world = world
        self.last = last
        self.then = then
        self.tokens: list[int] = []
        self.left: list[float] = []

    async def __call__(self, lock: Any, stop: Any) -> str:  # noqa: ANN401 - of either client
        self.tokens.append(lock.fencing_token)
        if len(self.tokens) == self.last:
            return "done"
        self.then()
        await self.world.told(stop, 1000)
        self.left.append(lock.remaining)
        self.world.table.will()
        return "told"


def outage(world: World, *, until: float = math.inf) -> Callable[[], None]:
    """One that begins in 90 s."""

    def plan() -> None:
        world.at(90, lambda: world.table.will(down()))
        if until < math.inf:
            world.at(until, world.table.will)

    return plan


async def now(world: World, _lock: object, _stop: object) -> float:
    return world.now()


async def led(world: World, work: Callable[..., Any] = now, **options: Any) -> Any:  # noqa: ANN401 - as of the work
    """Leads; the work is called with the world, the lock and the event."""

    async def call(lock: object, stop: object) -> Any:  # noqa: ANN401 - same
        return await work(world, lock, stop)

    return await world.lead(call, **options)


async def test_a_leader_sends_two_requests_and_describe_tells_who_leads(world: World) -> None:
    async def work(world: World, _lock: object, _stop: object) -> None:
        assert world.table.requests == ["update_item"]
        [holder] = (await done(world.another().describe("a"))).holders
        assert (holder.owner_name, holder.data) == ("host-1", {"url": "http://host-1"})

    await led(world, work, owner_name="host-1", data={"url": "http://host-1"})
    assert world.table.writes == 2


@pytest.mark.parametrize("seconds", [1000, 3600])
async def test_the_next_one_leads_as_soon_as_the_work_has_ended_however_long_it_waits(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(leader, "LONGEST_WAIT_SECONDS", 600)
    before = await done(world.another().acquire("a"))
    world.at(seconds, before.release)
    assert seconds <= await led(world) <= seconds + 60


async def test_work_is_told_a_third_of_the_lease_early_and_called_again(world: World) -> None:
    work = Terms(world, last=3, then=outage(world))
    assert await world.lead(work, lease=LEASE) == "done"
    assert work.left == pytest.approx([SAFE] * 2, abs=1)
    assert all(a < b for a, b in pairwise(work.tokens))


async def test_a_process_that_was_frozen_is_told_when_it_asks(world: World) -> None:
    """No heartbeat has run yet, and nothing was reported: the clock is asked."""
    terms: list[bool] = []

    async def work(world: World, _lock: object, stop: Any) -> None:  # noqa: ANN401 - an event
        if not terms:
            world.stall(LEASE * 0.98 - SAFE + 1)
            terms.append(stop.is_set())

    await led(world, work, lease=LEASE)
    assert terms == [True]


async def test_what_was_said_once_stays_said(world: World) -> None:
    heard: list[bool] = []

    async def work(world: World, lock: Any, stop: Any) -> None:  # noqa: ANN401 - of either client
        if not heard:
            world.table.will(down())
            await world.told(stop, LEASE)
            world.table.will()
            await world.sleep(SAFE / 2)
            assert lock.remaining > SAFE, "renewed again"
            heard.append(stop.is_set())

    await led(world, work, lease=LEASE)
    assert heard == [True]


async def test_a_leader_released_by_force_is_told_by_its_next_heartbeat(world: World) -> None:
    async def take_away() -> None:
        [holder] = (await done(world.locks.describe("a"))).holders
        await done(world.locks.force_release("a", holder=holder, reason="it hangs"))

    work = Terms(world, last=2, then=lambda: world.at(5, take_away))
    assert await world.lead(work, lease=LEASE) == "done"
    assert work.left in ([0], []), "told, or cancelled"
    assert len(work.tokens) == 2


async def lose(world: World, lock: Any, _stop: object) -> None:  # noqa: ANN401 - of either client
    world.stall(2 * LEASE)
    lock.check()


async def fail(world: World, _lock: object, stop: Any) -> None:  # noqa: ANN401 - an event
    """The outage outlasts the release, and the work returns when it is told."""
    outage(world, until=400)()
    await world.told(stop, 1000)


async def give_away(_world: World, _lock: object, stop: Any) -> None:  # noqa: ANN401 - same
    stop.set()


@pytest.mark.parametrize("end", [lose, fail, give_away])
async def test_a_leader_goes_on_when_a_term_ends(world: World, end: Callable[..., Any]) -> None:
    world.locks = world.another("test", best_effort_release=False)
    terms: list[int] = []

    async def work(world: World, lock: Any, stop: Any) -> None:  # noqa: ANN401 - of either client
        terms.append(lock.fencing_token)
        if len(terms) < 3:
            await end(world, lock, stop)

    await led(world, work, lease=LEASE)
    assert len(set(terms)) == 3


ERRORS = [
    ZeroDivisionError("of the work"),
    TimeoutError("of the work"),
    LockStoreUnavailable("of the work"),
    LockLost("lock 'another': its lease is over, of the work"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_of_the_work_leaves_a_free_lock(world: World, error: Exception) -> None:
    async def work(_world: World, _lock: object, stop: Any) -> None:  # noqa: ANN401 - an event
        if isinstance(error, LockStoreUnavailable):
            stop.set()
        raise error

    with pytest.raises(type(error), match="of the work"):
        await led(world, work)
    assert world.table.state("a").held == 0


async def test_a_release_that_fails_after_work_that_ended_by_itself_is_told(world: World) -> None:
    world.locks = world.another("test", best_effort_release=False)

    async def work(world: World, _lock: object, _stop: object) -> None:
        world.table.will(down())

    with pytest.raises(LockStoreUnavailable):
        await led(world, work)


async def test_the_end_of_its_client_ends_a_leader_and_frees_its_lock(world: World) -> None:
    async def work(world: World, _lock: object, stop: Any) -> None:  # noqa: ANN401 - an event
        await done(world.locks.close(release=True))
        assert stop.is_set()

    with pytest.raises(ClientUnusable):
        await led(world, work)
    assert world.table.state("a").held == 0


async def test_a_client_without_heartbeats_cannot_lead(world: World) -> None:
    world.locks = world.another("test", heartbeat_every=math.inf)
    with pytest.raises(InvalidRequest, match="heartbeat_every: must be finite for `lead`"):
        await led(world)
    assert world.table.requests == []


async def test_a_leader_and_its_work_do_not_wait_for_themselves(world: World) -> None:
    async with inside(world.locks.hold("a")):
        with pytest.raises(InvalidRequest, match="wait for itself"):
            await led(world)

    async def work(world: World, _lock: object, _stop: object) -> None:
        await done(world.locks.acquire("a"))

    with pytest.raises(InvalidRequest, match="wait for itself"):
        await led(world, work)


# Work in a thread, which no one can cancel.

in_a_thread = pytest.mark.parametrize("world", [Threads], indirect=True)


@in_a_thread
async def test_work_that_goes_on_after_its_lease_is_warned_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    terms: list[int] = []

    async def work(world: World, lock: Any, _stop: object) -> None:  # noqa: ANN401 - of either client
        terms.append(lock.fencing_token)
        if len(terms) == 1:
            world.table.will(down())
            await world.sleep(2 * LEASE)
            world.table.will()

    await led(world, work, lease=LEASE)
    assert "lock 'a' is lost, and its work goes on: another process may lead" in caplog.text
    assert len(terms) == 2


@in_a_thread
async def test_a_leader_that_waits_is_told_in_the_moment_of_its_loss(world: World) -> None:
    moments: list[float] = []

    def note(event: LockEvent) -> None:
        if event.kind == "Lost":
            moments.append(world.now())

    async def work(world: World, lock: Any, stop: Any) -> None:  # noqa: ANN401 - an event
        force_release = world.another().force_release
        by_force = {"fencing_token": lock.fencing_token, "reason": "it hangs"}
        if not moments:
            world.at(5, lambda: force_release("a", **by_force))
            await world.told(stop, 1000)
            moments.append(world.now())

    world.locks = world.another("test", on_event=note)
    await led(world, work, lease=50)  # Its heartbeats come between two looks of a second.
    assert moments == [12.5, 12.5]


@in_a_thread
async def test_a_signal_that_raises_ends_the_leader_and_frees_its_lock(world: World) -> None:
    async def work(_world: World, _lock: object, _stop: object) -> None:
        raise SystemExit(0)  # As a handler of SIGTERM does, in the middle of the work.

    with pytest.raises(SystemExit):
        await led(world, work)
    assert world.table.state("a").held == 0
