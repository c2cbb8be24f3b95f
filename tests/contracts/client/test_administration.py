"""What operators see and do by a client: describe, list, release, force_release, pause, limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from fairlock import (
    ClientUnusable,
    HolderChanged,
    LockDescription,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
)
from tests.contracts.client.drivers import World, done
from tests.support import acquire, logged_here, owner
from tests.support.faulty_table import down, lose, refusal

PUT: Any = {"Put": {"TableName": "any", "Item": {"pk": {"S": "a"}, "sk": {"S": "b"}}}}
WHY = "stuck since 3 a.m."


async def described(client: Any, name: str = "a") -> LockDescription:  # noqa: ANN401 - of either kind
    found: LockDescription | None = await done(client.describe(name))
    assert found is not None
    return found


async def anna_and_olga(world: World) -> tuple[Any, Any]:
    """The lock that Anna holds, and the client of Olga, an operator."""
    lock = await done(world.client("anna").acquire("a", data={"job": 7}))
    world.table.requests.clear()
    return lock, world.client("olga")


async def force(olga: Any, lock: Any, **more: Any) -> None:  # noqa: ANN401 - of either kind
    given = {"fencing_token": lock.fencing_token, "reason": WHY, **more}
    await done(olga.force_release("a", **given))


async def test_describe_and_list_show_the_lock_that_another_holds(world: World) -> None:
    lock, olga = await anna_and_olga(world)
    found = await described(olga)
    assert world.table.requests == ["query", "get_item"]
    [holder] = found.holders
    assert (holder.owner_name, holder.data) == ("anna", {"job": 7})
    assert holder.fencing_token == lock.fencing_token
    assert lock.owner_id not in repr(found)
    assert await done(olga.describe("b")) is None
    world.table.memory.page_size = 1
    for name in ("a/1", "a/2", "b"):
        await done(world.client().acquire(name))
    assert [each.name for each in await world.list(olga)] == ["a", "a/1", "a/2", "b"]
    assert [each.name for each in await world.list(olga, "a/")] == ["a/1", "a/2"]
    assert (await world.list(olga, "a"))[0] == found


USES: dict[str, Callable[[Any], object]] = {
    "transact_write": lambda lock: lock.transact_write([PUT]),
    "heartbeat": lambda lock: lock.heartbeat(),
    "release": lambda lock: lock.release(),
}


@pytest.mark.parametrize("use", USES)
async def test_a_forced_release_is_a_loss_at_the_next_request(world: World, use: str) -> None:
    lock, olga = await anna_and_olga(world)
    await force(olga, lock)
    lock.check()  # It has not asked yet: no lease can do better.
    if use != "release":
        with pytest.raises(LockLost, match=r"freed by force|is not held any more"):
            await done(USES[use](lock))
        assert lock.lost.is_set()
    assert await done(lock.release()) is False
    with pytest.raises(LockLost):
        lock.check()
    assert world.table.state("a").holders == ()


@pytest.mark.parametrize("by", ["arn:olga", None])
async def test_who_and_why_are_logged_and_stored(
    world: World, caplog: pytest.LogCaptureFixture, by: str | None
) -> None:
    """A client's name that is too long for the mark is cut at a letter."""
    lock, _ = await anna_and_olga(world)
    letter = "\N{LATIN SMALL LETTER E WITH ACUTE}"
    stored = by or letter * 128
    with caplog.at_level(logging.WARNING, "fairlock"):
        await force(world.client(letter * 400), lock, requested_by=by)
    [told] = logged_here(caplog)
    assert told == (
        f"lock 'a': released by force by {stored}: {WHY}; it was held by anna, "
        f"fencing token {lock.fencing_token}"
    )
    last = (await described(world.client())).last_forced_release
    assert last is not None
    assert (last.requested_by, last.reason) == (stored, WHY)


async def test_the_holder_that_a_waiter_was_told_of_can_be_named(world: World) -> None:
    _, olga = await anna_and_olga(world)
    with pytest.raises(LockWaitTimeout) as caught:
        await done(olga.acquire("a", max_wait=0))
    assert caught.value.holders == (await described(olga)).holders
    assert caught.value.holders[0].data == {"job": 7}
    await done(olga.force_release("a", holder=caught.value.holders[0], reason=WHY))
    assert await done(olga.try_acquire("a")) is not None


async def test_a_holder_that_changed_is_a_typed_error_and_nothing_is_written(world: World) -> None:
    first, olga = await anna_and_olga(world)
    await done(first.release())
    await done(world.client("ben").acquire("a"))
    before = dict(world.table.memory.items)
    with pytest.raises(HolderChanged, match="describe the lock again") as caught:
        await force(olga, first)
    assert (caught.value.lock_name, caught.value.fencing_token) == ("a", first.fencing_token)
    assert world.table.memory.items == before


async def test_an_owner_id_is_enough_to_release_and_that_may_be_repeated(world: World) -> None:
    lock, olga = await anna_and_olga(world)
    assert await done(olga.release("a", lock.owner_id)) is True
    assert world.table.requests == ["update_item"]
    assert await done(olga.release("a", lock.owner_id)) is True, "a repeat"
    with pytest.raises(LockLost):
        await done(lock.heartbeat())
    assert await done(olga.release("a", owner("another"))) is False
    await done((await done(world.client("carl").acquire("a"))).release())
    assert await done(olga.release("a", lock.owner_id)) is False, "another has released since"


@pytest.mark.parametrize("by_force", [True, False])
async def test_a_release_with_a_lost_reply_is_repeated(world: World, *, by_force: bool) -> None:
    lock, olga = await anna_and_olga(world)
    world.table.will(lose(1, 2, 3, of=("update_item",)))
    began = world.now()
    if by_force:
        await force(olga, lock)
    else:
        assert await done(olga.release("a", lock.owner_id)) is True
    assert world.table.state("a").holders == ()
    assert world.now() > began, "it was repeated after a pause"


async def test_an_outage_is_no_answer(world: World) -> None:
    lock, olga = await anna_and_olga(world)
    calls: list[Callable[[], object]] = [
        lambda: force(olga, lock),
        lambda: olga.release("a", lock.owner_id),
        lambda: olga.adopt("a", lock.owner_id),
        lambda: olga.describe("a"),
        lambda: olga.pace("vendor", rate=(10, 60), max_wait=0),
        lambda: world.list(olga),
    ]
    for outage, error in (
        (refusal("InternalServerError"), LockStoreUnavailable),
        (refusal("AccessDeniedException"), LockStoreMisconfigured),
    ):
        world.table.will(down(outage))
        for call in calls:
            with pytest.raises(error):
                await done(call())
    world.table.will()
    await done((await done(olga.adopt("a", lock.owner_id))).heartbeat())


async def test_a_lock_that_someone_has_changed_is_logged_and_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _, olga = await anna_and_olga(world)
    await done(olga.acquire("b"))
    world.table.memory.items["LOCK#a", "STATE"]["held"] = {"S": "nonsense"}
    assert [lock.name for lock in await world.list(olga)] == ["b"]
    assert "LOCK#a" in caplog.text


async def test_a_client_that_is_closed_does_nothing(world: World) -> None:
    client = world.client("anna")
    for _ in range(2):
        await done(client.close())
    for call in (
        lambda: client.acquire("a"),
        lambda: client.describe("a"),
        client.list,
        lambda: client.force_release("a", fencing_token=7, reason=WHY),
        lambda: client.adopt("a", "0123456789abcdef"),
        lambda: client.release("a", "0123456789abcdef"),
        lambda: client.pace("vendor", rate=(10, 60)),
    ):
        with pytest.raises(ClientUnusable, match="closed"):
            await done(call())
    assert world.table.requests == []


async def test_a_paused_lock_says_by_whom_and_why_to_those_who_ask_and_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    operator, client = world.client("olga"), world.client("anna")
    await done(operator.pause("a", reason="freeze until Monday"))
    for max_wait in (0, 0.2):
        with pytest.raises(LockWaitTimeout, match=r"paused by olga since .*freeze until") as late:
            await done(client.acquire("a", max_wait=max_wait))
        assert late.value.ceiling is not None
        assert (late.value.ceiling.limit, late.value.holders) == (0, ())
    assert await done(client.try_acquire("a")) is None
    found = await described(client)
    assert found.is_paused
    assert await world.list(client) == [found]
    await done(operator.resume("a", requested_by="paul"))
    assert logged_here(caplog) == [
        "lock 'a': paused by olga: freeze until Monday",
        "lock 'a': resumed by paul: resumed",
    ]
    assert (await done(client.acquire("a", max_wait=0))).fencing_token > 0
    assert world.table.state("a").ceiling is None


async def test_a_limit_holds_whatever_callers_name_until_it_is_lifted(world: World) -> None:
    client = world.client("anna")
    await done(client.set_limit("a", 1, reason=WHY))
    first = await done(client.acquire("a", limit=3, max_wait=0))
    assert await done(client.try_acquire("a", limit=3)) is None
    await done(client.set_limit("a", 2, reason=WHY))
    assert await done(client.try_acquire("a", limit=3)) is not None
    await done(client.resume("a"))
    assert await done(client.try_acquire("a", limit=3)) is not None
    assert await done(first.release()) is True


async def test_a_queue_is_emptied_and_its_length_told(world: World) -> None:
    _, olga = await anna_and_olga(world)
    world.store().acquire(acquire("ben", lock_name="a", waits=True))
    assert await done(olga.empty_queue("a")) == 1
    assert world.table.waiters("a") == []
