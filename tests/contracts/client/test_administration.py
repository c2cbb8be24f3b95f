"""describe, list, release and force_release of a client: what they show, send and raise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from fairlock import (
    HolderChanged,
    InvalidRequest,
    LockDescription,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
)
from fairlock.errors import ClientUnusable
from fairlock.protocol.outcomes import Queued
from tests.contracts.client.drivers import World, done, of_both_clients
from tests.support import HOLDER, acquire, owner
from tests.support.faulty_table import refusal

PUT: Any = {"Put": {"TableName": "any", "Item": {"pk": {"S": "a"}, "sk": {"S": "b"}}}}
WHY = "stuck since 3 a.m."


def described(found: LockDescription | None) -> LockDescription:
    assert found is not None
    return found


@of_both_clients
async def test_what_a_client_describes_and_lists_is_the_lock_that_another_holds(
    world: World,
) -> None:
    lock = await done(world.client("anna").acquire("orders/7", data={"job": 7}))
    operator = world.client("olga")
    world.table.requests.clear()
    found = described(await done(operator.describe("orders/7")))
    assert world.table.requests == ["query", "get_item"]
    [holder] = found.holders
    assert (holder.owner_name, holder.data) == ("anna", {"job": 7})
    assert holder.fencing_token == lock.fencing_token
    assert lock.owner_id not in repr(found)
    assert await world.list(operator) == await world.list(operator, "orders/") == [found]
    assert await world.list(operator, "other") == []
    assert await done(operator.describe("orders/8")) is None


@of_both_clients
async def test_a_forced_release_ends_what_the_holder_relies_on(world: World) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    operator = world.client("olga")
    [holder] = described(await done(operator.describe("orders/7"))).holders
    await done(operator.force_release("orders/7", holder=holder, reason=WHY))
    lock.check()  # It has not asked yet: no lease can do better.
    with pytest.raises(LockLost):
        await done(lock.transact_write([PUT]))
    assert lock.lost.is_set()
    assert await done(lock.release()) is False
    assert world.table.state("orders/7").holders == ()


@of_both_clients
async def test_a_former_holder_is_told_by_its_heartbeat_and_by_its_release(world: World) -> None:
    operator = world.client("olga")
    for name, use in (("orders/7", "heartbeat"), ("orders/8", "release")):
        lock = await done(world.client("anna").acquire(name))
        token = lock.fencing_token
        await done(operator.force_release(name, fencing_token=token, reason=WHY))
        if use == "release":
            assert await done(lock.release()) is False
        else:
            with pytest.raises(LockLost, match="another owner has it, or it was freed by force"):
                await done(lock.heartbeat())
        with pytest.raises(LockLost, match="or it was freed by force"):
            lock.check()
        assert lock.lost.is_set() or use == "release"


@of_both_clients
async def test_who_and_why_are_logged_and_stored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    with caplog.at_level(logging.WARNING, "fairlock"):
        await done(
            world.client("olga").force_release(
                "orders/7", fencing_token=lock.fencing_token, reason=WHY, requested_by="arn:olga"
            )
        )
    [told] = caplog.messages
    assert told == (
        f"lock 'orders/7': released by force by arn:olga: {WHY}; it was held by anna, "
        f"fencing token {lock.fencing_token}"
    )
    last = described(await done(world.client("olga").describe("orders/7"))).last_forced_release
    assert last is not None
    assert (last.requested_by, last.reason) == ("arn:olga", WHY)


@of_both_clients
async def test_the_holder_that_a_waiter_was_told_of_can_be_named(world: World) -> None:
    await done(world.client("anna").acquire("orders/7", data={"order": 7}))
    operator = world.client("olga")
    with pytest.raises(LockWaitTimeout) as caught:
        await done(operator.acquire("orders/7", max_wait=0))
    assert caught.value.holders == described(await done(operator.describe("orders/7"))).holders
    assert caught.value.holders[0].data == {"order": 7}
    await done(operator.force_release("orders/7", holder=caught.value.holders[0], reason=WHY))
    assert await done(operator.try_acquire("orders/7")) is not None


@of_both_clients
async def test_a_holder_that_changed_is_a_typed_error_and_nothing_is_written(world: World) -> None:
    first = await done(world.client("anna").acquire("orders/7"))
    await done(first.release())
    await done(world.client("ben").acquire("orders/7"))
    before = dict(world.table.memory.items)
    with pytest.raises(HolderChanged, match="describe the lock again") as caught:
        await done(
            world.client("olga").force_release(
                "orders/7", fencing_token=first.fencing_token, reason=WHY
            )
        )
    assert (caught.value.lock_name, caught.value.fencing_token) == ("orders/7", first.fencing_token)
    assert world.table.memory.items == before


@of_both_clients
async def test_a_lost_reply_is_repeated_and_answered(world: World) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    replies = iter([True, True, False])

    def lose(name: str, _request: object) -> None:
        world.table.loses_replies = next(replies, False) and name == "update_item"

    world.table.before, began = lose, world.now()
    await done(
        world.client("olga").force_release("orders/7", fencing_token=lock.fencing_token, reason=WHY)
    )
    assert world.table.state("orders/7").holders == ()
    assert world.now() > began, "it was repeated after a pause"


@of_both_clients
async def test_an_owner_id_is_enough_to_release_with_one_request_that_may_be_repeated(
    world: World,
) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    other = world.client("ben")
    world.table.requests.clear()
    assert await done(other.release("orders/7", lock.owner_id)) is True
    assert world.table.requests == ["update_item"]
    assert await done(other.release("orders/7", lock.owner_id)) is True, "a repeat"
    with pytest.raises(LockLost):
        await done(lock.heartbeat())
    assert await done(other.release("orders/7", owner("nobody"))) is False
    carls = await done(world.client("carl").acquire("orders/7"))
    await done(carls.release())
    assert await done(other.release("orders/7", lock.owner_id)) is False, (
        "another has released since"
    )


@of_both_clients
async def test_a_release_by_owner_id_hands_over_to_who_waits(world: World) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    queued = world.store().acquire(acquire("ben", lock_name="orders/7", waits=True))
    assert isinstance(queued, Queued)
    assert await done(world.client("olga").release("orders/7", lock.owner_id)) is True
    assert [holder.owner_name for holder in world.table.state("orders/7").holders] == ["ben"]


@of_both_clients
async def test_a_release_by_owner_id_whose_reply_is_lost_is_repeated_and_answered(
    world: World,
) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    replies = iter([True, True, True, False])
    world.table.before = lambda *_: setattr(world.table, "loses_replies", next(replies, False))
    assert await done(world.client("olga").release("orders/7", lock.owner_id)) is True
    assert world.table.requests.count("update_item") > 2
    assert world.table.state("orders/7").holders == ()


@of_both_clients
async def test_an_outage_is_no_answer(world: World) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    operator = world.client("olga")
    world.table.is_down = True
    calls: list[Callable[[], object]] = [
        lambda: operator.force_release("orders/7", fencing_token=lock.fencing_token, reason=WHY),
        lambda: operator.release("orders/7", lock.owner_id),
        lambda: operator.describe("orders/7"),
        lambda: world.list(operator),
    ]
    for call in calls:
        with pytest.raises(LockStoreUnavailable):
            await done(call())
    world.table.is_down = False
    world.table.outage = refusal("AccessDeniedException")
    with pytest.raises(LockStoreMisconfigured, match="no permission"):
        await world.list(operator)
    world.table.outage = None
    await done(lock.heartbeat())


@of_both_clients
async def test_a_lock_that_someone_has_changed_is_logged_and_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client("anna")
    await done(client.acquire("a"))
    await done(client.acquire("b"))
    world.table.memory.items["LOCK#a", "STATE"]["held"] = {"S": "nonsense"}
    assert [lock.name for lock in await world.list(client)] == ["b"]
    assert "LOCK#a" in caplog.text


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "no name": ("name", {"name": ""}),
    "an owner_id as token": ("fencing_token", {"fencing_token": "0123456789abcdef"}),
    "no holder": ("holder", {"fencing_token": None}),
    "a holder and a token": ("holder", {"holder": HOLDER}),
    "a number as holder": ("holder", {"holder": 7, "fencing_token": None}),
    "an owner_id as holder": ("holder", {"holder": "0123456789abcdef", "fencing_token": None}),
    "a token of no one": ("fencing_token", {"fencing_token": 0}),
    "true as token": ("fencing_token", {"fencing_token": True}),
    "no reason": ("reason", {"reason": ""}),
    "a reason of two lines": ("reason", {"reason": "a\nb"}),
    "a long reason": ("reason", {"reason": "x" * 513}),
    "nobody": ("requested_by", {"requested_by": ""}),
    "a long name": ("requested_by", {"requested_by": "x" * 257}),
}


@pytest.mark.parametrize("case", BAD)
@of_both_clients
async def test_a_bad_argument_is_refused_by_name_and_nothing_is_sent(
    case: str, world: World
) -> None:
    field, changed = BAD[case]
    arguments: dict[str, Any] = {"name": "orders/7", "fencing_token": 7, "reason": WHY, **changed}
    with pytest.raises(InvalidRequest) as caught:
        await done(world.client("olga").force_release(**arguments))
    assert caught.value.field == field
    assert "0123456789abcdef" not in str(caught.value)
    assert world.table.requests == []


@of_both_clients
async def test_a_name_too_long_for_the_mark_is_cut_at_a_letter(world: World) -> None:
    lock = await done(world.client("anna").acquire("orders/7"))
    await done(
        world.client("\N{LATIN SMALL LETTER E WITH ACUTE}" * 400).force_release(
            "orders/7", fencing_token=lock.fencing_token, reason=WHY
        )
    )
    last = world.table.state("orders/7").last_forced_release
    assert last is not None
    assert last.requested_by == "\N{LATIN SMALL LETTER E WITH ACUTE}" * 128


@of_both_clients
async def test_a_client_that_is_closed_does_none_of_it(world: World) -> None:
    client = world.client("anna")
    await done(client.close())
    for call in (
        lambda: client.describe("a"),
        client.list,
        lambda: client.force_release("a", fencing_token=7, reason=WHY),
        lambda: client.adopt("a", "0123456789abcdef"),
        lambda: client.release("a", "0123456789abcdef"),
    ):
        with pytest.raises(ClientUnusable):
            await done(call())


@of_both_clients
async def test_a_paused_lock_says_by_whom_and_why_to_those_who_ask_and_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    operator, client = world.client("olga"), world.client("anna")
    await done(operator.pause("orders/7", reason="freeze until Monday"))
    for max_wait in (0, 0.2):
        with pytest.raises(LockWaitTimeout) as timeout:
            await done(client.acquire("orders/7", max_wait=max_wait))
        assert "paused by olga since" in str(timeout.value)
        assert "(freeze until Monday)" in str(timeout.value)
        assert timeout.value.ceiling is not None
        assert (timeout.value.ceiling.limit, timeout.value.holders) == (0, ())
    assert await done(client.try_acquire("orders/7")) is None
    found = described(await done(client.describe("orders/7")))
    assert found.is_paused
    assert await world.list(client) == [found]
    assert "lock 'orders/7': paused by olga: freeze until Monday" in caplog.messages
    await done(operator.resume("orders/7", requested_by="paul"))
    assert "lock 'orders/7': resumed by paul: resumed" in caplog.messages
    assert (await done(client.acquire("orders/7", max_wait=0))).fencing_token > 0
    assert world.table.state("orders/7").ceiling is None


@of_both_clients
async def test_a_limit_holds_whatever_callers_name_until_it_is_lifted(world: World) -> None:
    client = world.client("anna")
    await done(client.set_limit("vendor", 1, reason=WHY))
    first = await done(client.acquire("vendor", limit=3, max_wait=0))
    assert await done(client.try_acquire("vendor", limit=3)) is None
    await done(client.set_limit("vendor", 2, reason=WHY))
    assert await done(client.try_acquire("vendor", limit=3)) is not None
    await done(client.resume("vendor"))
    assert await done(client.try_acquire("vendor", limit=3)) is not None
    assert await done(first.release()) is True


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"limit": 0}, r"^limit: must be at least 1; to let no one hold the lock, use `pause`"),
        ({"limit": 101}, r"^limit: must be a whole number from 1 to 100"),
        ({"limit": True}, r"^limit: must be a whole number"),
        ({"reason": ""}, r"^reason: must tell why"),
        ({"requested_by": "a\nb"}, r"^requested_by: must tell who"),
        ({"name": ""}, r"^name: "),
    ],
)
@of_both_clients
async def test_a_wrong_limit_is_refused_and_nothing_is_sent(
    world: World, arguments: dict[str, Any], rule: str
) -> None:
    fields: dict[str, Any] = {"name": "vendor", "limit": 3, "reason": WHY, **arguments}
    client = world.client("olga")
    world.table.requests.clear()
    with pytest.raises(InvalidRequest, match=rule):
        await done(client.set_limit(fields.pop("name"), fields.pop("limit"), **fields))
    assert world.table.requests == []


@of_both_clients
async def test_a_list_goes_on_over_all_pages(world: World) -> None:
    world.table.memory.page_size = 1
    anna = world.client("anna")
    locks = [await done(anna.acquire(f"orders/{number}")) for number in range(3)]
    listed = await world.list(world.client("olga"), "orders/")
    assert [lock.name for lock in listed] == [lock.name for lock in locks]


@of_both_clients
async def test_a_queue_is_emptied_and_its_length_told(world: World) -> None:
    await done(world.client("anna").acquire("orders/7"))
    world.store().acquire(acquire("ben", lock_name="orders/7", waits=True))
    operator = world.client("olga")
    assert await done(operator.empty_queue("orders/7")) == 1
    assert world.table.memory.waiters("orders/7") == []
    with pytest.raises(InvalidRequest, match="name"):
        await done(operator.empty_queue(""))
