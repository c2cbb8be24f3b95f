"""The place in the queue is given by the service: no ticket and no time of entry buys a better one.

The attacks of a caller that may invoke acquire, each with what it got before: the head of the
queue.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import Grant, Queued
from fairlock.protocol.waiters import join_queue
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.requests import parse_acquire
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faulty_table import FaultyTable, lose
from tests.support.store_bench import RUN, Bench

WAITER = "WAITER#"
ATTACKS: dict[str, dict[str, Any]] = {
    "ticket 0": {"ticket": 0},
    "ticket 1": {"ticket": 1},
    "waiting since 0": {"waiting_since_ms": 0},
    "both": {"ticket": 0, "waiting_since_ms": 0},
    "of a workflow": {"ticket": 0, "waiting_since_ms": 0, "execution_arn": RUN},
}


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """Anna holds the lock, and ben waits for it."""
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("anna"))
    asks(bench, "ben")
    return bench


def asks(bench: Bench, name: str, **fields: Any) -> Any:  # noqa: ANN401 - any of the answers
    """A request as it comes through the function, a second after the last one."""
    bench.clock.advance(1)
    event = {"lock_name": LOCK, "owner_id": owner(name), "owner_name": name, "queue": True}
    return bench.store().acquire(parse_acquire({**event, **fields}))


def in_order(bench: Bench) -> list[str]:
    return [item["owner_name"]["S"] for item in bench.client.waiters(LOCK)]


def ticket_of(answer: object) -> int:
    assert isinstance(answer, Queued)
    return answer.entered_at_ms


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_one_overtakes_by_what_a_request_says(bench: Bench, attack: str) -> None:
    answer = asks(bench, "mallory", **ATTACKS[attack])
    assert ticket_of(answer) == bench.clock.now_ms
    assert in_order(bench) == ["ben", "mallory"]
    bench.store().release(release("anna"))
    assert bench.holders() == ["ben"]


def test_a_call_that_says_it_was_made_long_ago_gets_no_place_at_all(bench: Bench) -> None:
    answer = asks(bench, "mallory", entered_at_ms=0, ticket=0)
    assert getattr(answer, "reason", None) == "ASK_AGAIN"
    assert in_order(bench) == ["ben"]


@pytest.mark.parametrize("attack", ["ticket 0", "ticket 1", "both"])
def test_if_a_ticket_were_believed_it_would_overtake(
    bench: Bench, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believing(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the real one
        return join_queue(*args, **{**kwargs, "again": False})

    monkeypatch.setattr("fairlock.store.queue.join_queue", believing)
    asks(bench, "mallory", **ATTACKS[attack])
    bench.store().release(release("anna"))
    assert bench.holders() == ["mallory"]


def test_the_ticket_of_another_owner_finds_nothing(bench: Bench) -> None:
    ticket = ticket_of(asks(bench, "carl"))
    asks(bench, "dora")
    asks(bench, "mallory", ticket=ticket)
    assert in_order(bench) == ["ben", "carl", "dora", "mallory"]


def test_a_caller_keeps_its_place_by_its_ticket(bench: Bench) -> None:
    ticket = ticket_of(asks(bench, "carl"))
    asks(bench, "dora")
    again = asks(bench, "carl", ticket=ticket)
    assert (again.entered_at_ms, again.position) == (ticket, 2)
    assert in_order(bench) == ["ben", "carl", "dora"]


@pytest.mark.parametrize("fields", [{}, {"ticket": None}, {"ticket": 7}])
def test_a_caller_whose_ticket_was_lost_with_a_reply_is_found_in_its_place(
    bench: Bench, fields: dict[str, Any]
) -> None:
    ticket = ticket_of(asks(bench, "carl"))
    asks(bench, "dora")
    again = asks(bench, "carl", **fields)
    assert (again.entered_at_ms, again.position) == (ticket, 2)
    assert in_order(bench) == ["ben", "carl", "dora"]


@pytest.mark.parametrize("number", range(1, 4))
def test_whichever_reply_of_its_join_is_lost_a_direct_caller_waits_once(
    bench: Bench, number: int
) -> None:
    carl = acquire("carl", waits=True)
    dying = FaultyTable(bench.client, lose(number))
    with pytest.raises(LockStoreUnavailable):
        bench.store(dying).acquire(carl)
    asks(bench, "dora")
    bench.store().acquire(carl)
    assert sorted(in_order(bench)) == ["ben", "carl", "dora"]


def test_a_workflow_gets_its_place_with_its_first_call_that_waits(bench: Bench) -> None:
    """Else a claim could be made in time, without waiting, for a place to be used later."""
    asks(bench, "mallory", execution_arn=RUN, queue=False)
    asks(bench, "carl")
    asks(bench, "mallory", execution_arn=RUN)
    assert in_order(bench) == ["ben", "carl", "mallory"]


def test_a_workflow_keeps_its_place_whatever_its_later_calls_say(bench: Bench) -> None:
    first = ticket_of(asks(bench, "carl", execution_arn=RUN))
    for fields in ({}, {"ticket": 0}, {"waiting_since_ms": 0}, {"ticket": first + 99_000}):
        assert ticket_of(asks(bench, "carl", execution_arn=RUN, **fields)) == first
    assert in_order(bench) == ["ben", "carl"]


def test_a_workflow_that_was_passed_over_while_it_was_away_gets_its_place_back(
    bench: Bench,
) -> None:
    first = ticket_of(asks(bench, "carl", execution_arn=RUN))
    asks(bench, "dora")
    for key in [key for key in bench.client.items if key[1].endswith(owner("carl"))]:
        if key[1].startswith(WAITER):
            del bench.client.items[key]
    assert ticket_of(asks(bench, "carl", execution_arn=RUN)) == first
    assert in_order(bench) == ["ben", "carl", "dora"]


def test_a_direct_caller_that_lost_its_ticket_leaves_the_queue_all_the_same(bench: Bench) -> None:
    asks(bench, "carl")
    answer = bench.store().release(release("carl", waits=True))
    assert (getattr(answer, "left_queue", False), in_order(bench)) == (True, ["ben"])


def test_a_workflow_leaves_the_queue_by_its_claim(bench: Bench) -> None:
    asks(bench, "carl", execution_arn=RUN)
    bench.store().release(release("carl", waits=True, ticket=3, execution_arn=RUN))
    assert in_order(bench) == ["ben"]


def test_an_uncontended_acquire_asks_for_no_place(clock: FakeClock) -> None:
    bench = Bench(MemoryTable(), clock)
    client, store = bench.counting()
    assert isinstance(store.acquire(acquire("anna", waits=True, ticket=0)), Grant)
    assert client.calls == ["update_item"]
