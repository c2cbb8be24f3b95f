"""What may happen between a look at a lock and the write that follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairlock.aws.lock_table import ConditionFailed
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.ceiling import CeilingChange, raise_ceiling
from fairlock.protocol.leaving import serve_waiter
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, Released
from fairlock.protocol.waiters import confirm_join, join_queue, mark_given_up
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import acquire, release
from tests.support.faulty_table import (
    TRANSACTIONS,
    FaultyTable,
    Killed,
    client_error,
    fault,
    kill,
    meanwhile,
)
from tests.support.store_bench import RUN, Bench, by_force, ceiling

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
    now_ms = bench.clock.now_ms
    waiter = bench.waiter("ben", limit=3)
    bench.put_waiter("ben", limit=3)
    blind = replace(state, fencing_token=grant.fencing_token)
    hand_off, _ = serve_waiter(blind, waiter, None, unless_joined=False, now_ms=now_ms)
    assert isinstance(bench.store().context.table.transact(hand_off), ConditionFailed)


def test_a_holder_neither_confirms_a_join_nor_gives_up(bench: Bench) -> None:
    bench.grant("ben")
    now_ms = bench.clock.now_ms
    for write in (
        confirm_join(acquire("ben"), now_ms=now_ms),
        mark_given_up(release("ben"), left_at_ms=now_ms),
    ):
        assert isinstance(bench.store().context.table.update(write), ConditionFailed)


def test_no_one_joins_a_queue_once_a_permit_is_free(bench: Bench) -> None:
    bench.grant("anna")
    state = bench.state
    bench.release("anna")
    now_ms = bench.clock.now_ms
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
    now_ms = bench.clock.now_ms
    change = CeilingChange.of(ceiling(1), seen, now_ms=now_ms)
    write = raise_ceiling(change, seen, now_ms=now_ms)
    assert isinstance(bench.store().context.table.update(write), ConditionFailed)


# Others act in between.


def test_a_heartbeat_by_a_clock_that_is_behind_moves_no_end_back(bench: Bench) -> None:
    ends_ms = bench.grant("anna").expires_at_ms
    bench.clock.skew_ms = -1_000
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
        bench.clock.skew_ms = -6_000
        bench.queue("dora", limit=3, **STAYS)
        bench.clock.skew_ms = 0

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
    bench.clock.skew_ms = 60_000
    bench.pass_through()
    bench.clock.skew_ms = 0
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
    client = FaultyTable(
        bench.client,
        meanwhile(1, lambda: bench.store().release(leaving), of=TRANSACTIONS),
    )
    answer = bench.beat("anna", over=client)
    assert (answer, bench.holders()) == (KeepAliveOutcome.DONE, [])


def test_a_heartbeat_without_a_claim_writes_none(bench: Bench) -> None:
    bench.grant("anna")
    assert bench.beat("anna") is KeepAliveOutcome.RENEWED
    assert bench.claims(done=True) == []
