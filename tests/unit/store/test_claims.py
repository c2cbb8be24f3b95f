"""Claims: what a workflow pays for being found when it is over, and what others do not pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Reaped, Refusal, RefusalReason, Released
from fairlock.store.context import ClaimNotRemoved
from tests.support import LOCK, FakeClock, acquire, heartbeat, owner, release
from tests.support.faulty_table import FaultyTable, client_error, fault, lost_reply, refusal
from tests.support.store_bench import RUN, Bench, claim_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

DAYS_400 = 400 * 24 * 3600


@pytest.fixture
def bench(dynamodb: DynamoDBClient, clock: FakeClock) -> Bench:
    return Bench(dynamodb, clock)


def test_a_workflow_pays_one_write_before_and_one_after(bench: Bench) -> None:
    client, store = bench.counting()
    store.acquire(acquire("anna", execution_arn=RUN))
    assert client.calls == ["update_item", "update_item"]
    store.heartbeat(heartbeat("anna"))
    assert client.calls[2:] == ["update_item"]
    store.release(release("anna", execution_arn=RUN))
    assert client.calls[3:] == ["update_item", "update_item"]
    assert bench.claims() == []


def test_a_claim_that_is_done_refuses_late_calls_for_an_hour(bench: Bench) -> None:
    """A deleted one could be written again by a late call, for no one."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.store().release(release("anna", execution_arn=RUN))
    (claim,) = bench.claims(done=True)
    assert (claim["ended"], claim["done"]) == ({"BOOL": True}, {"S": "gave back"})
    assert int(claim["expiry_time"]["N"]) == bench.clock.now_ms // 1000 + 3600
    bench.pass_through()
    late = bench.store().acquire(acquire("anna", execution_arn=RUN))
    assert isinstance(late, Refusal)
    assert late.reason is RefusalReason.ALREADY_RELEASED
    assert bench.holders() == []


def test_the_reaper_passes_over_claims_that_are_done(bench: Bench) -> None:
    """The execution runs: its claims would be an error if the reaper saw any."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.store().release(release("anna", execution_arn=RUN))
    client = FaultyTable(bench.client)
    assert bench.reap(client=client) == Reaped()
    assert client.calls == ["query"]


def test_a_direct_caller_pays_nothing(bench: Bench) -> None:
    client, store = bench.counting()
    store.acquire(acquire("anna"))
    store.acquire(acquire("anna"))
    store.acquire(acquire("ben"))
    store.heartbeat(heartbeat("anna"))
    store.release(release("anna"))
    store.release(release("anna"))
    assert client.calls == ["update_item"] * 6
    assert bench.claims() == []


@pytest.mark.parametrize(("execution_arn", "more"), [(None, 0), (RUN, 1)])
def test_each_acquire_of_a_workflow_costs_one_write_more_whatever_the_answer(
    bench: Bench, execution_arn: str | None, more: int
) -> None:
    bench.store().acquire(acquire("holder"))
    place = {"ticket": bench.clock.now_ms, "execution_arn": execution_arn}
    refused, store = bench.counting()
    assert isinstance(store.acquire(acquire("anna", execution_arn=execution_arn)), Refusal)
    assert len(refused.calls) == 1 + more
    queued, store = bench.counting()
    newcomer = acquire("ben", waits=True, execution_arn=execution_arn)
    assert isinstance(store.acquire(newcomer), Queued)
    assert len(queued.calls) == 4 + more
    again, store = bench.counting()
    assert isinstance(store.acquire(acquire("ben", waits=True, **place)), Queued)
    assert len(again.calls) == 3 + more
    cancelled, store = bench.counting()
    store.release(release("ben", **place))
    assert cancelled.calls.count("transact_write_items") == 1
    assert len(cancelled.calls) == 5 + more


def test_the_claim_is_there_before_the_lock_is_asked_for(bench: Bench) -> None:
    """The handler dies after its first write: what it was about to ask is on record."""
    broken = FaultyTable(bench.client, fault(lost_reply(), 2))
    with pytest.raises(LockStoreUnavailable):
        bench.store(broken).acquire(acquire("anna", execution_arn=RUN, waits=True))
    (claim,) = bench.claims()
    assert claim == {
        **claim_key("anna"),
        "lock_name": {"S": LOCK},
        "owner_id": {"S": owner("anna")},
        "entered_at_ms": {"N": str(bench.clock.now_ms)},
        "written_at_ms": {"N": str(bench.clock.now_ms)},
        "revision": {"N": "1"},
        "expiry_time": {"N": str(bench.clock.now_ms // 1000 + DAYS_400)},
    }
    assert bench.holders() == []


def test_a_repeated_acquire_keeps_claim_and_grant(bench: Bench) -> None:
    request = acquire("anna", execution_arn=RUN, waits=True)
    first = bench.store().acquire(request)
    (claim,) = bench.claims()
    bench.clock.advance(1)
    again = bench.store().acquire(request)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert (again.fencing_token, again.repeated) == (first.fencing_token, True)
    (left,) = bench.claims()
    assert left["entered_at_ms"] == claim["entered_at_ms"]


def test_a_polling_workflow_without_a_ticket_gets_its_place_from_its_claim(bench: Bench) -> None:
    bench.store().acquire(acquire("holder"))
    polling = acquire("anna", execution_arn=RUN, waits=True)
    first = bench.store().acquire(polling)
    bench.clock.advance(1)
    again = bench.store().acquire(polling)
    assert isinstance(first, Queued)
    assert isinstance(again, Queued)
    assert again.entered_at_ms == first.entered_at_ms
    assert bench.waiters() == ["anna"]


def test_a_claim_is_found_by_the_holder_if_the_release_does_not_name_the_execution(
    bench: Bench,
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    assert isinstance(bench.store().release(release("anna")), Released)
    assert bench.claims() == []


def test_a_client_that_may_not_write_claims_releases_the_lock_of_a_workflow_all_the_same(
    bench: Bench,
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    denied = FaultyTable(bench.client, fault(refusal("AccessDeniedException"), 2))
    assert isinstance(bench.store(denied).release(release("anna")), Released)
    assert bench.events == [ClaimNotRemoved(lock_name=LOCK, execution_arn=RUN)]
    assert bench.holders() == []


def test_a_failing_removal_of_the_claim_does_not_fail_the_release(bench: Bench) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    throttled = FaultyTable(bench.client, fault(client_error("InternalServerError", 500), 2))
    answer = bench.store(throttled).release(release("anna", execution_arn=RUN))
    assert isinstance(answer, Released)
    assert bench.events == [ClaimNotRemoved(lock_name=LOCK, execution_arn=RUN)]
    assert bench.holders() == []
    assert isinstance(bench.store().release(release("anna", execution_arn=RUN)), Released)
    assert bench.claims() == []


def test_a_release_that_was_not_held_takes_its_claim_off_too(bench: Bench) -> None:
    bench.store().acquire(acquire("holder"))
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    answer = bench.store().release(release("anna", execution_arn=RUN))
    assert isinstance(answer, NotHeld)
    assert bench.claims() == []


def test_a_cancelled_waiter_leaves_a_claim_that_says_so(bench: Bench) -> None:
    bench.wait("holder", execution_arn=None)
    bench.wait("anna")
    bench.store().release(release("anna", waits=True, execution_arn=RUN))
    (claim,) = bench.claims()
    assert (claim["ended"], bench.waiters()) == ({"BOOL": True}, [])
    assert int(claim["expiry_time"]["N"]) == bench.clock.now_ms // 1000 + 48 * 3600


def test_an_acquire_after_the_execution_was_reaped_is_told_that_it_is_over(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    bench.reap()
    answer = bench.store().acquire(acquire("anna", execution_arn=RUN))
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.holders) == (RefusalReason.ALREADY_RELEASED, ())
    assert bench.holders() == []


def test_an_acquire_after_kept_alive_work_has_ended_is_told_that_it_is_over(bench: Bench) -> None:
    bench.wait("anna")
    bench.store().release(release("anna", execution_arn=RUN, keep_alive=True))
    bench.wait("ben")
    bench.store().release(release("ben"))
    answer = bench.store().acquire(acquire("anna", execution_arn=RUN))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.ALREADY_RELEASED


def test_a_claim_of_kept_alive_work_is_kept_two_days_after_its_end(bench: Bench) -> None:
    bench.wait("anna")
    bench.store().release(release("anna", execution_arn=RUN, keep_alive=True))
    (claim,) = bench.claims(done=True)
    assert claim["ended"] == {"BOOL": True}
    assert int(claim["expiry_time"]["N"]) == bench.clock.now_ms // 1000 + 48 * 3600
