"""Writes and release in one transaction: all of it or nothing, and no waiter is forgotten."""

from __future__ import annotations

import functools

import pytest

from fairlock import LockLost, LockStoreUnavailable
from fairlock.protocol.schema import lock_key
from tests.support import LOCK, TABLE, owner
from tests.support.faulty_table import (
    TRANSACTIONS,
    FaultyTable,
    client_error,
    fault,
    lost_reply,
    meanwhile,
)
from tests.unit.guarded.conftest import Bench, deposit

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
HOUR_MS = 3_600_000


def test_a_repeat_that_comes_before_the_first_call_is_sent_is_the_same_write(bench: Bench) -> None:
    """The first call waits for a heartbeat of its lock; the repeat is sent after it."""
    writes = bench.writes(bench.grant("anna"))
    for call in [writes.call([deposit("x")], token="t", release=True) for _ in range(2)]:
        writes.send(call)
    assert (bench.balance("x"), bench.holders()) == (1, [])


def test_the_oldest_waiter_becomes_the_holder_in_the_same_transaction(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.waits("ben")
    bench.waits("carl")
    counting = FaultyTable(bench.client)
    bench.writes(grant, counting).transact_write([deposit("x")], release=True)
    assert counting.calls == ["transact_write_items", "query", "transact_write_items"]
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["ben"], ["carl"])
    assert bench.pushed == ["ben"]
    assert bench.state.holders[0].fencing_token == grant.fencing_token + 1


def test_a_queue_that_emptied_meanwhile_is_closed_in_the_same_transaction(bench: Bench) -> None:
    grant = bench.grant("anna", lease_ms=12 * HOUR_MS)
    bench.waits("ben", task_token=None)
    bench.clock.advance(HOUR_MS / 1000)  # ben has stopped asking
    bench.writes(grant).transact_write([deposit("x")], release=True)
    state = bench.state
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, [], [])
    assert (state.contended, state.last_released) == (False, owner("anna"))


def test_a_waiter_with_a_lowered_limit_is_not_let_in_too_early(bench: Bench) -> None:
    grants = [bench.grant(name, limit=3) for name in ("anna", "ben", "carl")]
    bench.waits("dora", limit=1)
    bench.writes(grants[0]).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben", "carl"])
    bench.writes(grants[1]).transact_write([deposit("x")], release=True)
    bench.writes(grants[2]).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (3, ["dora"])


def test_who_joins_just_before_the_transaction_is_handed_the_lock(bench: Bench) -> None:
    grant = bench.grant("anna")
    joins = meanwhile(1, lambda: bench.waits("ben"), of=TRANSACTIONS)
    bench.writes(grant, joins).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["ben"], [])


def test_who_joins_while_the_queue_is_being_closed_is_handed_the_lock(bench: Bench) -> None:
    grant = bench.grant("anna", lease_ms=12 * HOUR_MS)
    bench.waits("ben", task_token=None)
    bench.clock.advance(HOUR_MS / 1000)  # ben is gone: the second transaction closes the queue
    joins = meanwhile(2, lambda: bench.waits("carl"), of=TRANSACTIONS)
    bench.writes(grant, joins).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["carl"], [])


def test_a_waiter_that_gives_up_in_between_is_passed_over(bench: Bench) -> None:
    grant = bench.grant("anna")
    entered_ms = bench.clock.wall_ms()
    bench.waits("ben")
    bench.waits("carl")
    key = {"pk": lock_key(LOCK)["pk"], "sk": {"S": f"WAITER#{entered_ms:015d}#{owner('ben')}"}}
    give_up = functools.partial(bench.client.delete_item, TableName=TABLE, Key=key)
    joins = meanwhile(2, give_up, of=TRANSACTIONS)
    bench.writes(grant, joins).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["carl"], [])


@pytest.mark.parametrize("transaction", [1, 2])
def test_who_loses_the_lock_while_it_releases_has_written_nothing(
    bench: Bench, transaction: int
) -> None:
    grant = bench.grant("anna", lease_ms=1_000)
    if transaction == 2:  # the second one hands over
        bench.waits("ben", lease_ms=60_000)
    bench.clock.advance(10)
    take = meanwhile(transaction, lambda: bench.ask("late", waits=True), of=TRANSACTIONS)
    with pytest.raises(LockLost):
        bench.writes(grant, take).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (None, ["late" if transaction == 1 else "ben"])


def test_a_waiter_whose_workflow_is_over_is_passed_over_right_after_the_commit(
    bench: Bench,
) -> None:
    grant = bench.grant("anna")
    bench.waits("ben", execution_arn=EXECUTION)
    bench.gone("ben")
    bench.end(EXECUTION)
    bench.writes(grant).transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, [], [])
    assert bench.state.contended is False


def test_an_outage_right_after_the_commit_is_no_error_of_the_commit(bench: Bench) -> None:
    grant = bench.grant("anna")
    for name in ("ben", "carl"):
        bench.waits(name, limit=2)
    outage = FaultyTable(bench.client, fault(client_error("InternalServerError", 500), 3))
    bench.writes(grant, outage).transact_write([deposit("x")], release=True)
    assert outage.writes == 3  # the third was to hand carl the second permit
    assert (bench.balance("x"), bench.holders(), bench.waiters()) == (1, ["ben"], ["carl"])
    answered = bench.grant("carl", waits=True, limit=2)  # it asks again by itself
    assert answered.fencing_token == grant.fencing_token + 2


def test_an_outage_after_a_commit_that_was_found_late_is_none_of_the_commit_either(
    bench: Bench,
) -> None:
    """What never arrived is refused at first when it is sent again, until ben has left the queue.

    Then the release, which does not know of that yet, meets the outage.
    """
    faulty = FaultyTable(bench.client, fault(lost_reply(), 1))
    writes = bench.writes(bench.grant("anna"), faulty)
    with pytest.raises(LockStoreUnavailable):
        writes.transact_write([deposit("x")], token="one", release=True)
    ticket = bench.queue("ben").entered_at_ms
    leaves = meanwhile(2, lambda: bench.release("ben", ticket=ticket), of=TRANSACTIONS)
    faulty.will(leaves, fault(client_error("InternalServerError", 500), of=("update_item",)))
    writes.transact_write([deposit("x")], token="one", release=True)
    assert faulty.calls[-1] == "update_item"
    assert (bench.balance("x"), bench.holders()) == (1, [])
