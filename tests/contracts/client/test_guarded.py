"""A lock's own guarded writes: what their outcome means for the lock, its heartbeats, its end."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock import LockLost, LockStoreUnavailable
from fairlock.errors import TransactionRefused
from fairlock.protocol.model import ReleaseRequest
from tests.contracts.client.drivers import Threads, Told, World, done, inside
from tests.support.faulty_table import TRANSACTIONS, down, lost_reply, meanwhile, mute, show

PUT: Any = {"Put": {"TableName": "notes", "Item": {"pk": {"S": "report"}, "sk": {"S": "7"}}}}
REFUSED: Any = {"Put": {**PUT["Put"], "ConditionExpression": "attribute_exists(pk)"}}
EACH_WAY = pytest.mark.parametrize("release", [True, False])


def is_written(world: World) -> bool:
    return ("report", "7") in world.table.memory.items


async def a_lock(world: World, **options: Any) -> Any:  # noqa: ANN401 - of either kind
    lock = await done(world.client().acquire("a", **options))
    world.table.requests.clear()
    return lock


@EACH_WAY
async def test_a_guarded_write_keeps_the_lock_or_ends_it(world: World, *, release: bool) -> None:
    async with inside(await a_lock(world)) as lock:
        await done(lock.transact_write([PUT], release=release))
        assert world.table.requests == ["transact_write_items"]
        assert lock.remaining == (0 if release else pytest.approx(29.4, abs=0.1))
    assert world.table.requests == ["transact_write_items", "update_item"][: 2 - release]
    assert not lock.lost.is_set()
    assert is_written(world)
    assert world.table.state("a").held == 0


@EACH_WAY
async def test_a_refusal_because_the_lock_is_gone_is_a_loss(world: World, *, release: bool) -> None:
    """By its own clock it is held; the table knows better."""
    lock = await a_lock(world)
    world.store().release(ReleaseRequest(lock_name="a", owner_id=lock.owner_id))
    with pytest.raises(LockLost):
        await done(lock.transact_write([PUT], release=release))
    assert lock.lost.is_set()
    assert await done(lock.release()) is False
    assert not is_written(world)


@EACH_WAY
async def test_an_ended_lease_refuses_without_a_request(world: World, *, release: bool) -> None:
    lock = await a_lock(world)
    world.stall(30)
    with pytest.raises(LockLost, match="its lease is over"):
        await done(lock.transact_write([PUT], release=release))
    assert world.table.requests == []


@EACH_WAY
async def test_a_refusal_of_the_items_keeps_the_lock(world: World, *, release: bool) -> None:
    lock = await a_lock(world)
    with pytest.raises(TransactionRefused):
        await done(lock.transact_write([REFUSED], release=release))
    lock.check()
    await done(lock.heartbeat())
    assert await done(lock.release()) is True


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_release_with_writes_of_unknown_outcome_is_no_loss_and_may_be_repeated(
    world: World, *, is_sent: bool
) -> None:
    async with inside(await a_lock(world)) as lock:
        world.table.will(mute() if is_sent else down())
        with pytest.raises(LockStoreUnavailable):
            await done(lock.transact_write([PUT], token="one", release=True))
        world.table.will()
        with pytest.raises(LockLost, match="released"):
            await done(lock.heartbeat())  # It would say "not held", and look like a theft.
        assert is_written(world) is is_sent
        await done(lock.transact_write([PUT], token="one", release=True))
    assert not lock.lost.is_set()
    assert is_written(world)
    assert world.table.state("a").held == 0


async def test_a_condition_check_goes_into_a_transaction_of_ones_own(world: World) -> None:
    lock = await a_lock(world)
    write: Any = world.table.transact_write_items
    write(TransactItems=[lock.condition_check(), PUT])
    await done(lock.release())
    with pytest.raises(ClientError, match="TransactionCanceled"):
        write(TransactItems=[lock.condition_check(), PUT])


async def test_while_a_release_with_writes_is_under_way_the_lock_is_not_held(world: World) -> None:
    """The next owner may hold it before the answer is here."""
    lock, seen = await a_lock(world), list[tuple[str, float]]()
    world.table.will(show(lambda name, _: seen.append((name, lock.remaining))))
    await done(lock.transact_write([PUT], release=True))
    assert seen == [("transact_write_items", 0)]


async def test_a_lease_that_ends_during_a_release_with_writes_is_no_loss(world: World) -> None:
    told = Told(world)
    async with inside(world.client().hold("a", **told.callbacks())) as lock:
        world.table.will(meanwhile((), lambda: world.stall(lock.lease)))
        await done(lock.transact_write([PUT], release=True))
    assert (lock.lost.is_set(), told.what) == (False, [])


@pytest.mark.parametrize("world", [Threads], indirect=True)
async def test_a_lock_is_renewed_on_after_a_refused_release_with_writes(world: World) -> None:
    """Its heartbeat is due while the write is under way."""
    lock = await a_lock(world)
    world.table.will(meanwhile((), lambda: world.clock.advance(20), of=TRANSACTIONS))
    with pytest.raises(TransactionRefused):
        await done(lock.transact_write([REFUSED], release=True))
    await world.sleep(300)
    lock.check()


async def test_a_release_after_an_unknown_one_with_a_refused_repeat_succeeds(
    world: World,
) -> None:
    """It is held in the table, but not renewed; and the first sending may be written yet."""
    lock = await a_lock(world)
    world.table.will(down(lost_reply()))
    with pytest.raises(LockStoreUnavailable):
        await done(lock.transact_write([REFUSED], token="one", release=True))
    world.table.will()
    with pytest.raises(LockStoreUnavailable, match="may be written yet"):
        await done(lock.transact_write([REFUSED], token="one", release=True))
    with pytest.raises(LockLost, match="may have been released"):
        lock.check()
    assert (world.table.state("a").held, lock.lost.is_set()) == (1, False)
    await done(lock.transact_write([PUT], token="two", release=True))
    assert (world.table.state("a").held, await done(lock.release())) == (0, True)


async def test_after_an_unknown_release_a_refused_write_is_no_loss(world: World) -> None:
    told = Told(world)
    lock = await a_lock(world, **told.callbacks())
    world.table.will(mute())
    with pytest.raises(LockStoreUnavailable):
        await done(lock.transact_write([PUT], release=True))
    world.table.will()
    with pytest.raises(LockLost):
        await done(lock.transact_write([REFUSED], release=True))
    assert (lock.lost.is_set(), await done(lock.release()), told.what) == (False, True, [])
