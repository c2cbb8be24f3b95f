"""The hook for metrics: told of everything once."""

from __future__ import annotations

import pytest

from fairlock import InvalidRequest, LockEvent, LockLost, LockStoreUnavailable, LockWaitTimeout
from tests.contracts.client.drivers import World, done, inside, of_both_clients


class Told:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[LockEvent] = []

    def __call__(self, event: LockEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events]


@of_both_clients
async def test_a_grant_tells_the_wait_and_a_release_tells_how_long_it_was_held(
    world: World,
) -> None:
    told = Told()
    locks = world.client(on_event=told)
    other = await done(world.another().acquire("a"))
    world.at(10, other.release)
    lock = await done(locks.acquire("a"))
    await world.sleep(40)
    assert await done(lock.release()) is True
    assert await done(lock.release()) is True
    granted, released = told.events
    assert (granted.kind, released.kind) == ("Granted", "Released")
    assert granted.waited_seconds is not None
    assert 10 <= granted.waited_seconds < 15
    assert released.held_seconds is not None
    assert 40 <= released.held_seconds < 60
    assert granted.fencing_token == released.fencing_token == lock.fencing_token
    assert granted.held_seconds is released.waited_seconds is None


@of_both_clients
async def test_a_refusal_a_timeout_and_an_unknown_outcome_are_three_events(world: World) -> None:
    told = Told()
    locks = world.client(on_event=told)
    await done(world.another().acquire("a"))
    assert await done(locks.try_acquire("a")) is None
    with pytest.raises(LockWaitTimeout):
        await done(locks.acquire("a", max_wait=20))
    world.table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        await done(locks.acquire("b", max_wait=5))
    with pytest.raises(InvalidRequest):
        await done(locks.acquire(""))
    assert told.kinds() == ["Refused", "TimedOut", "Failed"]
    assert [event.reason for event in told.events] == ["", "", "LockStoreUnavailable"]
    assert told.events[1].waited_seconds == 20


@of_both_clients
async def test_late_heartbeats_are_a_danger_and_then_a_loss_each_once(world: World) -> None:
    told = Told()
    locks = world.client(on_event=told)
    lock = await done(locks.acquire("a"))
    world.table.is_down = True
    await world.sleep(60)
    with pytest.raises(LockLost):
        lock.check()
    world.table.is_down = False
    assert await done(lock.release()) is False
    assert told.kinds() == ["Granted", "InDanger", "Lost"]
    assert told.events[-1].held_seconds == pytest.approx(30, abs=1)


@of_both_clients
async def test_a_release_by_a_transaction_and_one_at_the_end_of_the_client_are_told(
    world: World,
) -> None:
    told = Told()
    locks = world.client(on_event=told)
    guard = await done(world.another().acquire("guard"))
    lock = await done(locks.acquire("a"))
    await done(lock.transact_write([guard.condition_check()], release=True))
    await done(locks.acquire("b"))
    assert told.kinds() == ["Granted", "Released", "Granted"]
    await done(locks.close(release=True))
    assert told.kinds() == ["Granted", "Released", "Granted", "Released"]


@of_both_clients
async def test_a_release_of_unknown_outcome_is_no_event_until_it_is_known(world: World) -> None:
    told = Told()
    locks = world.client(on_event=told)
    lock = await done(locks.acquire("a"))
    world.table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        await done(lock.release())
    assert told.kinds() == ["Granted"]
    world.table.is_down = False
    await done(lock.release())
    assert told.kinds() == ["Granted", "Released"]


@of_both_clients
async def test_the_hook_adds_no_request_and_no_event_proves_ownership(world: World) -> None:
    told = Told()
    locks = world.client(on_event=told)
    async with inside(locks.hold("a")) as lock:
        pass
    assert world.table.requests == ["update_item"] * 2
    assert all(lock.owner_id not in repr(event) for event in told.events)
