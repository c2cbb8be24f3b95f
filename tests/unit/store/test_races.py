"""What happens between a look and the write that follows, or while a call stalls, or late."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Literal

import pytest

from fairlock.aws.executions import Delivery
from fairlock.aws.lock_table import ConditionFailed
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.ceiling import CeilingChange, raise_ceiling
from fairlock.protocol.leaving import serve_waiter
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, Released
from fairlock.protocol.waiters import confirm_join, join_queue, mark_given_up
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, acquire, owner, release
from tests.support.faulty_table import (
    TRANSACTIONS,
    Killed,
    client_error,
    fault,
    kill,
    lost_reply,
    meanwhile,
)
from tests.support.late_copies import confirmation_of_a_waiter_that_left
from tests.support.store_bench import OTHER_RUN, RUN, Bench, by_force, ceiling, late

POLLS = {"waits": True, "poll_interval_ms": 500}
LAST_OF_A_PASS = 5
"""The request that moves the claim on, when the lock is free."""
GIVES_UP = 2
"""The request by which a waiter leaves, after it has found that it does not hold."""
STAYS = {"waits": True, "waiter_timeout_ms": 600_000}


# A write refuses by itself what the step before it has ruled out.


def test_a_waiter_that_holds_already_is_handed_no_second_permit(bench: Bench) -> None:
    bench.grant("anna", limit=3)
    state = bench.state
    grant = bench.grant("ben", limit=3)
    now_ms = bench.clock.wall_ms()
    waiter = bench.waiter("ben", limit=3)
    bench.put_waiter("ben", limit=3)
    blind = replace(state, fencing_token=grant.fencing_token)
    hand_off, _ = serve_waiter(blind, waiter, None, unless_joined=False, now_ms=now_ms)
    assert isinstance(bench.store().context.table.transact(hand_off), ConditionFailed)


def test_a_holder_neither_confirms_a_join_nor_gives_up(bench: Bench) -> None:
    bench.grant("ben")
    now_ms = bench.clock.wall_ms()
    for write in (
        confirm_join(acquire("ben"), now_ms=now_ms),
        mark_given_up(release("ben"), left_at_ms=now_ms),
    ):
        assert isinstance(bench.store().context.table.update(write), ConditionFailed)


def test_no_one_joins_a_queue_once_a_permit_is_free(bench: Bench) -> None:
    bench.grant("anna")
    state = bench.state
    bench.release("anna")
    now_ms = bench.clock.wall_ms()
    join = join_queue(
        bench.waiter("ben"),
        state,
        behind_others=False,
        again=False,
        sent_at_ms=now_ms,
        now_ms=now_ms,
    )
    assert isinstance(bench.store().context.table.transact(join), ConditionFailed)


@pytest.mark.parametrize("missed", ["wait_seq", "fencing_token"])
def test_a_ceiling_is_not_raised_by_a_state_from_before_a_join_or_a_grant(
    bench: Bench, missed: str
) -> None:
    bench.set_ceiling(0)
    bench.wait("ben")
    state = bench.state
    assert state.contended
    seen = replace(state, **{missed: getattr(state, missed) - 1})
    now_ms = bench.clock.wall_ms()
    change = CeilingChange.of(ceiling(1), seen, now_ms=now_ms)
    write = raise_ceiling(change, seen, now_ms=now_ms)
    assert isinstance(bench.store().context.table.update(write), ConditionFailed)


# Others act in between.


def test_a_heartbeat_by_a_clock_that_is_behind_moves_no_end_back(bench: Bench) -> None:
    ends_ms = bench.grant("anna").expires_at_ms
    bench.own_clock.skew_ms = -1_000
    renewed = bench.renew("anna")
    assert isinstance(renewed, Grant)
    assert renewed.expires_at_ms == ends_ms


def test_no_permit_is_freed_for_no_one_beside_a_waiter(bench: Bench) -> None:
    """Ben, for whom one eviction does not make room, leaves it to who comes for the waiter."""
    bench.grant("gone", limit=3, lease_ms=10_000)
    bench.grant("run", limit=3, lease_ms=10_000, execution_arn=RUN)
    bench.grant("zoe", limit=3, lease_ms=900_000)
    bench.clock.advance(13)

    def join() -> None:
        """By a clock by which no lease is over yet."""
        bench.own_clock.skew_ms = -6_000
        bench.queue("dora", limit=3, **STAYS)
        bench.own_clock.skew_ms = 0

    bench.refuse("ben", limit=2, over=meanwhile(4, join))
    assert sorted(bench.holders()) == ["gone", "run", "zoe"]


def test_a_permit_that_a_dead_waiter_leaves_free_is_handed_over_by_the_next_caller(
    bench: Bench,
) -> None:
    for name in ("anna", "zoe"):
        bench.grant(name, limit=2)
    bench.ask("narrow", limit=1, **POLLS)
    bench.clock.advance(1)
    bench.ask("wide", limit=2, **STAYS)
    bench.release("anna")
    assert bench.holders() == ["zoe"]
    bench.clock.advance(30)
    bench.refuse("ben", limit=2)
    assert sorted(bench.holders()) == ["wide", "zoe"]


def test_a_waiter_that_died_while_it_gave_up_is_handed_nothing(bench: Bench) -> None:
    """It has left its mark, and not yet removed its place, whose ticket it had lost."""
    bench.grant("anna")
    bench.ask("ben", **STAYS)
    with pytest.raises(Killed):
        bench.release("ben", waits=True, over=kill(3))
    assert bench.waiters() == ["ben"]
    bench.release("anna")
    assert bench.holders() == []


def test_a_waiter_that_is_served_while_it_joins_is_told_of_no_lock_that_it_saw(
    bench: Bench,
) -> None:
    """So it asks again at once."""
    bench.grant("anna")
    joined = bench.ask("ben", **STAYS, over=meanwhile(4, lambda: bench.release("anna")))
    assert bench.holders() == ["ben"]
    assert isinstance(joined, Queued)
    assert joined.seen is None


def test_a_waiter_that_is_served_while_it_gives_up_gives_that_back(bench: Bench) -> None:
    bench.grant("anna")
    joined = bench.queue("ben", **STAYS)
    leaving = release("ben", ticket=joined.entered_at_ms)
    serves = meanwhile(GIVES_UP, lambda: bench.release("anna"))
    answer = bench.store(serves).release(leaving)
    assert isinstance(answer, Released)
    assert answer.gave_back
    assert bench.holders() == []


def test_a_release_by_its_fencing_token_leaves_a_later_grant_of_its_owner(bench: Bench) -> None:
    first = bench.grant("anna")
    bench.force(first)
    bench.grant("anna")
    bench.ask("ben", **STAYS)
    late = release("anna", fencing_token=first.fencing_token)
    assert isinstance(bench.store().release(late), NotHeld)
    assert bench.holders() == ["anna"]


def test_a_release_is_answered_though_the_table_fails_once_the_holder_is_out(bench: Bench) -> None:
    bench.grant("anna")
    for name in ("ben", "carl"):
        bench.clock.advance(1)
        bench.ask(name, shared=True, limit=20, **STAYS)
    broken = fault(client_error("InternalServerError", 500), 2, of=TRANSACTIONS)
    answer = bench.release("anna", over=broken)
    assert isinstance(answer, Released)
    assert bench.holders() == ["ben"]


def test_a_release_by_force_that_may_have_happened_is_unknown(bench: Bench) -> None:
    grant = bench.grant("anna")

    def others() -> None:
        bench.force(bench.grant("ben"))

    throttled = fault(client_error("ThrottlingException"), 1, when="after", then=others)
    with pytest.raises(LockStoreUnavailable):
        bench.store(throttled).force_release(by_force(grant))


def test_an_owner_whose_clock_is_behind_the_last_departure_can_give_up(bench: Bench) -> None:
    bench.own_clock.skew_ms = 60_000
    bench.pass_through()
    bench.own_clock.skew_ms = 0
    assert isinstance(bench.release("anna", waits=True), Released)


# The reaper, and heartbeats of an execution that was redriven.


def test_a_reaper_takes_no_waiter_out_whose_claim_it_could_not_fence(bench: Bench) -> None:
    """Its execution was redriven since the claim was read, and asked again."""
    bench.grant("zoe")
    bench.wait("anna")
    bench.end()

    def redriven() -> None:
        bench.redrive()
        bench.wait("anna")

    reaped = bench.reap(client=meanwhile(2, redriven))
    assert bench.waiters() == ["anna"]
    assert not reaped.complete


def test_an_acquire_of_an_execution_that_was_reaped_leaves_its_claim_as_it_is(
    bench: Bench,
) -> None:
    bench.wait("anna")
    bench.end()
    bench.reap()
    claims = bench.claims()
    assert isinstance(bench.wait("anna"), Refusal)
    assert bench.claims() == claims


def test_a_pass_that_a_heartbeat_has_crossed_is_not_complete(bench: Bench) -> None:
    """Its lock is free by then, and its claim not yet past the fence."""
    bench.wait("anna")
    bench.end()

    def redriven() -> None:
        bench.redrive()
        assert bench.beat("anna") is KeepAliveOutcome.REACQUIRED

    freed = meanwhile(LAST_OF_A_PASS, redriven)
    assert not bench.reap(client=freed).complete
    assert bench.holders() == ["anna"]


def test_a_heartbeat_does_not_take_a_lock_again_whose_work_ends_in_that_moment(
    bench: Bench,
) -> None:
    bench.wait("anna")
    bench.come_back()
    leaving = release("anna", execution_arn=RUN, keep_alive=True)
    ends = meanwhile(1, lambda: bench.store().release(leaving), of=TRANSACTIONS)
    assert bench.beat("anna", over=ends) is KeepAliveOutcome.DONE
    assert bench.holders() == []


def test_a_heartbeat_without_a_claim_writes_none(bench: Bench) -> None:
    bench.grant("anna")
    assert bench.beat("anna") is KeepAliveOutcome.RENEWED
    assert bench.claims(done=True) == []


# Calls that stall, and hand-offs that land late or without an answer: who holds, and is told.


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_waiter_of_a_hand_off_whose_reply_was_lost_is_told_if_it_happened(
    bench: Bench, when: Literal["before", "after"]
) -> None:
    """The repeated release finds only that its holder is out, and nothing of the waiter."""
    bench.ask("anna")
    bench.wait("ben")
    with pytest.raises(LockStoreUnavailable):
        bench.release("anna", over=fault(lost_reply(), when=when, of=TRANSACTIONS))
    assert bench.pushed == ["ben"] * (when == "after")
    assert isinstance(bench.release("anna"), Released)
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben"])


@pytest.mark.parametrize("arn", [None, OTHER_RUN])
def test_a_hand_off_that_another_call_made_and_told_of_is_left_alone(
    bench: Bench, arn: str | None
) -> None:
    """Both hand-offs would grant the same token to the same waiter: a read cannot tell them apart.

    So the second push finds a task token that is used up, which proves nothing.
    """
    bench.ask("anna", lease_ms=5_000)
    bench.wait("ben", execution_arn=arn)
    bench.clock.advance(10)
    uses = iter((Delivery.DELIVERED,))
    bench.workflows.wakes = lambda _token, _grant: next(uses, Delivery.GONE)
    network = fault(lost_reply(), then=lambda: bench.release("anna"), of=TRANSACTIONS)
    with suppress(LockStoreUnavailable):
        bench.ask("carl", over=network)
    holders = [(h.owner_name, h.is_undelivered) for h in bench.state.holders]
    assert holders == [("ben", False)]
    assert bench.pushed[:2] == ["ben", "ben"]


def test_a_hand_off_that_lands_late_is_found_by_the_waiters_next_poll(bench: Bench) -> None:
    """No one is left to tell the waiter: a known limit."""
    bench.ask("anna", lease_ms=600_000)
    bench.wait("ben")
    wire = late(bench, "SET #mine = :holder", lambda store: store.release(release("anna")))
    assert wire.land()
    assert isinstance(bench.release("anna"), Released)
    assert (bench.holders(), bench.pushed) == (["ben"], [])
    assert isinstance(bench.wait("ben"), Grant)


@pytest.mark.parametrize("first", [[], ["ben"]], ids=["no one", "another"])
def test_a_heartbeat_takes_a_free_lock_again_that_a_late_join_has_left_contended(
    bench: Bench, first: list[str]
) -> None:
    """It takes that mark away, and leaves the lock to who comes first after that."""
    wire = confirmation_of_a_waiter_that_left(bench)
    bench.ask("anna", execution_arn=RUN)
    bench.end()
    bench.reap()
    assert wire.land()
    bench.redrive()
    outcome = bench.beat("anna", over=meanwhile(5, lambda: [bench.grant(name) for name in first]))
    assert outcome is (KeepAliveOutcome.LOST if first else KeepAliveOutcome.REACQUIRED)
    assert bench.holders() == (first or ["anna"])


@pytest.mark.parametrize(
    ("arn", "stalls_at", "others_leave"),
    [(None, 2, False), (RUN, 3, False), (RUN, 2, True)],
    ids=["about to join", "about to join, a workflow", "redated, as others have left"],
)
def test_a_call_that_stalls_leaves_the_task_token_of_the_next_call(
    bench: Bench, arn: str | None, stalls_at: int, *, others_leave: bool
) -> None:
    """Its caller has given it up: a hand-off must wake the call that is awaited."""
    bench.ask("holder")
    anna = {"waits": True, "execution_arn": arn}

    def passes_by() -> None:
        bench.clock.advance(2)
        bench.queue("anna", task_token="second", **anna)
        if others_leave:
            bench.release("xeno", waits=True)

    first = acquire("anna", task_token="first", **anna)
    assert isinstance(bench.store(meanwhile(stalls_at, passes_by)).acquire(first), Queued)
    bench.release("holder")
    assert bench.pushed == ["second"]


def test_a_quick_call_by_a_clock_that_is_behind_puts_its_task_token(bench: Bench) -> None:
    bench.ask("holder")
    bench.wait("anna", task_token="first")
    bench.own_clock.skew_ms = -5_000
    bench.wait("anna", task_token="second")
    bench.release("holder")
    assert bench.pushed == ["second"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_late_acquire_is_refused_once_its_release_has_left_a_mark(
    bench: Bench, *, waits: bool
) -> None:
    """Without `queue`, a release that finds nothing writes nothing: a known limit."""
    wire = late(bench, "SET #mine = :holder", lambda store: store.acquire(acquire("anna")))
    bench.clock.advance(2)
    bench.release("anna", waits=waits)
    assert wire.land() is not waits


# A repeated release gives the first answer again, and a stranger's release changes no answer.


def test_a_release_is_told_again_until_another_owner_releases(bench: Bench) -> None:
    bench.ask("anna")
    bench.release("anna")
    repeated = Released(lock_name=LOCK, owner_id=owner("anna"), held_ms=None)
    assert bench.release("anna") == repeated
    bench.ask("ben")
    assert bench.release("anna") == repeated
    bench.release("ben")
    assert bench.release("anna") == NotHeld(lock_name=LOCK, owner_id=owner("anna"))


both_guards = pytest.mark.parametrize("keep_alive", [False, True])


@both_guards
def test_a_workflows_release_is_answered_as_before_no_matter_who_came_and_went_since(
    bench: Bench, *, keep_alive: bool
) -> None:
    bench.ask("anna", execution_arn=RUN)
    if keep_alive:
        bench.beat("anna")
    leaving = {"execution_arn": RUN, "keep_alive": keep_alive}
    assert isinstance(bench.release("anna", **leaving), Released)
    for name in ("ben", "carl", "dora"):
        bench.clock.advance(1)
        bench.ask(name)
        bench.release(name)
    assert isinstance(bench.release("anna", **leaving), Released)


@both_guards
def test_a_workflow_that_lost_its_lock_is_told_so_by_every_repeat(
    bench: Bench, *, keep_alive: bool
) -> None:
    bench.ask("anna", execution_arn=RUN)
    bench.end()
    bench.clock.advance(3_700)  # Longer than a claim that is done is kept.
    bench.grant("ben")
    lost = NotHeld(lock_name=LOCK, owner_id=owner("anna"))
    again = {"execution_arn": RUN, "keep_alive": keep_alive}
    assert [bench.release("anna", **again) for _ in range(2)] == [lost, lost]


def test_a_strangers_release_leaves_a_repeat_and_a_late_acquire_as_they_were(bench: Bench) -> None:
    """By a ticket that it made up, of what it never had."""
    bench.ask("anna")
    bench.release("anna")
    bench.clock.advance(1)
    bench.release("stranger", ticket=0)
    assert isinstance(bench.release("anna"), Released)
    bench.refuse("anna")
