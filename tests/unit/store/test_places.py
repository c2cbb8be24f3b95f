"""The place in the queue is given by the service: no ticket and no time of entry buys a better one.

The attacks of a caller that may invoke acquire, each with what it got before: the head of the
queue."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.aws.executions import Delivery, Liveness
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.requests import parse_acquire
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faulty_table import FaultyTable, lose, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench, FakeWorkflows

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
def bench(clock: FakeClock) -> Bench:
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
    assert ticket_of(answer) == bench.clock.now_ms
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


def test_a_direct_caller_that_lost_its_ticket_leaves_the_queue_all_the_same(bench: Bench) -> None:
    asks(bench, "carl")
    answer = bench.release("carl", waits=True)
    assert (getattr(answer, "left_queue", False), in_order(bench)) == (True, ["ben"])


def test_a_workflow_leaves_the_queue_by_its_claim(bench: Bench) -> None:
    asks(bench, "carl", execution_arn=RUN)
    bench.release("carl", waits=True, ticket=3, execution_arn=RUN)
    assert in_order(bench) == ["ben"]


def test_an_uncontended_acquire_asks_for_no_place(clock: FakeClock) -> None:
    bench = Bench(MemoryTable(), clock)
    client, store = bench.counting()
    assert isinstance(store.acquire(acquire("anna", waits=True, ticket=0)), Grant)
    assert client.calls == ["update_item"]


# Who gave up is not granted a lock later, and who cannot hear of a grant does not keep it.

LEASE_AND_TOLERANCE_SECONDS = 63
MOST_WRITES = 4


@pytest.fixture
def leaving_bench(clock: FakeClock) -> Bench:
    """Another caller holds the lock, and anna, a workflow, waits for it."""
    leaving_bench = Bench(MemoryTable(), clock)
    leaving_bench.ask("holder")
    leaving_bench.wait("anna")
    return leaving_bench


def place_of(bench: Bench) -> dict[str, Any]:
    return {"ticket": bench.clock.now_ms, "execution_arn": RUN}


def late_acquire(bench: Bench) -> Any:  # noqa: ANN401 - any of the answers
    """Anna has given up; others have used the lock; then a call of hers lands, of long ago."""
    place = place_of(bench)
    bench.release("anna", **place)
    bench.release("holder")
    bench.pass_through()
    return bench.ask("anna", waits=True, task_token="late", **place)


def test_an_acquire_that_lands_after_its_workflow_gave_up_is_refused(leaving_bench: Bench) -> None:
    answer = late_acquire(leaving_bench)
    assert isinstance(answer, Refusal)
    assert (answer.reason, leaving_bench.holders()) == (RefusalReason.ALREADY_RELEASED, [])


@pytest.mark.parametrize("killed_at", range(1, MOST_WRITES + 1))
def test_giving_up_marks_and_leaves_in_one_write_wherever_it_is_killed(
    leaving_bench: Bench, killed_at: int
) -> None:
    """Else the lock would be handed to a caller that is marked, and never asks again."""
    dying = lose(killed_at)
    with pytest.raises(LockStoreUnavailable):
        leaving_bench.store(dying).release(release("anna", **place_of(leaving_bench)))
    is_marked = leaving_bench.state.last_released == owner("anna")
    assert is_marked is (leaving_bench.waiters() == [])


def gone(bench: Bench) -> FakeWorkflows:
    """Its executions run on, but their tasks are over."""
    return FakeWorkflows(wakes=Delivery.GONE, runs=bench.describe)


def asks_to_leave(bench: Bench) -> bool:
    """Whether a direct caller is granted the lock when the lease is over."""
    bench.clock.advance(LEASE_AND_TOLERANCE_SECONDS)
    return isinstance(bench.ask("ben"), Grant)


def test_a_lock_handed_to_a_branch_that_was_stopped_is_free_after_its_lease(
    leaving_bench: Bench,
) -> None:
    """Its execution goes on, so neither the reaper nor the question to Step Functions helps."""
    leaving_bench.store(workflows=gone(leaving_bench)).release(release("holder"))
    assert leaving_bench.holders() == ["anna"]
    assert leaving_bench.describe(RUN).liveness is Liveness.RUNNING
    assert asks_to_leave(leaving_bench)
    assert leaving_bench.holders() == ["ben"]


def test_a_waiter_between_two_questions_keeps_what_it_was_handed(leaving_bench: Bench) -> None:
    place = place_of(leaving_bench)
    leaving_bench.store(workflows=gone(leaving_bench)).release(release("holder"))
    leaving_bench.grant("anna", waits=True, task_token="next", **place)
    assert not asks_to_leave(leaving_bench)


def test_even_if_it_asks_in_the_moment_in_which_that_is_noted(leaving_bench: Bench) -> None:
    place = place_of(leaving_bench)
    answers: list[object] = []

    def ask() -> None:
        answers.append(leaving_bench.ask("anna", waits=True, task_token="next", **place))

    client = FaultyTable(
        leaving_bench.client, meanwhile(4, ask)
    )  # After release_permit, query and serve_waiter.
    leaving_bench.store(client, workflows=gone(leaving_bench)).release(release("holder"))
    assert client.calls == ["update_item", "query", "transact_write_items", "update_item"]
    assert [type(answer) for answer in answers] == [Grant]
    assert not asks_to_leave(leaving_bench)


# What a guard that skips a busy lock asks the store for: one try, and then to give up.

TRY = acquire("ben", execution_arn=RUN)
GIVE_UP = release("ben", execution_arn=RUN, waits=True)


@pytest.fixture
def empty_bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def test_it_takes_seven_requests_and_leaves_no_waiter(empty_bench: Bench) -> None:
    empty_bench.ask("ada", execution_arn=OTHER_RUN)
    client, store = empty_bench.counting()
    refused = store.acquire(TRY)
    assert isinstance(refused, Refusal)
    assert (refused.reason, len(client.calls)) == (RefusalReason.HELD, 2)  # its claim, and one try
    store.release(GIVE_UP)
    assert (len(client.calls), empty_bench.waiters(), empty_bench.holders()) == (7, [], ["ada"])


def test_a_lock_that_others_wait_for_is_busy_though_it_has_room(empty_bench: Bench) -> None:
    empty_bench.ask("ada", limit=2)
    empty_bench.wait("carl", execution_arn=OTHER_RUN)  # a limit of one
    empty_bench.refuse("ben", execution_arn=RUN, limit=2)
    assert empty_bench.waiters() == ["carl"]


@pytest.mark.parametrize("given_up", [True, False], ids=["given up", "the control"])
def test_a_call_that_lands_after_its_repetition_was_refused_takes_nothing(
    empty_bench: Bench, *, given_up: bool
) -> None:
    """The first call is delayed between its claim and its try."""
    empty_bench.ask("ada", execution_arn=OTHER_RUN)

    def others_act() -> None:
        assert isinstance(empty_bench.store().acquire(TRY), Refusal)
        empty_bench.release("ada", execution_arn=OTHER_RUN)
        if given_up:
            empty_bench.store().release(GIVE_UP)

    delayed = empty_bench.store(meanwhile(2, others_act)).acquire(TRY)
    assert isinstance(delayed, Refusal if given_up else Grant)
    assert empty_bench.holders() == ([] if given_up else ["ben"])
