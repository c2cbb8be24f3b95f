"""Claims: by what a workflow is found when it is over, and late calls of it are refused."""

from __future__ import annotations

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import NotHeld, Reaped, RefusalReason, Released
from fairlock.store.context import ClaimNotRemoved
from fairlock.testing import ManualClock
from tests.support import LOCK, TABLE, owner, release
from tests.support.faulty_table import FaultyTable, client_error, fault, lost_reply, refusal
from tests.support.store_bench import RUN, Bench, claim_key

DAYS_400 = 400 * 24 * 3600


@pytest.fixture
def bench(dynamodb: object, clock: ManualClock) -> Bench:
    return Bench(dynamodb, clock)


def test_a_claim_that_is_done_refuses_late_calls_for_an_hour(bench: Bench) -> None:
    """A deleted one could be written again by a late call, for no one."""
    bench.ask("anna", execution_arn=RUN)
    bench.release("anna", execution_arn=RUN)
    (claim,) = bench.claims(done=True)
    assert (claim["ended"], claim["done"]) == ({"BOOL": True}, {"S": "gave back"})
    assert int(claim["expiry_time"]["N"]) == bench.clock.wall_ms() // 1000 + 3600
    bench.pass_through()
    assert bench.refuse("anna", execution_arn=RUN).reason is RefusalReason.ALREADY_RELEASED
    assert bench.holders() == []


def test_the_reaper_passes_over_claims_that_are_done(bench: Bench) -> None:
    """The execution runs: its claims would be an error if the reaper saw any."""
    bench.ask("anna", execution_arn=RUN)
    bench.release("anna", execution_arn=RUN)
    client = FaultyTable(bench.client)
    assert bench.reap(client=client) == Reaped()
    assert client.calls == ["query"]


def test_the_claim_is_there_before_the_lock_is_asked_for(bench: Bench) -> None:
    """The handler dies after its first write: what it was about to ask is on record."""
    broken = fault(lost_reply(), 2)
    with pytest.raises(LockStoreUnavailable):
        bench.ask("anna", execution_arn=RUN, waits=True, over=broken)
    (claim,) = bench.claims()
    assert claim == {
        **claim_key("anna"),
        "lock_name": {"S": LOCK},
        "owner_id": {"S": owner("anna")},
        "entered_at_ms": {"N": str(bench.clock.wall_ms())},
        "written_at_ms": {"N": str(bench.clock.wall_ms())},
        "revision": {"N": "1"},
        "expiry_time": {"N": str(bench.clock.wall_ms() // 1000 + DAYS_400)},
    }
    assert bench.holders() == []


def test_a_claim_that_a_person_has_edited_does_not_keep_the_lock_taken(bench: Bench) -> None:
    bench.ask("anna", execution_arn=RUN)
    edited = bench.claims()[0] | {"written_at_ms": {"S": "by hand"}}
    bench.client.put_item(TableName=TABLE, Item=edited)
    assert isinstance(bench.release("anna", execution_arn=RUN, keep_alive=True), Released)
    assert bench.holders() == []


def test_a_claim_is_found_by_the_holder_if_the_release_does_not_name_the_execution(
    bench: Bench,
) -> None:
    bench.ask("anna", execution_arn=RUN)
    assert isinstance(bench.release("anna"), Released)
    assert bench.claims() == []


@pytest.mark.parametrize(
    "error",
    [refusal("AccessDeniedException"), client_error("InternalServerError", 500)],
    ids=["a client that may not write claims", "an outage"],
)
def test_a_failing_removal_of_the_claim_does_not_fail_the_release(
    bench: Bench, error: Exception
) -> None:
    bench.ask("anna", execution_arn=RUN)
    leaving = release("anna", execution_arn=RUN)
    assert isinstance(bench.store(fault(error, 2)).release(leaving), Released)
    assert bench.events == [ClaimNotRemoved(lock_name=LOCK, execution_arn=RUN)]
    assert bench.holders() == []
    assert isinstance(bench.store().release(leaving), Released)
    assert bench.claims() == []


def test_a_release_that_was_not_held_takes_its_claim_off_too(bench: Bench) -> None:
    bench.ask("holder")
    bench.ask("anna", execution_arn=RUN)
    assert isinstance(bench.release("anna", execution_arn=RUN), NotHeld)
    assert bench.claims() == []


@pytest.mark.parametrize("waits", [True, False], ids=["given up", "kept-alive work"])
def test_a_claim_of_which_late_calls_may_come_says_that_it_is_over_for_two_days(
    bench: Bench, *, waits: bool
) -> None:
    if waits:
        bench.ask("holder")
    bench.wait("anna")
    bench.release("anna", execution_arn=RUN, waits=waits, keep_alive=not waits)
    (claim,) = bench.claims(done=True)
    assert (claim["ended"], bench.waiters()) == ({"BOOL": True}, [])
    assert int(claim["expiry_time"]["N"]) == bench.clock.wall_ms() // 1000 + 48 * 3600
