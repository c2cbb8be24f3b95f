"""`hold_all`: several locks in one order, within one wait, all or none."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock import InvalidRequest, LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.testing import FakeLockClient
from tests.contracts.client.drivers import World, done, inside
from tests.support.faulty_table import down

PAIR = ["ben", "anna"]


async def test_a_body_has_all_locks_in_the_order_of_the_list_and_leaves_none(world: World) -> None:
    """Each lock is one request, and so is its release."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the whole block
        async with inside(world.locks.hold_all(PAIR)) as (ben, anna):
            assert (ben.name, anna.name) == ("ben", "anna")
            assert [world.table.state(name).held for name in PAIR] == [1, 1]
            assert world.table.requests == ["update_item"] * 2
            _ = 1 / 0
    assert world.table.requests == ["update_item"] * 4
    assert [world.table.state(name).held for name in PAIR] == [0, 0]


async def test_locks_are_taken_by_the_bytes_of_names_and_released_in_reverse(world: World) -> None:
    """In the order of their lists, callers of crossed lists would wait for each other.

    UTF-16, as JavaScript and Java sort, has the two last ones the other way round.
    """
    happened: list[tuple[str, str]] = []
    client = world.another(on_event=lambda event: happened.append((event.kind, event.lock_name)))
    async with inside(client.hold_all(["😀", "b", "\uff5e", "B", "é"])):
        pass
    order = ["B", "b", "é", "\uff5e", "😀"]
    assert [name for kind, name in happened if kind == "Granted"] == order
    assert [name for kind, name in happened if kind == "Released"] == order[::-1]


async def test_all_waits_together_last_max_wait_and_none_is_held_after_it(world: World) -> None:
    first = await done(world.another().acquire("anna"))
    second = await done(world.another("carl").acquire("ben"))
    world.at(6, first.release)
    world.at(12, second.release)
    began = world.now()
    with pytest.raises(LockWaitTimeout) as late:
        async with inside(world.locks.hold_all(PAIR, max_wait=10)):
            pass
    assert 10 <= world.now() - began < 11
    assert late.value.lock_name == "ben"
    assert [holder.owner_name for holder in late.value.holders] == ["carl"]
    assert late.value.__notes__ == [
        "hold_all waited 10.0 of 10 s for 2 locks; given back: 'anna'; none of them is held"
    ]
    with pytest.raises(LockWaitTimeout):
        async with inside(world.locks.hold_all(PAIR, max_wait=0)):
            pass
    assert world.now() - began < 11
    assert world.table.state("anna").held == 0


async def test_a_loss_while_the_next_is_waited_for_ends_it_without_a_body(world: World) -> None:
    second = await done(world.another().acquire("ben", lease=600))
    client = world.another(heartbeat_every=float("inf"))
    world.at(40, lambda: world.stall(60))
    world.at(105, second.release)
    with pytest.raises(LockLost):
        async with inside(client.hold_all(PAIR, lease=60, max_wait=300)):
            pytest.fail("it began")
    assert [world.table.state(name).held for name in PAIR] == [0, 0]


def test_an_interrupt_while_the_second_is_waited_for_leaves_none() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with FakeLockClient() as locks:
        other = locks.another().acquire("ben")
        locks.clock.at(3, interrupt)
        with pytest.raises(KeyboardInterrupt), locks.hold_all(PAIR, max_wait=60):
            pass
        other.release()
        assert [(lock.holders, lock.waiters.count) for lock in locks.list()] == [((), 0)] * 2


async def test_an_unknown_outcome_of_one_is_no_grant_of_any(world: World) -> None:
    real = world.locks._block  # noqa: SLF001 - nothing else is called in between

    def block(options: Any, **how: Any) -> Any:  # noqa: ANN401 - as of the client
        if options.name == "ben":
            world.table.will(down())
        return real(options, **how)

    world.locks._block = block  # noqa: SLF001 - the outage begins here
    with pytest.raises(LockStoreUnavailable):
        async with inside(world.locks.hold_all(PAIR, max_wait=5)):
            pytest.fail("it began")
    world.table.will()
    await world.sleep(70)
    assert await done(world.another().try_acquire("anna"))


async def test_inside_a_block_of_one_it_is_refused_before_any_is_taken(world: World) -> None:
    async with inside(world.locks.hold("ben")):
        sent = len(world.table.requests)
        with pytest.raises(InvalidRequest, match="must not be 'ben' here"):
            async with inside(world.locks.hold_all(PAIR)):
                pass
        assert len(world.table.requests) == sent


async def test_readers_share_several_locks_and_a_writer_of_one_waits(world: World) -> None:
    async with (
        inside(world.locks.hold_all(PAIR, shared=True)),
        inside(world.another().hold_all(PAIR, shared=True)) as others,
    ):
        assert [lock.shared for lock in others] == [True, True]
        assert await done(world.another().try_acquire("ben")) is None
