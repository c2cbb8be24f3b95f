"""Acquire: under which token, by how many requests, and what becomes of holders that name limits.

Any order of calls, of limits and of ends of leases: `tests/property/test_locks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairlock.errors import LockItemMalformed
from fairlock.protocol.model import Grant, ReleaseRequest
from fairlock.protocol.outcomes import RefusalReason, Released
from fairlock.protocol.schema import lock_key
from fairlock.store.context import MixedLimits
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.manual_clock import START_MS, ManualClock
from tests.support import LOCK, TABLE, acquire, owner, release, store_over
from tests.support.faulty_table import Fault, FaultyTable, meanwhile
from tests.support.memory_tables import item_bytes
from tests.support.store_bench import Bench


@pytest.fixture
def bench(dynamodb: object, clock: ManualClock) -> Bench:
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


def test_a_lease_is_over_for_others_only_after_the_clock_tolerance(bench: Bench) -> None:
    """Whatever lease they ask for themselves."""
    first = bench.grant("anna", lease_ms=5_000)
    bench.clock.advance(6.999)
    assert bench.refuse("ben", lease_ms=1_000).reason is RefusalReason.HELD
    bench.clock.advance(0.002)
    ben = bench.grant("ben", lease_ms=1_000)
    assert (ben.fencing_token, ben.taken_over) == (first.fencing_token + 1, 1)


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
    bench.own_clock.skew_ms = 300_000
    old = bench.grant("anna")
    bench.client.delete_item(TableName=TABLE, Key=lock_key(LOCK))
    bench.own_clock.skew_ms = 0
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
    bench.own_clock.skew_ms = -90_000
    bench.release("anna")
    bench.own_clock.skew_ms = 0
    bench.clock.advance(5)
    assert bench.grant("ben", **place).expires_at_ms == bench.clock.wall_ms() + LEASE_MS + 1_500


def test_a_grant_that_is_fresh_costs_nothing_to_tell_again(bench: Bench) -> None:
    first = bench.grant("anna")
    bench.clock.advance(LEASE_MS / 2_000 - 1)
    client, store = bench.counting()
    assert store.acquire(acquire("anna")) == replace(first, repeated=True)
    assert client.calls == ["update_item"]


# Mixed limits on one lock: each holder is protected by the limit that its own request named.


def test_another_limit_than_that_of_the_holders_costs_a_second_request(bench: Bench) -> None:
    client, store = bench.counting()
    for name, limit in (("anna", 1), ("ben", 5), ("carl", 2)):
        store.acquire(acquire(name, limit=limit))
        store.release(release(name))
    assert client.calls == ["update_item"] * 6
    for name, limit, requests in (("dora", 3, 7), ("emil", 3, 8), ("fred", 4, 10)):
        store.acquire(acquire(name, limit=limit))
        assert len(client.calls) == requests
    assert bench.holders() == ["dora", "emil", "fred"]


@pytest.mark.parametrize("lower", [1, 2])
def test_the_second_write_of_a_lower_limit_fails_if_another_came_in_between(
    bench: Bench, lower: int
) -> None:
    bench.grant("anna", limit=3)
    bench.refuse("carl", limit=lower, over=meanwhile(2, lambda: bench.grant("ben", limit=3)))
    assert bench.holders() == (["anna"] if lower == 1 else ["anna", "ben"])


def test_a_takeover_fails_if_another_came_in_between(bench: Bench) -> None:
    bench.grant("gone", limit=2, lease_ms=1_000)
    bench.clock.advance(10)
    bench.refuse("strict", limit=1, over=meanwhile(2, lambda: bench.grant("ben", limit=2)))
    assert "ben" in bench.holders()


def test_a_waiter_does_not_join_beside_a_permit_that_became_free(bench: Bench) -> None:
    bench.wait("strict", limit=1, execution_arn=None)

    def replace_the_strict_holder() -> None:
        bench.release("strict")
        bench.grant("other", limit=3)

    between = meanwhile(2, replace_the_strict_holder)
    wide = acquire("wide", limit=3, waits=True, task_token="wide", waiting_since_ms=1)
    assert isinstance(bench.store(between).acquire(wide), Grant)


@pytest.mark.parametrize("joins", [True, False], ids=["another joins", "the head gives up"])
def test_the_queue_is_read_again_after_a_holder_left_without_successor(
    bench: Bench, *, joins: bool
) -> None:
    """It has read the queue when a waiter joins by a slow clock, and so comes first.

    Or the waiter with the lower limit leaves: that one serves those behind it, but has read the
    lock before the holder departs.
    """
    for name in ("anna", "ben"):
        bench.grant(name, limit=2)
    bench.wait("strict", limit=1, execution_arn=None)
    ticket = bench.clock.wall_ms()

    def others_act() -> None:
        if joins:
            bench.own_clock.skew_ms = -10_000
            bench.wait("wide", limit=2, execution_arn=None)
            bench.own_clock.skew_ms = 0
        else:
            bench.release("strict", ticket=ticket)

    if not joins:
        bench.wait("wide", limit=2, execution_arn=None)
    bench.release("anna", over=meanwhile(3, others_act))
    assert (bench.pushed, bench.holders()) == (["wide"], ["ben", "wide"])


@pytest.mark.parametrize(("limit", "taken"), [(2, True), (3, True), (1, False)])
def test_a_redriven_workflow_takes_its_lock_again_only_as_far_as_limits_allow(
    bench: Bench, *, limit: int, taken: bool
) -> None:
    bench.wait("guard", limit=limit)
    bench.come_back()
    bench.grant("other", limit=2)
    outcome = bench.beat("guard", limit=limit)
    assert outcome is (KeepAliveOutcome.REACQUIRED if taken else KeepAliveOutcome.LOST)
    assert bench.state.limit == 2


def test_mixed_limits_are_observed_once_a_call_however_often_it_tries(bench: Bench) -> None:
    bench.grant("anna", limit=5)
    found = MixedLimits(lock_name=LOCK, limit=2, holders_limits=(5,))
    bench.refuse("ben", limit=2, over=meanwhile(2, lambda: bench.grant("carl", limit=5)))
    assert bench.events == [found], "both of its writes were refused"
    bench.release("carl")
    bench.grant("ben", limit=2)
    assert bench.events == [found] * 2
    for name in ("anna", "ben"):
        bench.release(name)
    bench.grant("anna")
    bench.refuse("ben")
    assert bench.events == [found] * 2, "equal limits are not"


# What DynamoDB sends back has to be read: no more is asked for than is needed.

HOLDERS = 50


def weighing_table() -> tuple[FaultyTable, list[int]]:
    """One in memory, and the bytes of its answers to updates."""
    sizes: list[int] = []

    def weigh(answer: dict[str, Any]) -> dict[str, Any]:
        sizes.append(item_bytes(answer.get("Attributes", {})))
        return answer

    return FaultyTable(MemoryTable(), Fault(of=("update_item",), tells=weigh)), sizes


def test_the_answer_to_an_acquire_has_no_record_of_a_holder(clock: ManualClock) -> None:
    table, sizes = weighing_table()
    for number in range(HOLDERS):
        Bench(table, clock).ask(f"holder-{number:02d}", limit=HOLDERS)
    first, second, *_, last = sizes
    assert first == 0
    assert last < 2 * second


@pytest.mark.parametrize("tells_grant", [False, True])
def test_a_release_asks_for_the_item_only_to_tell_of_the_grant(*, tells_grant: bool) -> None:
    (table, sizes), clock = weighing_table(), ManualClock()
    store = store_over(table, clock)
    granted = store.acquire(acquire("anna"))
    assert isinstance(granted, Grant)
    clock.advance(3)
    request = ReleaseRequest(lock_name=LOCK, owner_id=owner("anna"), tells_grant=tells_grant)
    released = store.release(request)
    assert isinstance(released, Released)
    told = (3_000, granted.fencing_token) if tells_grant else (None, None)
    assert (released.held_ms, released.fencing_token) == told
    assert (sizes[-1] > 0) == tells_grant
    assert store.release(request) == Released(lock_name=LOCK, owner_id=owner("anna"))
