"""The place in the queue is given by the service: no ticket and no time of entry buys a better one.

The attacks of a caller that may invoke acquire, each with what it got before: the head of the
queue."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued, RefusalReason
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.requests import parse_acquire
from tests.support import LOCK, acquire, owner, release
from tests.support.faulty_table import FaultyTable, lose, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench

WAITER = "WAITER#"
LONG_AGO = 1_577_836_800_000
ATTACKS: dict[str, dict[str, Any]] = {
    "ticket 0": {"ticket": 0},
    "ticket 1": {"ticket": 1},
    "waiting since 2020": {"waiting_since_ms": LONG_AGO},
    "both": {"ticket": 0, "waiting_since_ms": LONG_AGO},
    "of a workflow": {"ticket": 0, "waiting_since_ms": LONG_AGO, "execution_arn": RUN},
}


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    """Anna holds the lock, and ben waits for it."""
    bench = Bench(MemoryTable(), clock)
    bench.ask("anna")
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
    assert ticket_of(answer) == bench.clock.wall_ms()
    assert in_order(bench) == ["ben", "mallory"]
    bench.release("anna")
    assert bench.holders() == ["ben"]


def test_a_call_that_says_it_was_made_long_ago_gets_no_place_at_all(bench: Bench) -> None:
    answer = asks(bench, "mallory", entered_at_ms=LONG_AGO, ticket=0)
    assert getattr(answer, "reason", None) == "ASK_AGAIN"
    assert in_order(bench) == ["ben"]


def test_the_ticket_of_another_owner_finds_nothing(bench: Bench) -> None:
    ticket = ticket_of(asks(bench, "carl"))
    asks(bench, "dora")
    asks(bench, "mallory", ticket=ticket)
    assert in_order(bench) == ["ben", "carl", "dora", "mallory"]


@pytest.mark.parametrize("lost", [None, {}, {"ticket": None}, {"ticket": 7}], ids=str)
def test_a_caller_keeps_its_place_by_its_ticket_or_is_found_there(
    bench: Bench, lost: dict[str, Any] | None
) -> None:
    """Its ticket may have been lost with a reply."""
    ticket = ticket_of(asks(bench, "carl"))
    asks(bench, "dora")
    again = asks(bench, "carl", **({"ticket": ticket} if lost is None else lost))
    assert (again.entered_at_ms, again.position) == (ticket, 2)
    assert in_order(bench) == ["ben", "carl", "dora"]


def test_a_workflow_gets_its_place_with_its_first_call_that_waits(bench: Bench) -> None:
    """Else a claim could be made in time, without waiting, for a place to be used later."""
    asks(bench, "mallory", execution_arn=RUN, queue=False)
    asks(bench, "carl")
    asks(bench, "mallory", execution_arn=RUN)
    assert in_order(bench) == ["ben", "carl", "mallory"]


def test_a_workflow_keeps_its_place_whatever_its_later_calls_say(bench: Bench) -> None:
    first = ticket_of(asks(bench, "carl", execution_arn=RUN))
    for fields in ({}, {"ticket": 0}, {"waiting_since_ms": LONG_AGO}, {"ticket": first + 99_000}):
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


@pytest.mark.parametrize("fields", [{}, {"ticket": 3, "execution_arn": RUN}])
def test_a_caller_that_lost_its_ticket_leaves_the_queue_all_the_same(
    bench: Bench, fields: dict[str, Any]
) -> None:
    """A workflow by its claim."""
    asks(bench, "carl", **({"execution_arn": RUN} if fields else {}))
    answer = bench.release("carl", **{"waits": True, **fields})
    assert (getattr(answer, "left_queue", False), in_order(bench)) == (True, ["ben"])


def test_an_uncontended_acquire_asks_for_no_place(clock: ManualClock) -> None:
    anna = acquire("anna", waits=True, ticket=0)
    calls = Bench(MemoryTable(), clock).requests(lambda store: store.acquire(anna))
    assert calls == ["update_item"]


# Who gave up is not granted a lock later, and who cannot hear of a grant does not keep it.


@pytest.fixture
def leaving_bench(clock: ManualClock) -> Bench:
    """Another caller holds the lock, and anna, a workflow, waits for it: her task is over."""
    leaving_bench = Bench(MemoryTable(), clock)
    leaving_bench.ask("holder")
    leaving_bench.wait("anna")
    leaving_bench.gone("anna")
    return leaving_bench


def place_of(bench: Bench) -> dict[str, Any]:
    return {"ticket": bench.clock.wall_ms(), "execution_arn": RUN}


def test_an_acquire_that_lands_after_its_workflow_gave_up_is_refused(leaving_bench: Bench) -> None:
    """Others have used the lock since."""
    place = place_of(leaving_bench)
    leaving_bench.release("anna", **place)
    leaving_bench.release("holder")
    leaving_bench.pass_through()
    answer = leaving_bench.refuse("anna", waits=True, task_token="late", **place)
    assert (answer.reason, leaving_bench.holders()) == (RefusalReason.ALREADY_RELEASED, [])


@pytest.mark.parametrize("killed_at", range(1, 5))
def test_giving_up_marks_and_leaves_in_one_write_wherever_it_is_killed(
    leaving_bench: Bench, killed_at: int
) -> None:
    """Else the lock would be handed to a caller that is marked, and never asks again."""
    with pytest.raises(LockStoreUnavailable):
        leaving_bench.release("anna", **place_of(leaving_bench), over=lose(killed_at))
    is_marked = leaving_bench.state.last_released == owner("anna")
    assert is_marked is (leaving_bench.waiters() == [])


def is_free_after_its_lease(bench: Bench) -> bool:
    bench.clock.advance(63)
    return isinstance(bench.ask("ben"), Grant)


def test_a_lock_handed_to_a_branch_that_was_stopped_is_free_after_its_lease(
    leaving_bench: Bench,
) -> None:
    """Its execution goes on, so neither the reaper nor the question to Step Functions helps."""
    leaving_bench.release("holder")
    assert leaving_bench.holders() == ["anna"]
    assert is_free_after_its_lease(leaving_bench)


def test_a_waiter_between_two_questions_keeps_what_it_was_handed(leaving_bench: Bench) -> None:
    place = place_of(leaving_bench)
    leaving_bench.release("holder")
    leaving_bench.grant("anna", waits=True, task_token="next", **place)
    assert not is_free_after_its_lease(leaving_bench)


def test_even_if_it_asks_in_the_moment_in_which_that_is_noted(leaving_bench: Bench) -> None:
    """After release_permit, query and serve_waiter."""
    asked = {"waits": True, "task_token": "next", **place_of(leaving_bench)}
    ask = meanwhile(4, lambda: leaving_bench.grant("anna", **asked))
    client = FaultyTable(leaving_bench.client, ask)
    leaving_bench.release("holder", over=client)
    assert client.calls == ["update_item", "query", "transact_write_items", "update_item"]
    assert not is_free_after_its_lease(leaving_bench)


def test_a_guard_that_skips_a_busy_lock_makes_seven_requests(clock: ManualClock) -> None:
    """Its claim, one try, and five to give up."""
    bench = Bench(MemoryTable(), clock)
    bench.ask("ada", execution_arn=OTHER_RUN)
    client, store = bench.counting()
    store.acquire(acquire("ben", execution_arn=RUN))
    assert len(client.calls) == 2
    store.release(release("ben", execution_arn=RUN, waits=True))
    assert (len(client.calls), bench.waiters(), bench.holders()) == (7, [], ["ada"])
