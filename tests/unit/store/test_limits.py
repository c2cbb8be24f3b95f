"""Mixed limits on one lock: each holder is protected by the limit that its own request named."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.protocol.model import Grant, ReleaseRequest
from fairlock.protocol.outcomes import Queued, Released
from fairlock.store.context import MixedLimits
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, owner, release, store_over
from tests.support.faulty_table import meanwhile
from tests.support.memory_tables import item_bytes
from tests.support.store_bench import Bench


def test_a_caller_with_a_higher_limit_does_not_get_in_beside_a_mutex(bench: Bench) -> None:
    bench.grant("guard", limit=1)
    bench.refuse("attacker", limit=2)
    bench.refuse("attacker", limit=100)
    assert bench.holders() == ["guard"]


def test_a_lower_limit_gets_in_while_fewer_hold_and_holds_until_it_leaves(bench: Bench) -> None:
    bench.grant("anna", limit=5)
    bench.grant("ben", limit=2)
    assert bench.state.limit == 2
    bench.refuse("carl", limit=5)
    bench.release("ben")
    assert bench.state.limit == 2, "too low, which is safe"
    bench.grant("carl", limit=5)
    assert bench.state.limit == 5
    bench.grant("dora", limit=5)


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
    assert bench.holders() == ["anna"] if lower == 1 else ["anna", "ben"]


def test_a_takeover_leaves_the_other_holders_their_limits(bench: Bench) -> None:
    bench.grant("gone", limit=2, lease_ms=1_000)
    bench.grant("strict", limit=2)
    bench.clock.advance(10)
    answer = bench.grant("wide", limit=9)
    assert (answer.taken_over, bench.holders(), bench.state.limit) == (1, ["strict", "wide"], 2)
    bench.refuse("wider", limit=9)


def test_a_takeover_fails_if_another_came_in_between(bench: Bench) -> None:
    bench.grant("gone", limit=2, lease_ms=1_000)
    bench.clock.advance(10)
    bench.refuse("strict", limit=1, over=meanwhile(2, lambda: bench.grant("ben", limit=2)))
    assert "ben" in bench.holders()


def test_raising_takes_effect_as_the_old_holders_leave(bench: Bench) -> None:
    for name in ("old-1", "old-2", "old-3"):
        bench.grant(name, limit=3)
    bench.refuse("new-1", limit=5)
    bench.release("old-1")
    bench.grant("new-1", limit=5)
    bench.refuse("new-2", limit=5)  # Two of the old still hold.
    bench.release("old-2")
    bench.release("old-3")
    for name in ("new-2", "new-3", "new-4", "new-5"):
        bench.grant(name, limit=5)
    bench.refuse("new-6", limit=5)


def test_a_waiter_kept_out_by_a_holders_limit_joins_and_is_served_when_it_leaves(
    bench: Bench,
) -> None:
    bench.wait("strict", limit=1, execution_arn=None)
    assert isinstance(bench.wait("wide", limit=3, execution_arn=None), Queued)
    bench.release("strict")
    assert (bench.pushed, bench.holders()) == (["wide"], ["wide"])


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
    ticket = bench.clock.now_ms

    def others_act() -> None:
        if joins:
            bench.clock.skew_ms = -10_000
            bench.wait("wide", limit=2, execution_arn=None)
            bench.clock.skew_ms = 0
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


def test_mixed_limits_are_observed_once_a_call(bench: Bench) -> None:
    bench.grant("anna", limit=5)
    bench.grant("ben", limit=2)
    found = MixedLimits(lock_name=LOCK, limit=2, holders_limits=(5,))
    assert [event for event in bench.events if isinstance(event, MixedLimits)] == [found]
    bench.events.clear()
    bench.refuse("carl", limit=2)
    assert bench.events == [found]
    for name in ("anna", "ben"):
        bench.release(name)
    bench.events.clear()
    bench.grant("anna")
    bench.refuse("ben")
    assert bench.events == [], "equal limits are not"


# What DynamoDB sends back has to be read: no more is asked for than is needed.

HOLDERS = 50


class WeighingTable(MemoryTable):
    """Notes the bytes of each answer to an update."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[int] = []

    def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        answer = super().update_item(**request)
        self.answers.append(item_bytes(answer.get("Attributes", {})))
        return answer


def test_the_answer_to_an_acquire_has_no_record_of_a_holder(clock: FakeClock) -> None:
    table = WeighingTable()
    for number in range(HOLDERS):
        Bench(table, clock).ask(f"holder-{number:02d}", limit=HOLDERS)
    first, second, *_, last = table.answers
    assert first == 0
    assert last < 2 * second


@pytest.mark.parametrize("tells_grant", [False, True])
def test_a_release_asks_for_the_item_only_if_it_has_to_tell_of_the_grant(
    *, tells_grant: bool
) -> None:
    table, clock = WeighingTable(), FakeClock()
    store = store_over(table, clock)
    granted = store.acquire(acquire("anna"))
    assert isinstance(granted, Grant)
    clock.advance(3)
    request = ReleaseRequest(lock_name=LOCK, owner_id=owner("anna"), tells_grant=tells_grant)
    released = store.release(request)
    assert isinstance(released, Released)
    told = (3_000, granted.fencing_token) if tells_grant else (None, None)
    assert (released.held_ms, released.fencing_token) == told
    assert (table.answers[-1] > 0) == tells_grant
    assert store.release(request) == Released(lock_name=LOCK, owner_id=owner("anna"))
