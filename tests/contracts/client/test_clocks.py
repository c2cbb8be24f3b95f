"""Leases and clocks, for both clients: AWS's `Date` judges a lease, and no clock of a machine does.

`world.clock` is AWS's. A client `with_clock` runs on a machine whose own clock is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock import (
    AsyncLockClient,
    LockClient,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
)
from fairlock.testing.fake_async_client import _Awaitable
from tests.contracts.client.drivers import Threads, World, done
from tests.support import acquire, heartbeat
from tests.support.faulty_table import lost_reply
from tests.unit.client.doubles import unchanged, without_date

TWO_HOURS = 7200.0
NO_HEARTBEATS: dict[str, Any] = {"heartbeat_every": math.inf, "safe_period": 1}
AWS = "https://dynamodb.eu-west-1.amazonaws.com"


def dated_off(world: World, seconds: float) -> Callable[[dict[str, str]], None]:
    """The Dates of a front end whose clock is so many seconds ahead."""

    def change(headers: dict[str, str]) -> None:
        now = world.clock.wall_ms() / 1000
        headers["date"] = formatdate(math.floor(now + seconds), usegmt=True)

    return change


async def crash(client: Any, **wanted: Any) -> None:  # noqa: ANN401 - a client, as of acquire
    """Acquires, and is never heard of again."""
    await done(client.acquire("a", **wanted))
    await done(client.close())


# A holder that lives is robbed by no one, a dead one is replaced its lease and 5 s later.


async def is_robbed(
    world: World, *, holder: float = 0, contender: float = 0, lease: float = 60
) -> bool:
    """Whether a contender gets a lock that is renewed; both wall clocks may be wrong."""
    lock = await done(world.with_clock(skew=holder).acquire("a"))
    ben = world.with_clock(skew=contender)
    try:
        await done(ben.acquire("a", max_wait=150, lease=lease))
    except LockWaitTimeout:
        lock.check()
        return False
    with pytest.raises(LockLost):
        await done(lock.heartbeat())
    return True


@pytest.mark.parametrize("skew", [-TWO_HOURS, TWO_HOURS])
@pytest.mark.parametrize("who", ["holder", "contender"])
async def test_a_clock_that_is_two_hours_wrong_robs_no_holder(
    world: World, who: str, skew: float
) -> None:
    assert not await is_robbed(world, **{who: skew})


async def test_by_its_own_clock_a_contender_two_hours_ahead_would_rob(world: World) -> None:
    world.table.answers = without_date
    assert await is_robbed(world, contender=TWO_HOURS)


async def test_a_contenders_own_short_lease_is_no_measure_of_the_holders(world: World) -> None:
    assert not await is_robbed(world, lease=1)


async def test_the_date_of_another_answer_judges_no_lease(world: World) -> None:
    """A front end an hour ahead has answered for another lock."""
    lock = await done(world.another().acquire("a"))
    ben = world.another("ben")
    world.table.answers = dated_off(world, 3600)
    await done(ben.try_acquire("b"))
    world.table.answers = dated_off(world, 0)
    assert await done(ben.try_acquire("a")) is None
    lock.check()


@pytest.mark.parametrize(
    ("dead", "skew"),
    [(0, 0), (TWO_HOURS, 0), (-TWO_HOURS, 0), (0, TWO_HOURS), (0, -TWO_HOURS)],
)
@pytest.mark.parametrize("lived_seconds", [0, 50])
async def test_a_waiter_replaces_a_dead_holder_its_lease_and_at_most_5_s_after_its_last_renewal(
    world: World, dead: float, skew: float, lived_seconds: float
) -> None:
    client = world.with_clock(skew=dead)
    await done(client.acquire("a"))
    await world.sleep(lived_seconds)
    await done(client.close())
    [holder] = world.table.state("a").holders
    renewed = holder.expires_at_ms / 1000 - 60 - 1.5
    lock = await done(world.with_clock(skew=skew).acquire("a", max_wait=3600))
    lock.check()
    assert 60 < world.clock.wall_ms() / 1000 - renewed < 65
    assert (holder.revision > 1) is (lived_seconds > 0 or dead != 0)


async def test_a_single_try_replaces_a_dead_holder_from_the_date_that_shows_its_end(
    world: World,
) -> None:
    await crash(world.another())
    ben = world.another("ben")
    await world.sleep(61.999)
    assert await done(ben.try_acquire("a")) is None
    await world.sleep(0.001)
    assert await done(ben.try_acquire("a")) is not None


async def test_each_of_24_fresh_processes_replaces_a_dead_holder_at_its_first_try(
    world: World,
) -> None:
    await crash(world.another(), lease=2)
    for _ in range(24):
        await world.sleep(7)
        fresh = world.another(lease=2, **NO_HEARTBEATS)
        assert await done(fresh.try_acquire("a")) is not None
        await done(fresh.close())
    assert world.table.requests.count("update_item") == 1 + 24 * 2


@pytest.mark.parametrize("renews", [True, False])
async def test_a_renewal_between_the_last_look_and_the_takeover_wins(
    world: World, *, renews: bool
) -> None:
    direct = world.store()
    direct.acquire(acquire("anna", lock_name="a"))
    ben = world.another("ben")
    await world.sleep(65)
    looked = len(world.table.requests) + 1

    def renew_before_the_takeover(_name: str, _request: object) -> None:
        if renews and len(world.table.requests) == looked:
            world.table.before = None
            direct.heartbeat(heartbeat("anna", lock_name="a"))

    world.table.before = renew_before_the_takeover
    assert (await done(ben.try_acquire("a")) is None) is renews


# A holder's own end comes before the first moment at which another one can be granted the lock.

LEASE = 10


async def right(_world: World, _holder: Any) -> None:  # noqa: ANN401 - a client
    """Nothing is wrong."""


async def differing_front_ends(world: World, holder: Any) -> None:  # noqa: ANN401 - same
    """The holder was answered by one that is behind; the contender asks one that is ahead."""
    del holder
    world.table.answers = dated_off(world, -0.5)


async def another_phase(world: World, holder: Any) -> None:  # noqa: ANN401 - same
    """The Date has lost nearly a second as well, and the stored end is a whole one."""
    await world.sleep(0.49)
    await differing_front_ends(world, holder)


async def jump(world: World, holder: Any) -> None:  # noqa: ANN401 - same
    """Its wall clock is set between two requests."""
    del world
    await done((await done(holder.acquire("another"))).release())
    holder.clock.skew += 3600


def at_the_first_write(when: str, act: Callable[[World, Any], None]) -> Any:  # noqa: ANN401 - a kind of weather
    """Before it is sent, or when its answer comes."""

    async def weather(world: World, holder: Any) -> None:  # noqa: ANN401 - a client
        def happen(*_: object) -> None:
            setattr(world.table, when, None if when == "before" else unchanged)
            act(world, holder)

        setattr(world.table, when, happen)

    return weather


def stall(seconds: float) -> Callable[[World, Any], None]:
    return lambda world, _holder: world.stall(seconds)


def stand_still(world: World, holder: Any) -> None:  # noqa: ANN401 - same
    """A virtual machine that was frozen; its clocks go on from where they were."""
    world.stall(60)
    holder.clock.stood_still += 60


WEATHER: dict[str, tuple[dict[str, float], Any]] = {
    "clocks that are right": ({}, right),
    "4 minutes ahead": ({"skew": 240}, right),
    "4 minutes behind": ({"skew": -240}, right),
    "a clock slow by 1.9 %": ({"rate": 0.981, "lease": 600}, right),
    "front ends 0.5 s off": ({}, differing_front_ends),
    "front ends 0.5 s off, a Date cut short": ({"skew": -1.99}, another_phase),
    "a jump of an hour": ({}, jump),
    "a late request": ({}, at_the_first_write("before", stall(5))),
    "frozen before the write": ({}, at_the_first_write("before", stall(60))),
    "frozen before the write, unnoticed": ({}, at_the_first_write("before", stand_still)),
    "a late answer": ({}, at_the_first_write("answers", stall(5))),
    "asleep after the write": ({}, at_the_first_write("answers", stall(60))),
}


@pytest.mark.parametrize("name", WEATHER)
async def test_a_holder_ends_before_another_one_can_begin(world: World, name: str) -> None:
    clock, weather = WEATHER[name]
    holder = world.with_clock(**{"lease": LEASE, **clock}, **NO_HEARTBEATS)
    contender = world.another("ben", **NO_HEARTBEATS)
    await weather(world, holder)
    lock = await done(holder.try_acquire("a"))
    await done(holder.close())
    world.table.answers = dated_off(world, 0.5) if weather in FRONT_ENDS else unchanged
    await world.sleep(clock.get("lease", LEASE) - 4)
    for _ in range(280):
        was_held = lock is not None and not lock.lost.is_set()
        got = await done(contender.try_acquire("a"))
        if got is not None:
            assert not was_held
            return
        await world.sleep(0.05)
    pytest.fail("a dead holder is never replaced")


FRONT_ENDS = (differing_front_ends, another_phase)


# What a wrong clock has written is corrected.


@pytest.mark.parametrize(("skew", "corrections"), [(0, 0), (-240, 1), (-5, 1), (5, 1), (240, 1)])
async def test_a_first_write_by_a_wrong_clock_is_corrected_by_one_request(
    world: World, skew: float, corrections: int
) -> None:
    locks = world.with_clock(skew=skew, lease=9)
    now_ms = world.clock.wall_ms()
    lock = await done(locks.acquire("a"))
    assert world.table.requests == ["update_item"] * (1 + corrections)
    [holder] = world.table.state("a").holders
    assert now_ms + 8_000 < holder.expires_at_ms < now_ms + 12_000
    assert (holder.fencing_token, holder.revision) == (lock.fencing_token, 1 + corrections)
    assert lock.fencing_token > (now_ms - 2_000) * 1000, "a slow clock makes a low token"
    assert lock.remaining > 4.5
    await done(lock.heartbeat())
    await done(lock.release())
    await done((await done(locks.acquire("a"))).release())
    assert len(world.table.requests) == 5 + corrections, "from now on it knows better"


@pytest.mark.parametrize(("corrects", "most_seconds"), [(True, 9 + 5), (False, 240 + 9 + 5)])
async def test_a_fast_clock_that_dies_before_it_corrects_blocks_for_its_error_and_no_longer(
    world: World, *, corrects: bool, most_seconds: float
) -> None:
    def fail(_name: str, _request: object) -> None:
        if world.table.requests:
            raise lost_reply()

    fast = world.with_clock(skew=240, lease=9)
    world.table.before = world.table.before if corrects else fail
    with suppress(LockStoreUnavailable):
        await done(fast.try_acquire("a"))
    await done(fast.close())
    world.table.before = None
    await world.sleep(most_seconds - 6)
    ben = world.another("ben", **NO_HEARTBEATS)
    assert await done(ben.try_acquire("a")) is None
    await world.sleep(6)
    assert await done(ben.try_acquire("a")) is not None


# Only a Date that DynamoDB itself has made counts.

NO_DATES: dict[str, Callable[[dict[str, str]], object]] = {
    "none": without_date,
    "of a cache": lambda headers: headers.update(age="1"),
    "of a proxy": lambda headers: headers.update(via="1.1 proxy"),
    "of another server": lambda headers: headers.pop("x-amzn-requestid"),
    "unreadable": lambda headers: headers.update(date="soon"),
}


@pytest.mark.parametrize("name", NO_DATES)
async def test_without_a_date_of_its_own_an_answer_of_aws_is_an_error_that_says_what_to_do(
    world: World, name: str
) -> None:
    await crash(world.another(), lease=2)
    world.table.meta.endpoint_url = AWS
    world.table.answers = NO_DATES[name]
    await world.sleep(7)
    with pytest.raises(LockStoreMisconfigured, match='give clock="system"') as told:
        await done(world.another("ben").try_acquire("a"))
    assert told.value.code == "NoDate"


async def test_with_the_systems_clock_a_client_needs_no_date(world: World) -> None:
    """The holder's end is in 2030, by the clock of this machine."""
    await crash(world.another())
    world.table.meta.endpoint_url = AWS
    world.table.answers = without_date
    settings: dict[str, Any] = {"clock": "system", **NO_HEARTBEATS}
    ben: Any = (
        LockClient("locks", client=world.table, **settings)
        if isinstance(world, Threads)
        else AsyncLockClient("locks", client=_Awaitable(world.table), **settings)
    )
    assert await done(ben.try_acquire("a")) is None
    await done(ben.close())


# Copies of writes that land after everything else.


def land(world: World, write: tuple[str, dict[str, Any]]) -> None:
    name, request = write
    with suppress(ClientError):
        getattr(world.table.memory, name)(**request)


@pytest.mark.parametrize("skew", [0, 240])
async def test_a_late_copy_of_any_write_moves_no_end_and_revives_no_grant(
    world: World, skew: float
) -> None:
    lock = await done(world.with_clock(skew=skew, **NO_HEARTBEATS).acquire("a", lease=30))
    for seconds in (1, 19):
        await world.sleep(seconds)
        await done(lock.heartbeat())
    renewed, written = world.table.state("a"), list(world.table.sent)
    assert len(written) == 3 + (skew > 0)
    for write in written[:-1]:
        land(world, write)
        assert world.table.state("a") == renewed
    world.at(5, lock.release)
    ben = await done(world.another("ben", **NO_HEARTBEATS).acquire("a", max_wait=60))
    await done(ben.heartbeat())
    held = world.table.state("a")
    for write in world.table.sent[:-1]:
        land(world, write)
        assert [one.owner_id for one in world.table.state("a").holders] == [ben.owner_id]
        assert world.table.state("a").holders[0].expires_at_ms == held.holders[0].expires_at_ms
    if skew:
        return  # What a fast clock has asked for first may be granted late, for its error at most.
    await done(ben.release())
    await world.sleep(3)
    for write in world.table.sent:
        land(world, write)
        assert world.table.state("a").holders == ()
