"""When a waiter polls: by the waiters in front, the time of a grant, and the time without one."""

from __future__ import annotations

import math

import pytest

from fairlock.backoff import poll_seconds
from fairlock.client.local_waiters import LocalQueue, LocalWaiters, QueuePosition
from fairlock.protocol.model import LockState, SeenLock
from tests.support import FakeClock
from tests.unit.client.test_local_waiters import NAME, waiter_of

ME = "owner-id-of-anna"


def pause(
    *,
    unchanged: float = 0,
    ahead: int = 0,
    served: int = 9,
    waited: float = 100,
    seconds_per_grant: float = 0.1,
) -> float:
    """The longest pause, without jitter."""
    return poll_seconds(
        unchanged=unchanged,
        ahead=ahead,
        served=served,
        waited=waited,
        seconds_per_grant=seconds_per_grant,
        longest=5,
        until_free=math.inf,
        random=lambda: 1,
    )


def test_the_next_waiter_polls_often_at_first_and_then_after_a_fifth_of_the_time() -> None:
    assert pause() == 0.025
    assert pause(unchanged=1) == 0.2
    assert pause(unchanged=3600) == 5


def test_a_waiter_behind_others_waits_for_half_of_their_time() -> None:
    assert pause(ahead=10) == 0.5
    assert pause(ahead=40) == 2
    assert pause(ahead=1000) == 5


def test_few_grants_are_weak_evidence() -> None:
    """The first holder may have held for far longer than those behind it will."""
    assert pause(ahead=40, served=3, waited=1) == 0.5
    assert pause(ahead=40, served=4, waited=1) == 2


def test_without_a_grant_the_time_without_one_counts() -> None:
    assert pause(ahead=10, unchanged=0.2, seconds_per_grant=0) == 1


@pytest.fixture
def queue() -> LocalQueue:
    return LocalWaiters(FakeClock(now_ms=0)).add(NAME, ME).queue


def seen(token: int, *waiters: str) -> SeenLock:
    return SeenLock(state=LockState(fencing_token=token), waiters=tuple(map(waiter_of, waiters)))


def test_each_grant_brings_a_waiter_nearer(queue: LocalQueue) -> None:
    position = QueuePosition(queue, began=0)
    queue.note(seen(10), 1)
    position.note(6, seen(10))
    assert position.ahead == 5
    queue.note(seen(13), 2)
    assert position.ahead == 2
    queue.note(seen(20), 3)
    assert position.ahead == 0


def test_the_head_of_the_queue_corrects_the_position(queue: LocalQueue) -> None:
    position = QueuePosition(queue, began=0)
    queue.note(seen(10), 1)
    position.note(6, seen(10))
    assert position.correct(ME, seen(10, "somebody", ME)) is False
    assert position.ahead == 1


def test_a_waiter_that_is_not_where_it_thought_counts_again(queue: LocalQueue) -> None:
    position = QueuePosition(queue, began=0)
    queue.note(seen(10), 1)
    position.note(2, seen(10))
    assert position.correct(ME, seen(10, "somebody", "another")) is True
    position.note(9, seen(10))
    assert position.correct(ME, seen(10, "somebody", "another")) is False


def test_outside_of_a_full_queue_a_waiter_polls_as_one_behind_all_others(queue: LocalQueue) -> None:
    """Thousands may be outside of a hot lock: each as the next in line would overload it."""
    position = QueuePosition(queue, began=0)
    queue.note(seen(10, "owner-id-of-ben"), 100)

    def seconds() -> float:
        return position.seconds_to_poll(100, longest=5, until_free=math.inf, random=lambda: 1)

    assert seconds() < 0.1, "the next in line"
    position.note_outside()
    assert not position.correct(ME, seen(10, "owner-id-of-ben"))
    assert seconds() == 5
    position.note(2, seen(10))
    assert position.ahead == 1, "it has a place now"
