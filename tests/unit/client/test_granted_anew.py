"""A heartbeat renews by the owner_id, and is answered with the grant: another one is a loss."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock import LockLost
from fairlock.protocol.model import ForceReleaseRequest
from fairlock.protocol.outcomes import Grant
from tests.support import acquire, store_over
from tests.support.operations import Operations
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, Table


@pytest.fixture
def store(table: Table, clock: EventfulClock) -> Operations:
    return store_over(table, clock)


def granted(store: Operations) -> Grant:
    """What a workflow acquired; a redriven one takes its lock again under the same owner_id."""
    answer = store.acquire(acquire("a workflow", lock_name="a"))
    assert isinstance(answer, Grant)
    return answer


def free(store: Operations, grant: Grant) -> None:
    request = ForceReleaseRequest(
        lock_name="a", fencing_token=grant.fencing_token, requested_by="ben", reason="a test"
    )
    assert store.force_release(request) is not None


def test_a_lock_is_lost_if_its_owner_id_was_granted_it_again(
    make_client: MakeClient, table: Table, store: Operations
) -> None:
    first = granted(store)
    lock = make_client().adopt("a", first.owner_id)
    free(store, first)
    second = granted(store)
    with pytest.raises(LockLost, match="another fencing token"):
        lock.heartbeat()
    assert lock.fencing_token == first.fencing_token < second.fencing_token
    assert not lock.release()
    assert table.state("a").holder(first.owner_id) is not None


def test_who_adopts_the_new_grant_holds_it(make_client: MakeClient, store: Operations) -> None:
    """The control: the owner_id is the same."""
    free(store, granted(store))
    second = granted(store)
    lock = make_client().adopt("a", second.owner_id)
    lock.heartbeat()
    assert lock.fencing_token == second.fencing_token
    assert lock.release()


@pytest.mark.parametrize("shown", ["NONE", "ALL_NEW", "UPDATED_OLD"])
def test_the_first_heartbeat_notices_a_server_that_does_not_show_the_token_before(
    make_client: MakeClient, table: Table, store: Operations, shown: str
) -> None:
    """Some that are not DynamoDB do not, and a wrong token was told. UPDATED_OLD is the control."""

    def show(_name: str, request: dict[str, Any]) -> None:
        if request.get("ReturnValues") == "UPDATED_OLD":
            request["ReturnValues"] = shown

    free(store, granted(store))
    table.before = show
    lock = make_client().acquire("a")
    [holder] = table.state("a").holders
    if lock.fencing_token == holder.fencing_token:
        assert shown == "UPDATED_OLD"
        lock.heartbeat()
    else:
        assert shown != "UPDATED_OLD"
        with pytest.raises(LockLost, match="another fencing token"):
            lock.heartbeat()
