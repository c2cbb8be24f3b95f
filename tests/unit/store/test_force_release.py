"""Release by force: the grant that was seen, or nothing; the next waiter gets the lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.protocol.outcomes import NotHeld, RefusalReason, Released
from fairlock.store.context import HandedOver, ReleasedByForce
from tests.support import LOCK, FakeClock, owner
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import RUN, Bench, by_force


def test_a_stuck_holder_is_taken_out_with_two_requests_and_logged_with_who_and_why(
    fresh_dynamodb: object, clock: FakeClock
) -> None:
    """On moto, so that the expressions are judged by other code."""
    bench = Bench(fresh_dynamodb, clock)
    grant = bench.grant("anna")
    clock.advance(7)
    client, store = bench.counting()
    assert isinstance(store.force_release(by_force(grant)), Released)
    assert client.calls == ["get_item", "update_item"]
    assert bench.events == [
        ReleasedByForce(
            lock_name=LOCK,
            fencing_token=grant.fencing_token,
            owner_name="anna",
            execution_arn=None,
            held_ms=7_000,
            requested_by="olga",
            reason="a test",
        )
    ]
    assert (bench.state.held, bench.state.holders) == (0, ())
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert lock.last_forced_release is not None
    assert lock.last_forced_release.reason == "a test"
    assert bench.grant("ben").fencing_token == grant.fencing_token + 1


def test_the_mark_of_the_owner_who_released_last_stays(bench: Bench) -> None:
    """So a late copy of that owner's acquire is refused, as before."""
    bench.ask("anna")
    bench.release("anna")
    grant = bench.grant("ben")
    bench.force(grant)
    assert bench.refuse("anna").reason is RefusalReason.ALREADY_RELEASED


def test_the_oldest_waiter_gets_the_lock_in_the_same_transaction(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.wait("ben")
    bench.wait("carl")
    client, store = bench.counting()
    assert isinstance(store.force_release(by_force(grant)), Released)
    assert client.calls == ["get_item", "query", "transact_write_items"]
    assert (bench.holders(), bench.pushed, bench.waiters()) == (["ben"], ["ben"], ["carl"])
    assert [type(event) for event in bench.events] == [HandedOver, ReleasedByForce]
    [ben] = bench.state.holders
    assert ben.fencing_token == grant.fencing_token + 1


def pass_on(bench: Bench) -> None:
    """The holder that was seen leaves, and another comes."""
    bench.release("anna")
    bench.ask("dora")


def grant_anew(bench: Bench) -> None:
    """The same acquisition is evicted and granted again: another grant, under the same owner_id."""
    bench.clock.advance(63)
    assert bench.grant("dora").taken_over == 1
    bench.release("dora")
    bench.ask("anna")


@pytest.mark.parametrize("changes", [pass_on, grant_anew], ids=lambda change: change.__name__)
@pytest.mark.parametrize("number", [0, 1])
def test_a_holder_that_changed_meanwhile_stays_and_nothing_is_written(
    bench: Bench, changes: Callable[[Bench], None], number: int
) -> None:
    """Before the read, and between the read and the write."""
    grant = bench.grant("anna")
    after: list[dict[Any, Any]] = []

    def change() -> None:
        changes(bench)
        after.append(dict(bench.client.items))

    between = meanwhile(number + 1, change)
    assert bench.store(between).force_release(by_force(grant)) is None
    assert [dict(bench.client.items)] == after
    assert len(bench.holders()) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_waiter_that_joins_meanwhile_gets_the_lock(bench: Bench, number: int) -> None:
    grant = bench.grant("anna")
    if number == 2:
        bench.wait("first", waiter_timeout_ms=1)
    between = meanwhile(number + 1, lambda: bench.wait("ben"))
    assert isinstance(bench.store(between).force_release(by_force(grant)), Released)
    assert len(bench.holders()) == 1
    assert bench.holders()[0] in {"first", "ben"}


def test_a_heartbeat_in_between_does_not_prevent_it(bench: Bench) -> None:
    """It is there to free a holder that lives."""
    grant = bench.grant("anna")
    between = FaultyTable(bench.client, meanwhile(2, lambda: bench.renew("anna")))
    assert isinstance(bench.store(between).force_release(by_force(grant)), Released)
    assert bench.holders() == []


@pytest.mark.parametrize("kept_alive", [False, True])
def test_a_workflows_release_after_it_is_refused_and_ends_its_claim(
    bench: Bench, *, kept_alive: bool
) -> None:
    grant = bench.grant("anna", execution_arn=RUN)
    if kept_alive:
        bench.beat("anna")
    bench.wait("ben")
    bench.force(grant)
    assert len(bench.claims()) == 2
    late = bench.release("anna", execution_arn=RUN, keep_alive=kept_alive)
    assert isinstance(late, NotHeld)
    assert bench.holders() == ["ben"]
    assert [claim["owner_id"]["S"] for claim in bench.claims()] == [owner("ben")]
    annas = [each for each in bench.claims(done=True) if owner("anna") in each["sk"]["S"]]
    assert len(annas) >= int(kept_alive), "a claim that is done stays, for late heartbeats"


def test_the_reaper_finds_nothing_to_free_after_it_and_takes_no_other_lock(bench: Bench) -> None:
    """Of the holders of a semaphore, one was taken out."""
    grants = [bench.grant(n, limit=3, execution_arn=RUN) for n in ("anna", "ben")]
    bench.grant("carl", limit=3)
    bench.force(grants[1])
    assert (bench.holders(), bench.state.held) == (["anna", "carl"], 2)
    bench.end()
    assert bench.reap().holders == 1
    assert bench.holders() == ["carl"]
