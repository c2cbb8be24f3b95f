"""Waiting: exact to the wait; what is granted is found, once; nothing is left behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from fairlock import ClientUnusable, LockStoreUnavailable, LockWaitTimeout
from fairlock.clock import FRONT_END_MS
from fairlock.protocol.model import ForceReleaseRequest
from fairlock.protocol.schema import holder_attribute, token_attribute
from tests.contracts.client.drivers import Threads, World, done
from tests.support import acquire, release
from tests.support.faulty_table import (
    RENEWAL,
    TRANSACTIONS,
    down,
    fault,
    lose,
    lost_reply,
    meanwhile,
    mute,
)


async def held(world: World, name: str = "anna", **options: Any) -> Any:  # noqa: ANN401 - of either kind
    """A lock of a client's, for ten minutes, which no heartbeat renews."""
    client = world.client(name, lease=600, heartbeat_every=math.inf)
    return await done(client.acquire("a", **options))


@pytest.mark.parametrize("world", [Threads], indirect=True)
async def test_the_last_look_at_the_deadline_finds_the_lock(world: World) -> None:
    world.at(60, (await held(world)).release)
    (await done(world.client("ben").acquire("a", max_wait=60))).check()


@pytest.mark.parametrize("world", [Threads], indirect=True)
@pytest.mark.parametrize("waiter", ["of another client", "of the holder's client"])
async def test_a_grant_after_the_last_look_goes_to_the_next_one(world: World, waiter: str) -> None:
    lock = await held(world)
    locks = world.clients[0] if waiter == "of the holder's client" else world.client("ben")
    released: list[bool] = []

    def release_after_the_last_look() -> None:
        if world.now() == 10:
            world.table.will()
            released.append(lock.release())

    world.table.will(meanwhile((), release_after_the_last_look, of=("update_item",)))
    with pytest.raises(LockWaitTimeout):
        await done(locks.acquire("a", max_wait=10))
    assert released == [True]
    assert world.table.traces("a") == []
    (await done(world.client("carl").acquire("a", max_wait=0))).check()


async def test_a_waiter_dropped_from_the_queue_enters_it_again_at_its_end(world: World) -> None:
    seen, items = list[tuple[str, str]](), world.table.memory.items

    def drop() -> None:
        for key in [key for key in items if key[1].startswith("WAITER#")]:
            seen.append(key)
            del items[key]

    world.at(50, (await held(world)).release)
    world.at(10, drop)
    world.at(40, lambda: seen.extend(key for key in items if key[1] != "STATE"))
    (await done(world.client("ben").acquire("a", max_wait=60))).check()
    assert len(seen) == 2
    assert seen[0] < seen[1]


async def test_a_read_that_fails_costs_no_place(world: World) -> None:
    world.at(40, (await held(world)).release)
    world.at(10, lambda: world.table.will(down()))
    world.at(30, world.table.will)
    (await done(world.client("ben").acquire("a", max_wait=60))).check()
    assert world.table.requests.count("transact_write_items") == 2  # ben joined, anna handed over.


async def test_a_waiter_whose_first_request_was_lost_joins_behind_others(world: World) -> None:
    """A read would show it that others wait, and nothing of the place that it does not have."""
    await held(world)
    carl = acquire("carl", lock_name="a", waits=True, waiter_timeout_ms=600_000)
    world.store().acquire(carl)
    world.table.will(down())
    world.at(3, world.table.will)
    waiting: list[str] = []
    world.at(15, lambda: waiting.extend(world.table.waiters("a")))
    with pytest.raises(LockWaitTimeout):
        await done(world.client("ben").acquire("a", max_wait=20))
    assert waiting == ["carl", "ben"]


async def test_a_permit_that_became_free_by_a_higher_limit_is_taken(world: World) -> None:
    """No one leaves, so no one hands over: the waiter sees it and asks."""
    await held(world, limit=2)
    second = await held(world, "ben", limit=2)

    def leave_without_a_successor() -> None:
        state = world.table.memory.items["LOCK#a", "STATE"]
        state.pop(holder_attribute(second.owner_id))
        state.pop(token_attribute(second.owner_id))
        state["held"] = {"N": "1"}

    world.at(20, leave_without_a_successor)
    (await done(world.client("carl").acquire("a", limit=2, max_wait=60))).check()
    assert world.now() < 31  # Two polls, one of which only looks for its place.


async def test_a_holder_relies_on_a_hand_over_no_longer_than_is_stored(world: World) -> None:
    """It begins to count at its own look, which comes after the hand-over."""
    world.at(100, (await held(world)).release)
    got = await done(world.client("ben").acquire("a", max_wait=200))
    assert world.now() > 100
    [holder] = world.table.state("a").holders
    # The Date tells no fractions of a second; beyond them stays what front ends may differ by.
    assert world.clock.wall_ms() + got.remaining * 1000 <= holder.expires_at_ms - FRONT_END_MS


FOUND: Final = ("by a read", "by the loss of the place")
"""Until a waiter has waited for 15 s, it does not look whether it still has its place."""


def stalled(world: World, lock: Any, seconds: float, then: Callable[[], object]) -> Any:  # noqa: ANN401 - of either kind
    """Releases the lock, and lets the process of its next holder stand still."""

    async def release_and_stall() -> None:
        await done(lock.release())
        world.stall(seconds)
        then()

    return release_and_stall


@pytest.mark.parametrize("times", [(1, 12, 10), (100, 25, 30)], ids=FOUND)
async def test_a_hand_over_that_was_found_late_is_renewed_before_it_is_returned(
    world: World, times: tuple[int, int, int]
) -> None:
    released, stall, lease = times
    world.at(released, stalled(world, await held(world), stall, lambda: None))
    got = await done(world.client("ben").acquire("a", max_wait=200, lease=lease))
    assert got.remaining == pytest.approx(lease * 0.98)
    assert world.table.state("a").holders[0].revision > 1


@pytest.mark.parametrize("times", [(1, 12, 10), (100, 100, 30)], ids=FOUND)
async def test_a_hand_over_that_was_found_too_late_is_waited_for_again(
    world: World, times: tuple[int, int, int]
) -> None:
    (released, stall, lease), store = times, world.store()

    def take_it() -> None:
        by_force = {"requested_by": "olga", "reason": "it has stalled"}
        token = world.table.state("a").fencing_token
        store.force_release(ForceReleaseRequest(lock_name="a", fencing_token=token, **by_force))
        store.acquire(acquire("carl", lock_name="a", lease_ms=600_000))
        world.at(20, lambda: store.release(release("carl", lock_name="a")))

    first = await held(world)
    taken = meanwhile(1, take_it, has=RENEWAL)
    world.at(released, stalled(world, first, stall, lambda: world.table.will(taken)))
    got = await done(world.client("ben").acquire("a", max_wait=300, lease=lease))
    got.check()
    assert got.fencing_token == first.fencing_token + 3


async def test_a_late_hand_over_that_is_not_renewed_is_asked_for_until_it_is(world: World) -> None:
    def fail_for_a_while() -> None:
        world.table.will(fault(lost_reply(), has=RENEWAL))
        world.at(3, world.table.will)

    world.at(100, stalled(world, await held(world), 25, fail_for_a_while))
    got = await done(world.client("ben").acquire("a", max_wait=200))
    assert got.remaining == pytest.approx(30 * 0.98)


# An error is never a grant and never a refusal; what it may have left behind is taken back.


async def test_a_grant_with_a_lost_reply_is_given_back_if_no_one_waits_for_it(world: World) -> None:
    """`try_acquire` tries once; what it may have got must not block others for a lease."""
    world.table.will(lose(1))
    with pytest.raises(LockStoreUnavailable):
        await done(world.client().try_acquire("a"))
    assert world.table.state("a").held == 0


async def test_a_try_that_lands_after_its_caller_has_given_it_up_is_refused(world: World) -> None:
    """Else it would be granted to no one, until its lease ends."""
    world.table.will(fault(lost_reply(), 1))
    with pytest.raises(LockStoreUnavailable):
        await done(world.client().try_acquire("a"))
    (_, late), *_ = world.table.sent
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        world.table.update_item(**late)
    assert world.table.state("a").held == 0


async def test_a_grant_whose_reply_was_lost_is_found_by_asking_again(world: World) -> None:
    world.table.will(mute())
    world.at(3, world.table.will)
    lock = await done(world.client(heartbeat_every=math.inf).acquire("a", max_wait=60))
    assert world.now() < 6
    assert lock.fencing_token == world.table.state("a").fencing_token
    # An early try has written it, so the lease is counted from there.
    assert lock.remaining < 30 * 0.98 - 2


async def test_a_waiter_that_cannot_leave_says_that_the_outcome_is_unknown(world: World) -> None:
    lock = await held(world)
    world.at(20, lambda: world.table.will(down()))
    with pytest.raises(LockStoreUnavailable):
        await done(world.client("ben").acquire("a", max_wait=30))
    world.table.will()
    # Its place ends by itself, soon after its wait, so that nothing is handed to it any more.
    assert world.table.waiters("a") == ["ben"]
    await world.sleep(15)
    await done(lock.release())
    (await done(world.client("carl").acquire("a", max_wait=0))).check()


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_release_whose_reply_was_lost_succeeds_when_it_is_repeated_and_is_no_loss(
    world: World, *, is_known: bool
) -> None:
    """The client repeats it for a while, and its caller after others came and went."""
    lock = await held(world)
    world.table.will(mute())
    world.at(1 if is_known else 300, world.table.will)
    if not is_known:
        with pytest.raises(LockStoreUnavailable):
            await done(lock.release())
        world.table.will()
        await done((await done(world.client("ben").acquire("a", max_wait=0))).release())
    assert await done(lock.release()) is True
    assert not lock.lost.is_set()


async def test_a_stale_lock_keeps_its_token_and_its_release_changes_nothing(world: World) -> None:
    stale = await done(world.client(lease=10, heartbeat_every=math.inf).acquire("a"))
    granted = stale.fencing_token
    await world.sleep(30)
    newer = await done(world.client("ben").acquire("a"))
    # The counter, which a lock must not read: it would arm the stale holder with the new token.
    assert world.table.state("a").fencing_token == newer.fencing_token > granted
    assert stale.fencing_token == granted
    before = world.table.state("a")
    assert await done(stale.release()) is False
    assert world.table.state("a") == before
    newer.check()


# Waiters and holders of one client: a release wakes the next waiter at once, without a read.


async def test_a_waiter_has_the_lock_in_the_moment_of_its_release(world: World) -> None:
    first = await held(world)
    world.at(10, first.release)
    second = await done(world.clients[0].acquire("a", max_wait=60, lease=30))
    assert second.fencing_token == first.fencing_token + 1
    assert world.now() == 10
    assert second.remaining <= 30, "it counts from before the hand-off"
    polls = [name for name in world.table.requests if name == "query"][1:-1]  # Join and hand-off.
    assert len(polls) <= 3  # One in `longest_poll`, in case that the holder has died.


async def test_a_release_with_a_lost_reply_tells_no_one_and_costs_a_poll(world: World) -> None:
    first = await held(world)

    async def release_unheard() -> None:
        world.table.will(lose(of=TRANSACTIONS))
        await done(first.release())
        world.table.will()

    world.at(10, release_unheard)
    second = await done(world.clients[0].acquire("a", max_wait=60))
    assert second.fencing_token == first.fencing_token + 1
    assert world.now() <= 21


async def test_a_waiter_of_a_client_closed_as_it_is_granted_gives_it_back(world: World) -> None:
    first = await held(world)

    async def release_and_close() -> None:
        await done(first.release())
        await done(world.clients[0].close())

    world.at(10, release_and_close)
    with pytest.raises(ClientUnusable):
        (await done(world.clients[0].acquire("a", max_wait=60))).check()
    assert world.table.traces("a") == []
