"""The queue, step by step, on a table where no one else moves between two requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.store.context import HandedOver
from fairlock.testing import ManualClock
from tests.support import LOCK, acquire, owner, release
from tests.support.faulty_table import delay
from tests.support.store_bench import Bench


class Queue(Bench):
    """A bench of callers that name no execution, each of which has a second for itself."""

    def wait(self, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
        answer = self.ask(name, **{"task_token": name, "waits": True, **fields})
        self.clock.advance(1)
        return answer


@pytest.fixture
def queue(dynamodb: object, clock: ManualClock) -> Queue:
    return Queue(dynamodb, clock)


def line_up(queue: Queue, holder: str, *waiters: str) -> int:
    """One holds, the others wait: the ticket of the first of them."""
    queue.wait(holder)
    ticket = queue.clock.wall_ms()
    for name in waiters:
        queue.wait(name)
    return ticket


def hand_offs(queue: Queue) -> list[HandedOver]:
    return [event for event in queue.events if isinstance(event, HandedOver)]


@pytest.mark.parametrize(("ahead", "seconds"), [(0, 5), (1, 10)])
def test_who_is_near_the_head_asks_within_five_seconds_for_each_position(
    queue: Queue, ahead: int, seconds: int
) -> None:
    """However long it has waited: until it asks, a permit that it was handed is idle."""
    queue.ask("anna", lease_ms=3_600_000)
    for number in range(ahead):
        queue.queue(f"waiter-{number}")
    hour_ago_ms = queue.clock.wall_ms() - 3_600_000
    assert queue.queue("ben", waiting_since_ms=hour_ago_ms).retry_after_seconds == seconds


def test_release_hands_the_lock_to_the_oldest_waiter_and_tells_it(queue: Queue) -> None:
    first = queue.grant("anna")
    queue.clock.advance(1)
    queue.wait("ben", lease_ms=5_000)
    queue.wait("carl")
    assert isinstance(queue.release("anna"), Released)
    [(task_token, pushed)] = queue.workflows.woken
    assert (task_token, pushed) == (
        "ben",
        Grant(
            lock_name=LOCK,
            owner_id=owner("ben"),
            fencing_token=first.fencing_token + 1,
            lease_ms=5_000,
            acquired_at_ms=queue.clock.wall_ms(),
            expires_at_ms=queue.clock.wall_ms() + 6_500,
        ),
    )
    assert queue.grant("ben") == replace(pushed, repeated=True)
    assert queue.waiters() == ["carl"]
    assert [h.waited_ms for h in hand_offs(queue)] == [2_000]


def test_grants_come_in_the_order_of_queueing(queue: Queue) -> None:
    names = [f"waiter-{i}" for i in range(12)]
    line_up(queue, "anna", *names)
    for departing in ["anna", *names]:
        queue.release(departing)
    assert queue.pushed == names
    queue.grant("newcomer")


def test_a_newcomer_never_overtakes_waiters(queue: Queue) -> None:
    queue.wait("anna", limit=2)
    queue.wait("ben", limit=1)
    # A permit is free for a limit of 2, but ben came first and his limit of 1 does not allow it.
    queue.refuse("newcomer", limit=2)


def test_the_last_release_opens_the_lock_again(queue: Queue) -> None:
    line_up(queue, "anna", "ben")
    queue.release("anna")
    queue.release("ben")
    assert not queue.state.contended
    assert queue.requests(lambda store: store.acquire(acquire("carl"))) == ["update_item"]
    assert queue.requests(lambda store: store.release(release("carl"))) == ["update_item"]


@pytest.mark.parametrize("waiting", [1, 2, 9])
def test_a_hand_off_is_three_requests_however_many_wait(queue: Queue, waiting: int) -> None:
    line_up(queue, "anna", *(f"waiter-{i}" for i in range(waiting)))
    calls = queue.requests(lambda store: store.release(release("anna")))
    assert calls == ["update_item", "query", "transact_write_items"]


def test_a_repeated_enqueue_keeps_the_place_and_takes_the_new_token(queue: Queue) -> None:
    ticket = line_up(queue, "anna", "ben", "carl")
    assert queue.queue("ben", ticket=ticket, task_token="second").entered_at_ms == ticket
    queue.release("anna")
    assert queue.pushed == ["second"]


def test_giving_up_leaves_the_queue_and_bars_a_delayed_acquire(queue: Queue) -> None:
    ticket = line_up(queue, "anna", "ben")
    answer = queue.release("ben", ticket=ticket)
    assert isinstance(answer, Released)
    assert answer.left_queue
    late = queue.refuse("ben", waits=True, ticket=ticket)
    assert late.reason is RefusalReason.ALREADY_RELEASED
    queue.release("anna")
    assert queue.pushed == []
    queue.grant("carl")


def test_giving_up_what_was_never_asked_for_changes_no_holder(queue: Queue) -> None:
    queue.wait("anna")
    for _ in range(2):
        answer = queue.release("ben", ticket=1)
        assert answer == Released(lock_name=LOCK, owner_id=owner("ben"), held_ms=None)
    assert queue.state.held == 1


def test_an_expired_holder_of_a_contended_lock_gives_way_to_the_oldest_waiter(queue: Queue) -> None:
    queue.wait("anna", lease_ms=1_000)
    queue.wait("ben")
    queue.clock.advance(10)
    answer = queue.wait("carl")
    assert queue.pushed == ["ben"]
    assert isinstance(answer, Queued)
    assert isinstance(queue.release("anna"), NotHeld)


def test_a_waiters_fallback_poll_evicts_an_expired_holder_for_itself(queue: Queue) -> None:
    queue.wait("anna", lease_ms=1_000)
    ticket = queue.queue("ben", task_token="ben").entered_at_ms
    queue.clock.advance(10)
    queue.grant("ben", waits=True, ticket=ticket, task_token="ben")
    assert queue.pushed == []


def test_who_waited_for_a_lower_limit_is_served_when_that_waiter_gives_up(queue: Queue) -> None:
    queue.wait("anna", limit=2)
    ticket = queue.queue("ben", limit=1).entered_at_ms
    queue.clock.advance(1)
    queue.wait("carl", limit=2)
    queue.release("ben", ticket=ticket)
    assert queue.pushed == ["carl"]


def test_when_patience_ends_the_outcome_is_unknown_and_not_a_refusal(queue: Queue) -> None:
    queue.wait("anna", lease_ms=1_000)
    queue.wait("ben")
    queue.clock.advance(10)
    slow = delay(6, queue.clock, range(2, 5))
    ben = acquire("ben", waits=True, ticket=queue.clock.wall_ms() - 11_000)
    with pytest.raises(LockStoreUnavailable):
        queue.store(slow).acquire(ben)
    assert isinstance(queue.store().acquire(ben), Grant)


def test_free_permits_are_handed_over_until_they_or_the_waiters_are_used_up(queue: Queue) -> None:
    queue.wait("anna", limit=1)
    queue.wait("narrow", limit=1)
    names = [f"wide-{i:02d}" for i in range(25)]
    for name in names:
        queue.wait(name, limit=22)
    queue.release("anna")
    assert queue.pushed == ["narrow"], "while it holds, its limit of 1 holds"
    queue.release("narrow")
    assert [each.owner_name for each in hand_offs(queue)] == ["narrow", *names[:22]]
    assert queue.state.held == 22
