"""`@locked`: a function, or a coroutine function, runs only while it holds its lock.

A handler of Lambda has the lease of its invocation, which nothing renews.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest

from fairlock import InvalidRequest, LockLost, LockWaitTimeout, Superseded
from tests.contracts.client.drivers import World, done, inside, nothing
from tests.support.faulty_table import RENEWAL, down, fault, lost_reply, meanwhile


@pytest.fixture(autouse=True)
def without_heartbeats(world: World) -> None:
    world.locks = world.another("test", heartbeat_every=math.inf)


async def test_it_runs_while_it_holds_the_lock_and_returns_its_result(world: World) -> None:
    async def charge(order_id: int, *, amount: int = 3) -> str:
        assert world.table.state(f"orders/{order_id}").held == 1
        return f"{amount} for {order_id}"

    call = world.locked(charge, "orders/{order_id}")
    assert await done(call(7)) == "3 for 7"
    assert await done(call(order_id=8, amount=4)) == "4 for 8"
    assert (world.table.state("orders/7").held, world.table.state("orders/8").held) == (0, 0)
    assert world.table.writes == 4


async def test_what_it_raises_leaves_after_the_release(world: World) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await done(world.locked(fail, "a")())
    assert world.table.state("a").held == 0


@pytest.mark.parametrize("mode", [{}, {"if_taken": "skip"}, {"reentrant": True}], ids=str)
@pytest.mark.parametrize("length", ["lease", "max_hold"])
async def test_a_function_that_ran_longer_than_its_lease_or_max_hold_was_not_alone(
    world: World, mode: dict[str, Any], length: str
) -> None:
    async def stall(seconds: float) -> None:
        await world.sleep(seconds)

    call = world.locked(stall, "a", **{length: 30}, **mode)
    await done(call(29))
    with pytest.raises(LockLost, match=r"its (lease|max_hold of 30 s) is over"):
        await done(call(30))


async def test_a_function_inside_itself_goes_on_under_the_first_max_hold(world: World) -> None:
    left: list[float] = []

    async def count_down(number: int, lock: Any = None) -> None:  # noqa: ANN401 - of either kind
        left.append(lock.hold_remaining)
        await world.sleep(5)
        if number:
            await done(again(number - 1))

    again = world.locked(count_down, "a", max_hold=30, reentrant=True)
    await done(again(2))
    assert left == [30, 25, 20]
    assert world.table.requests == ["update_item"] * 2


@pytest.mark.parametrize("reentrant", [False, True])
async def test_a_call_that_is_skipped_returns_what_stands_for_it_and_only_others_skip_it(
    world: World, *, reentrant: bool
) -> None:
    ran: list[str] = []

    async def work(*errors: Exception) -> str:
        ran.append("work")
        for error in errors:
            raise error
        return "done"

    options = {"if_taken": "skip", "reentrant": reentrant}
    call, or_say = (
        world.locked(work, "a", **options),
        world.locked(work, "a", otherwise=7, **options),
    )
    async with inside(world.another().hold("a")):
        assert [await done(call()), await done(or_say()), *ran] == [None, 7]
    assert [await done(call()), await done(or_say()), *ran] == ["done", "done", "work", "work"]
    with pytest.raises(LockWaitTimeout):
        await done(call(LockWaitTimeout()))
    assert world.table.state("a").held == 0


async def test_a_call_of_an_older_version_gives_way(world: World) -> None:
    await done(world.locked(nothing, "a", only_newest=7)())
    with pytest.raises(Superseded):
        await done(world.locked(nothing, "a", only_newest=6)())


async def test_as_many_calls_run_at_a_time_as_the_limit_says(world: World) -> None:
    async def nest(depth: int) -> Any:  # noqa: ANN401 - None, if it was skipped
        return 1 if depth == 1 else await done(call(depth - 1))

    call = world.locked(nest, "a", if_taken="skip", limit=2)
    assert [await done(call(2)), await done(call(3))] == [1, None]


# Handlers of Lambda: lease and wait end with the invocation.


class Invocation:
    """What the Lambda runtime hands to a handler beside the event; its time passes."""

    def __init__(self, world: World, seconds: float) -> None:
        self._now = world.now
        self._ends_at = world.now() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return round((self._ends_at - self._now()) * 1000)


def invocation(world: World, seconds: float | None) -> Invocation | str:
    """The context of a call in Lambda, or an argument of another call."""
    return "no context" if seconds is None else Invocation(world, seconds)


async def its_lease(_event: object, _context: object, *, lock: Any = None) -> float:  # noqa: ANN401 - of either kind
    lease: float = lock.lease
    return lease


@pytest.mark.parametrize(
    ("options", "of_client", "seconds_left", "waited"),
    [
        ({"max_wait": 20}, None, None, 20),
        ({}, None, None, 120),
        ({"if_taken": "raise"}, None, None, 0),
        ({}, None, 30, 29),
        ({"max_wait": 10}, None, 30, 10),
        ({"max_wait": 10}, None, 0.5, 0),
        ({}, 5, 600, 5),
    ],
    ids=str,
)
async def test_a_lock_that_is_taken_is_waited_for_as_long_as_is_said_and_an_invocation_lasts(
    world: World,
    options: dict[str, Any],
    of_client: float | None,
    seconds_left: float | None,
    waited: float,
) -> None:
    world.locks = world.another("test", heartbeat_every=math.inf, max_wait=of_client)
    await done(world.another().acquire("a", lease=3600))
    with pytest.raises(LockWaitTimeout):
        await done(world.locked(its_lease, "a", **options)({}, invocation(world, seconds_left)))
    assert world.now() == pytest.approx(waited)


@pytest.mark.parametrize(
    ("options", "seconds_left", "lease"),
    [
        ({}, 30, 31 / 0.98),
        ({}, 0.25, 1.25 / 0.98),
        ({}, -1, 1),
        ({}, 899.5, 900.5 / 0.98),
        ({}, None, 60),
        ({"lease": 5}, 30, 5),
        # Nothing renews it, so it is not longer than the lock may be held.
        ({"max_hold": 60}, 300, 61 / 0.98),
        ({"max_hold": 900}, 300, 301 / 0.98),
    ],
    ids=str,
)
async def test_the_lease_of_a_handler_lasts_until_the_invocation_must_have_ended(
    world: World, options: dict[str, Any], seconds_left: float | None, lease: float
) -> None:
    call = world.locked(its_lease, "a", **options)
    assert await done(call({}, invocation(world, seconds_left))) == pytest.approx(lease, abs=0.001)
    assert world.table.requests == ["update_item"] * 2


async def test_a_lease_that_was_waited_for_ends_with_the_invocation_too(world: World) -> None:
    """One that no one shortens would outlast it by the wait of 250 s."""
    invocation = Invocation(world, 300)

    async def work(_event: object, _context: object, *, lock: Any) -> tuple[float, float]:  # noqa: ANN401 - same
        [holder] = world.table.state("a").holders
        return lock.lease, holder.expires_at_ms / 1000 - world.clock.wall_ms() / 1000

    first = await done(world.locks.acquire("a", lease=3600))
    world.at(250, first.release)
    leases = await done(world.locked(work, "a", max_wait=290)({}, invocation))
    assert leases == pytest.approx((51 / 0.98, 51 / 0.98 + 1.5), abs=0.5)


@pytest.mark.parametrize(("gone", "raises"), [(False, None), (True, LockLost)])
async def test_a_lease_that_cannot_be_shortened_is_too_long_and_no_worse(
    world: World, *, gone: bool, raises: type[Exception] | None
) -> None:
    items = world.table.memory.items
    fails = meanwhile(1, items.clear, has=RENEWAL) if gone else fault(lost_reply(), 1, has=RENEWAL)
    first = await done(world.another(heartbeat_every=math.inf).acquire("a", lease=3600))
    world.at(100, lambda: world.table.will(fails))
    world.at(100, first.release)
    call = world.locked(its_lease, "a", max_wait=290)
    with pytest.raises(raises) if raises else nullcontext():
        assert 190 < await done(call({}, Invocation(world, 300))) <= 301 / 0.98 + 0.001


async def test_a_handler_enters_its_lock_again_with_less_of_its_time_left(world: World) -> None:
    async def whole(event: object, context: object, *, lock: Any) -> list[float]:  # noqa: ANN401 - same
        await world.sleep(20)
        return [lock.lease, await done(part(event, context))]

    again = world.locked(whole, "a", reentrant=True)
    part = world.locked(its_lease, "a", reentrant=True)
    leases = await done(again({}, Invocation(world, 300)))
    assert leases == [pytest.approx(301 / 0.98, abs=0.01)] * 2
    assert world.table.requests == ["update_item"] * 2
    part = world.locked(its_lease, "a", reentrant=True, lease=60)
    with pytest.raises(InvalidRequest, match="lease"):
        await done(again({}, Invocation(world, 300)))


@pytest.mark.parametrize(("lease", "is_free"), [(None, True), (600, False)])
async def test_the_lock_of_an_invocation_that_died_is_free_soon_after_its_deadline(
    world: World, lease: float | None, *, is_free: bool
) -> None:
    """It could not release. The control: with a lease of its own, its lock stays taken."""

    async def die(_event: object, _context: object) -> None:
        world.table.will(down())

    deadline = world.now() + 30
    await done(world.locked(die, "a", lease=lease)({}, Invocation(world, 30)))
    world.table.will()
    with nullcontext() if is_free else pytest.raises(LockWaitTimeout):
        await done(world.another().acquire("a", max_wait=45))
    if is_free:
        assert 0 < world.now() - deadline < 10  # It looked for the first time after 5 s.
