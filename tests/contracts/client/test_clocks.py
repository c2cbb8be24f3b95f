"""Leases and clocks, for both clients: AWS's `Date` judges a lease, and no clock of a machine does.

`world.clock` is AWS's. A client `with_clock` runs on a machine whose own clock is wrong. That a
holder ends before another one can begin, whatever the clocks do, is in tests/clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import pytest

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
from tests.support.faulty_table import REQUESTS, fault, lost_reply, meanwhile
from tests.unit.client.doubles import unchanged, without_date

TWO_HOURS = 7200.0
NO_HEARTBEATS: dict[str, Any] = {"heartbeat_every": math.inf, "safe_period": 1}
AWS = "https://dynamodb.eu-west-1.amazonaws.com"


async def crash(client: Any, **wanted: Any) -> None:  # noqa: ANN401 - a client, as of acquire
    """Acquires, and is never heard of again."""
    await done(client.acquire("a", **wanted))
    await done(client.close())


# A holder that lives is robbed by no one, a dead one is replaced its lease and 5 s later.


async def is_robbed(
    world: World, *, holder: float = 0, contender: float = 0, lease: float = 60
) -> bool:
    """Whether a contender gets a lock that is renewed; both wall clocks may be wrong."""
    lock = await done(world.with_clock(holder).acquire("a"))
    ben = world.with_clock(contender)
    try:
        await done(ben.acquire("a", max_wait=150, lease=lease))
    except LockWaitTimeout:
        lock.check()
        return False
    with pytest.raises(LockLost):
        await done(lock.heartbeat())
    return True


WRONG: list[dict[str, float]] = [
    *({"holder": skew} for skew in (-TWO_HOURS, TWO_HOURS)),
    *({"contender": skew} for skew in (-TWO_HOURS, TWO_HOURS)),
    {"lease": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_no_wrong_clock_and_no_short_lease_of_a_contender_robs_a_holder(
    world: World, wrong: dict[str, float]
) -> None:
    assert not await is_robbed(world, **wrong)


async def test_by_its_own_clock_a_contender_two_hours_ahead_would_rob(world: World) -> None:
    world.table.answers = without_date
    assert await is_robbed(world, contender=TWO_HOURS)


async def test_the_date_of_another_answer_judges_no_lease(world: World) -> None:
    """A front end an hour ahead has answered for another lock."""
    lock = await done(world.another().acquire("a"))
    ben = world.another("ben")
    ahead = formatdate(world.clock.wall_ms() / 1000 + 3600, usegmt=True)
    world.table.answers = lambda headers: headers.update(date=ahead)
    await done(ben.try_acquire("b"))
    world.table.answers = unchanged
    assert await done(ben.try_acquire("a")) is None
    lock.check()


@pytest.mark.parametrize(
    ("dead", "skew"), [(0, 0), (TWO_HOURS, 0), (-TWO_HOURS, 0), (0, TWO_HOURS), (0, -TWO_HOURS)]
)
@pytest.mark.parametrize("lived_seconds", [0, 50])
async def test_a_waiter_replaces_a_dead_holder_its_lease_and_at_most_5_s_after_its_last_renewal(
    world: World, dead: float, skew: float, lived_seconds: float
) -> None:
    client = world.with_clock(dead)
    await done(client.acquire("a"))
    await world.sleep(lived_seconds)
    await done(client.close())
    [holder] = world.table.state("a").holders
    renewed = holder.expires_at_ms / 1000 - 60 - 1.5
    lock = await done(world.with_clock(skew).acquire("a", max_wait=3600))
    lock.check()
    assert 60 < world.clock.wall_ms() / 1000 - renewed < 65
    assert (holder.revision > 1) is (lived_seconds > 0 or dead != 0)


async def test_a_single_try_replaces_a_dead_holder_once_a_date_shows_its_end(world: World) -> None:
    await crash(world.another())
    ben = world.another("ben")
    await world.sleep(61.999)
    assert await done(ben.try_acquire("a")) is None
    await world.sleep(0.001)
    assert await done(ben.try_acquire("a")) is not None


@pytest.mark.parametrize("renews", [True, False])
async def test_a_renewal_between_look_and_takeover_wins(world: World, *, renews: bool) -> None:
    direct = world.store()
    direct.acquire(acquire("anna", lock_name="a"))
    ben = world.another("ben")
    await world.sleep(65)
    if renews:
        renewal = heartbeat("anna", lock_name="a")
        world.table.will(meanwhile(2, lambda: direct.heartbeat(renewal)))
    assert (await done(ben.try_acquire("a")) is None) is renews


# What a wrong clock has written is corrected.


@pytest.mark.parametrize(("skew", "corrections"), [(0, 0), (-240, 1), (-5, 1), (5, 1), (240, 1)])
async def test_a_first_write_by_a_wrong_clock_is_corrected_by_one_request(
    world: World, skew: float, corrections: int
) -> None:
    locks = world.with_clock(skew, lease=9)
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
    fast = world.with_clock(240, lease=9)
    if not corrects:
        world.table.will(fault(lost_reply(), range(2, 999), of=REQUESTS))
    with suppress(LockStoreUnavailable):
        await done(fast.try_acquire("a"))
    await done(fast.close())
    world.table.will()
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
