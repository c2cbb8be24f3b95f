"""adopt: a lock that another caller has acquired is renewed, released and lost like one's own."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock import LockLost
from fairlock.protocol.model import ForceReleaseRequest, Grant, ReleaseRequest
from tests.contracts.client.drivers import Told, World, done, inside
from tests.support import acquire, owner
from tests.support.faulty_table import meanwhile, show
from tests.support.store_bench import RUN


def granted(world: World) -> Grant:
    """What a function granted to a workflow, or to a direct caller."""
    request = acquire("a workflow", lock_name="a", data='{"job":7}', execution_arn=RUN, limit=2)
    answer = world.store().acquire(request)
    assert isinstance(answer, Grant)
    return answer


async def test_an_adopted_lock_is_the_one_that_was_granted(world: World) -> None:
    grant = granted(world)
    await world.sleep(20)
    world.table.requests.clear()
    lock = await done(world.another().adopt("a", grant.owner_id))
    assert world.table.requests == ["get_item", "update_item"]
    assert (lock.name, lock.owner_id, lock.owner_name) == ("a", grant.owner_id, "a workflow")
    assert (lock.fencing_token, lock.data) == (grant.fencing_token, {"job": 7})
    assert lock.lease == 60
    assert lock.remaining == pytest.approx(60 * 0.98)
    lock.check()


async def test_a_lock_whose_data_another_program_has_spoilt_can_be_adopted(world: World) -> None:
    request = acquire("a workflow", lock_name="spoilt", data="{no JSON")
    assert isinstance(world.store().acquire(request), Grant)
    client = world.another()
    assert (await done(client.adopt("spoilt", request.owner_id))).data is None
    found = await done(client.describe("spoilt"))
    assert found is not None
    assert [holder.data for holder in found.holders] == ["{no JSON"]


async def test_an_adopted_lock_is_renewed_in_the_background(world: World) -> None:
    """The control is the same lock that no one adopts: its lease ends."""
    grant = granted(world)
    lock = await done(world.another().adopt("a", grant.owner_id, lease=30))
    await world.sleep(100)
    lock.check()
    [holder] = world.table.state("a").holders
    assert holder.expires_at_ms > world.clock.wall_ms()
    assert holder.lease_ms == 30_000
    await done(lock.release())
    assert world.clock.wall_ms() > grant.expires_at_ms


async def test_the_release_of_an_adopted_lock_hands_over_and_ends_its_claim(world: World) -> None:
    grant = granted(world)
    store = world.store()
    store.acquire(acquire("anna", lock_name="a", limit=2))
    store.acquire(acquire("ben", lock_name="a", limit=2, waits=True))
    async with inside(await done(world.another().adopt("a", grant.owner_id))) as lock:
        assert [key[0] for key in world.table.memory.items if key[0].startswith("EXECUTION")]
    assert [holder.owner_name for holder in world.table.state("a").holders] == ["anna", "ben"]
    assert not [key for key in world.table.memory.items if key[0].startswith("EXECUTION")]
    with pytest.raises(LockLost, match="released"):
        lock.check()


@pytest.mark.parametrize("before", ["no one ever held", "released", "between"])
async def test_what_is_not_held_is_refused_without_a_write(world: World, before: str) -> None:
    store = world.store()
    release = ReleaseRequest(lock_name="a", owner_id=owner("anna"))
    if before != "no one ever held":
        store.acquire(acquire("anna", lock_name="a"))
    if before == "released":
        store.release(release)

    if before == "between":
        world.table.will(meanwhile(1, lambda: store.release(release), of=("update_item",)))
    with pytest.raises(LockLost, match="not held by this owner_id") as caught:
        await done(world.another().adopt("a", owner("anna")))
    assert owner("anna") not in str(caught.value)
    assert world.table.state("a").holders == ()


# A heartbeat renews by the owner_id, and is answered with the grant: another one is a loss.


def free(world: World, grant: Grant) -> None:
    request = ForceReleaseRequest(
        lock_name="a", fencing_token=grant.fencing_token, requested_by="ben", reason="a test"
    )
    assert world.store().force_release(request) is not None


async def test_a_lock_is_lost_if_its_owner_id_was_granted_it_again(world: World) -> None:
    """As by a redriven workflow; a client that adopts the new grant holds it."""
    first, told = granted(world), Told(world)
    lock = await done(world.another().adopt("a", first.owner_id, **told.callbacks()))
    free(world, first)
    second = granted(world)
    with pytest.raises(LockLost, match="another fencing token"):
        await done(lock.heartbeat())
    assert lock.fencing_token == first.fencing_token < second.fencing_token
    assert not await done(lock.release())
    again = await done(world.another().adopt("a", second.owner_id))
    await done(again.heartbeat())
    assert again.fencing_token == second.fencing_token
    assert await done(again.release())
    await done(world.clients[0].close())
    assert told.reasons == ["its owner_id has a grant with another fencing token"]


async def test_a_release_does_not_end_a_later_grant_of_the_same_owner_id(world: World) -> None:
    first = granted(world)
    lock = await done(world.another().adopt("a", first.owner_id))
    free(world, first)
    second = granted(world)
    assert await done(lock.release()) is False
    [holder] = world.table.state("a").holders
    assert holder.fencing_token == second.fencing_token


@pytest.mark.parametrize("shown", ["NONE", "ALL_NEW", "UPDATED_OLD"])
async def test_the_first_heartbeat_notices_a_server_that_does_not_show_the_token_before(
    world: World, shown: str
) -> None:
    """Some that are not DynamoDB do not, and a wrong token was told. UPDATED_OLD is the control."""

    def answer_with(_name: str, request: dict[str, Any]) -> None:
        if request.get("ReturnValues") == "UPDATED_OLD":
            request["ReturnValues"] = shown

    free(world, granted(world))
    world.table.will(show(answer_with))
    lock = await done(world.another().acquire("a"))
    [holder] = world.table.state("a").holders
    assert (lock.fencing_token == holder.fencing_token) is (shown == "UPDATED_OLD")
    if shown == "UPDATED_OLD":
        await done(lock.heartbeat())
    else:
        with pytest.raises(LockLost, match="another fencing token"):
            await done(lock.heartbeat())
