"""Acquire, on a table where no one else moves between two requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.errors import LockItemMalformed
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import RefusalReason, Released
from fairlock.protocol.schema import lock_key
from tests.support import LOCK, START_MS, TABLE, FakeClock, acquire, owner
from tests.support.faulty_table import Fault
from tests.support.store_bench import RUN, Bench


@pytest.fixture
def bench(dynamodb: object, clock: FakeClock) -> Bench:
    return Bench(dynamodb, clock)


def test_the_first_use_of_a_lock_grants_it(bench: Bench) -> None:
    assert bench.ask("anna", lease_ms=5_000) == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=START_MS * 1000 + 1,
        lease_ms=5_000,
        acquired_at_ms=START_MS,
        expires_at_ms=START_MS + 6_500,
    )


def test_a_held_lock_is_refused_and_the_holder_is_named(bench: Bench) -> None:
    bench.ask("anna")
    answer = bench.refuse("ben")
    assert answer.reason is RefusalReason.HELD
    assert [h.owner_name for h in answer.holders] == ["anna"]
    assert answer.retry_after_seconds == 1


def test_a_repeated_acquire_returns_the_same_grant(bench: Bench) -> None:
    first = bench.grant("anna")
    bench.clock.advance(1)
    again = bench.grant("anna")
    assert again.repeated
    assert (again.fencing_token, again.expires_at_ms) == (first.fencing_token, first.expires_at_ms)


def test_a_repeated_acquire_after_the_lease_renews_it_under_the_same_token(bench: Bench) -> None:
    first = bench.grant("anna", lease_ms=5_000)
    bench.clock.advance(60)
    again = bench.grant("anna", lease_ms=5_000)
    assert again.fencing_token == first.fencing_token
    assert again.expires_at_ms == bench.clock.now_ms + 6_500


def test_a_delayed_duplicate_does_not_take_the_lock_again(bench: Bench) -> None:
    bench.ask("anna")
    bench.release("anna")
    assert bench.refuse("anna").reason is RefusalReason.ALREADY_RELEASED
    bench.grant("ben")


def test_a_lease_is_over_for_others_only_after_the_clock_tolerance(bench: Bench) -> None:
    """Whatever lease they ask for themselves."""
    first = bench.grant("anna", lease_ms=5_000)
    bench.clock.advance(6.999)
    assert bench.refuse("ben", lease_ms=1_000).reason is RefusalReason.HELD
    bench.clock.advance(0.002)
    ben = bench.grant("ben", lease_ms=1_000)
    assert (ben.fencing_token, ben.taken_over) == (first.fencing_token + 1, 1)


def test_a_holder_that_was_taken_over_is_told_so_by_heartbeat_and_release(bench: Bench) -> None:
    bench.ask("anna", lease_ms=1_000)
    bench.clock.advance(10)
    ben = bench.grant("ben")
    assert not hasattr(bench.renew("anna"), "fencing_token")
    assert not isinstance(bench.release("anna"), Released)
    assert bench.grant("ben").fencing_token == ben.fencing_token


def test_a_semaphore_grants_exactly_its_limit(bench: Bench) -> None:
    names = ["anna", "ben", "carl"]
    for name in names:
        bench.grant(name, limit=3)
    assert [h.owner_name for h in bench.refuse("dora", limit=3).holders] == names


def test_lowering_the_limit_grants_nothing_until_fewer_are_held(bench: Bench) -> None:
    for i in range(5):
        bench.grant(f"owner-{i}", limit=5)
    for i in range(3):
        bench.refuse("late", limit=3)
        bench.release(f"owner-{i}")
    bench.grant("late", limit=3)


def test_after_a_lowered_limit_as_many_leases_must_be_over_as_permits_are_missing(
    bench: Bench,
) -> None:
    for name, lease_ms in (("a", 1_000), ("b", 2_000), ("c", 60_000), ("d", 60_000)):
        bench.ask(name, limit=4, lease_ms=lease_ms)
    bench.clock.advance(3.5)
    bench.refuse("late", limit=3)
    bench.clock.advance(1)
    assert bench.grant("late", limit=3).taken_over == 2
    bench.refuse("later", limit=3)


def test_only_a_workflow_that_is_over_loses_its_lock(bench: Bench) -> None:
    bench.ask("anna", lease_ms=5_000, execution_arn=RUN)
    bench.clock.advance(8)
    bench.executions[RUN] = Execution(Liveness.UNKNOWN)
    assert bench.refuse("ben").liveness_unknown == 1
    assert bench.holders() == ["anna"]
    bench.end()
    bench.clock.advance(60)
    assert bench.grant("ben").taken_over == 1


# The fencing token that a caller is told is the one that the lock's item has.
#
# A grant computes it in the item, and its sender computes it again from what the token was before.
# `make second-engine` asks DynamoDB Local, too.

Scene = Callable[[Bench], object]


def never_used(_bench: Bench) -> None:
    """No one has held the lock."""


def used(bench: Bench) -> None:
    for name in ("anna", "ben", "carl"):
        bench.ask(name)
        bench.release(name)
        bench.clock.advance(1)


def with_other_holders(bench: Bench) -> None:
    for name in ("anna", "ben"):
        bench.ask(name, limit=5)
        bench.clock.advance(1)


def with_another_limit(bench: Bench) -> None:
    """The first attempt fails, the second one goes by what was seen."""
    bench.ask("anna", limit=7)
    bench.clock.advance(1)


def released_by_force(bench: Bench) -> None:
    """The same owner_id is granted the lock again."""
    bench.force(bench.grant("dora", limit=5))
    bench.clock.advance(1)


def with_holders_to_take_over(bench: Bench) -> None:
    for number in range(5):
        bench.ask(f"late-{number}", limit=5, lease_ms=1_000)
    bench.clock.advance(10)


def removed_by_ttl(bench: Bench) -> None:
    used(bench)
    bench.clock.advance(49 * 3600)
    bench.client.delete_item(TableName=TABLE, Key=lock_key(LOCK))


def waited_for_before_it_was_used(bench: Bench) -> None:
    """The item has no token: a waiter has come and gone since TTL removed it."""
    removed_by_ttl(bench)
    item = {**lock_key(LOCK), "wait_seq": {"N": "3"}, "expiry_time": {"N": "1"}}
    bench.client.put_item(TableName=TABLE, Item=item)


SCENES = [
    never_used,
    used,
    with_other_holders,
    with_another_limit,
    released_by_force,
    with_holders_to_take_over,
    removed_by_ttl,
    waited_for_before_it_was_used,
]


@pytest.mark.parametrize("scene", SCENES)
def test_the_token_that_a_caller_is_told_is_the_stored_one(bench: Bench, scene: Scene) -> None:
    """A second call with the same owner_id reads it in the item."""
    scene(bench)
    told = bench.grant("dora", limit=5)
    assert bench.ask("dora", limit=5) == replace(told, repeated=True, taken_over=0)
    assert bench.state.fencing_token == told.fencing_token


def test_a_token_that_is_no_number_is_a_malformed_item(bench: Bench) -> None:
    odd = Fault(tells=lambda _: {"Attributes": {"fencing_token": {"S": "7"}}})
    with pytest.raises(LockItemMalformed):
        bench.ask("anna", over=odd)


@pytest.mark.parametrize(("seconds", "rises"), [(301, True), (0, False)])
def test_five_minutes_after_an_item_was_deleted_by_hand_its_next_token_is_larger(
    bench: Bench, seconds: float, *, rises: bool
) -> None:
    """At once it is smaller if the clock that began the old item was as far ahead."""
    bench.clock.skew_ms = 300_000
    old = bench.grant("anna")
    bench.client.delete_item(TableName=TABLE, Key=lock_key(LOCK))
    bench.clock.skew_ms = 0
    bench.clock.advance(seconds)
    assert (bench.grant("ben").fencing_token > old.fencing_token) is rises


# A grant that is told again may be older than it seems: it is renewed if half of it is over.

LEASE_MS = 60_000


def test_the_end_that_a_slow_clock_has_written_is_corrected_before_anybody_relies_on_it(
    bench: Bench,
) -> None:
    """Ben asks again, and hears of what he was handed by another caller whose clock is slow."""
    place = {"waits": True, "poll_interval_ms": 5_000}
    bench.ask("anna", lease_ms=10 * LEASE_MS)
    bench.ask("ben", **place)
    bench.clock.skew_ms = -90_000
    bench.release("anna")
    bench.clock.skew_ms = 0
    bench.clock.advance(5)
    assert bench.grant("ben", **place).expires_at_ms == bench.clock.now_ms + LEASE_MS + 1_500


def test_a_grant_that_is_fresh_costs_nothing_to_tell_again(bench: Bench) -> None:
    first = bench.grant("anna")
    bench.clock.advance(LEASE_MS / 2_000 - 1)
    client, store = bench.counting()
    assert store.acquire(acquire("anna")) == replace(first, repeated=True)
    assert client.calls == ["update_item"]
