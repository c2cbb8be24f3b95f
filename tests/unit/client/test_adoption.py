"""adopt: a lock that another caller has acquired is renewed, released and lost like one's own."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fairlock import InvalidRequest, LockLost, LockStoreUnavailable
from fairlock.protocol.model import ReleaseRequest
from fairlock.protocol.outcomes import Grant
from tests.support import acquire, owner, store_over
from tests.support.faults import lost_reply
from tests.support.store_bench import RUN
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, Table
from tests.unit.client.support.simulated_heartbeats import Beating


@pytest.fixture
def grant(table: Table, clock: EventfulClock) -> Grant:
    """What a function granted to a workflow, or to a direct caller."""
    answer = store_over(table, clock).acquire(
        acquire("a workflow", lock_name="a", data='{"job":7}', execution_arn=RUN, limit=2)
    )
    assert isinstance(answer, Grant)
    return answer


def test_an_adopted_lock_is_the_one_that_was_granted(
    make_client: MakeClient, table: Table, clock: EventfulClock, grant: Grant
) -> None:
    clock.advance(20)
    table.log.clear()
    lock = make_client().adopt("a", grant.owner_id)
    assert table.log == ["get_item", "update_item"]
    assert (lock.name, lock.owner_id, lock.owner_name) == ("a", grant.owner_id, "a workflow")
    assert (lock.fencing_token, lock.data) == (grant.fencing_token, {"job": 7})
    assert lock.lease == 60
    assert lock.remaining == pytest.approx(60 * 0.98)
    lock.check()


def test_a_lock_whose_data_another_program_has_spoilt_can_be_adopted(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    request = acquire("a workflow", lock_name="spoilt", data="{no JSON")
    assert isinstance(store_over(table, clock).acquire(request), Grant)
    client = make_client()
    assert client.adopt("spoilt", request.owner_id).data is None
    found = client.describe("spoilt")
    assert found is not None
    assert [holder.data for holder in found.holders] == ["{no JSON"]


def test_an_adopted_lock_is_renewed_in_the_background(
    beating: Beating, table: Table, clock: EventfulClock, grant: Grant
) -> None:
    """The control is the same lock that no one adopts: its lease ends."""
    lock = beating.locks.adopt("a", grant.owner_id, lease=30)
    beating.pass_time(100)
    lock.check()
    [holder] = table.state("a").holders
    assert holder.expires_at_ms > clock.now_ms
    assert holder.lease_ms == 30_000
    lock.release()
    assert clock.now_ms > grant.expires_at_ms


def test_the_release_of_an_adopted_lock_hands_over_and_ends_its_claim(
    make_client: MakeClient, table: Table, clock: EventfulClock, grant: Grant
) -> None:
    store = store_over(table, clock)
    store.acquire(acquire("anna", lock_name="a", limit=2))
    store.acquire(acquire("ben", lock_name="a", limit=2, waits=True))
    with make_client().adopt("a", grant.owner_id) as lock:
        assert [key[0] for key in table.memory.items if key[0].startswith("EXECUTION")]
    assert [holder.owner_name for holder in table.state("a").holders] == ["anna", "ben"]
    assert not [key for key in table.memory.items if key[0].startswith("EXECUTION")]
    with pytest.raises(LockLost, match="released"):
        lock.check()


def test_a_loss_is_told_to_the_one_who_adopted(
    make_client: MakeClient, table: Table, clock: EventfulClock, grant: Grant
) -> None:
    told: list[str] = []
    client = make_client()
    lock = client.adopt("a", grant.owner_id, on_lost=lambda _lock, reason: told.append(reason))
    store_over(table, clock).release(ReleaseRequest(lock_name="a", owner_id=grant.owner_id))
    with pytest.raises(LockLost):
        lock.heartbeat()
    client.close()
    assert told == ["another owner has it, or it was freed by force"]


@pytest.mark.parametrize("before", ["no one ever held", "released", "between"])
def test_what_is_not_held_is_refused_and_nothing_is_written(
    make_client: MakeClient, table: Table, clock: EventfulClock, before: str
) -> None:
    store = store_over(table, clock)
    release = ReleaseRequest(lock_name="a", owner_id=owner("anna"))
    if before != "no one ever held":
        store.acquire(acquire("anna", lock_name="a"))
    if before == "released":
        store.release(release)

    def release_now(name: str, _arguments: object) -> None:
        if name == "update_item":
            table.before = None
            store.release(release)

    if before == "between":
        table.before = release_now
    with pytest.raises(LockLost, match="not held by this owner_id") as caught:
        make_client().adopt("a", owner("anna"))
    assert owner("anna") not in str(caught.value)
    assert table.state("a").holders == ()


def test_the_owner_id_of_another_acquisition_adopts_nothing(
    make_client: MakeClient, table: Table, grant: Grant
) -> None:
    before = dict(table.memory.items)
    with pytest.raises(LockLost):
        make_client().adopt("a", owner("somebody"))
    assert table.memory.items == before
    assert grant.fencing_token


def test_a_lease_too_short_for_the_clients_heartbeats_is_refused_before_a_write(
    make_client: MakeClient, table: Table, grant: Grant
) -> None:
    client = make_client(lease=900, heartbeat_every=200)
    before = dict(table.memory.items)
    with pytest.raises(InvalidRequest, match="heartbeat_every"):
        client.adopt("a", grant.owner_id)
    with pytest.raises(InvalidRequest, match="heartbeat_every"):
        client.adopt("a", grant.owner_id, lease=100)
    assert table.memory.items == before
    assert client.adopt("a", grant.owner_id, lease=900).lease == 900


def test_an_outage_is_no_refusal(make_client: MakeClient, table: Table, grant: Grant) -> None:
    client = make_client()
    table.outage = lost_reply()
    with pytest.raises(LockStoreUnavailable):
        client.adopt("a", grant.owner_id)
    table.outage = None
    assert client.adopt("a", grant.owner_id).fencing_token == grant.fencing_token


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("name", {"name": " a"}),
        ("owner_id", {"owner_id": "short"}),
        ("lease", {"lease": 0}),
        ("on_lost", {"on_lost": 7}),
        ("on_danger", {"on_danger": 7}),
    ],
)
def test_a_bad_argument_is_refused_by_name_and_nothing_is_sent(
    make_client: MakeClient, table: Table, field: str, arguments: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"name": "a", "owner_id": owner("anna"), **arguments}
    with pytest.raises(InvalidRequest) as caught:
        make_client(heartbeat_every=math.inf).adopt(**given)
    assert caught.value.field == field
    assert table.log == []
