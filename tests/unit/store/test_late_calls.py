"""Calls that stall, and hand-offs that land late or without an answer: who holds, and is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from fairlock.aws.executions import Delivery
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Released
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, acquire, owner, release
from tests.support.faulty_table import (
    TRANSACTIONS,
    Fault,
    fault,
    lost_reply,
    meanwhile,
)
from tests.support.late_copies import confirmation_of_a_waiter_that_left
from tests.support.store_bench import OTHER_RUN, RUN, Bench, late


def does_nothing() -> None:
    """Instead of a hand-off."""


def losing_hand_offs(instead: Callable[[], object] | None = None) -> Fault:
    """The replies to transactions are lost; or they never arrive, and something else happens."""
    if instead is None:
        return fault(lost_reply(), when="after", of=TRANSACTIONS)
    return fault(lost_reply(), then=instead, of=TRANSACTIONS)


@pytest.mark.parametrize("happened", [True, False])
def test_the_waiter_of_a_hand_off_whose_reply_was_lost_is_told_if_it_happened(
    bench: Bench, *, happened: bool
) -> None:
    """The repeated release finds only that its holder is out, and nothing of the waiter."""
    bench.ask("anna")
    bench.wait("ben")
    with pytest.raises(LockStoreUnavailable):
        bench.release("anna", over=losing_hand_offs(None if happened else does_nothing))
    assert bench.pushed == ["ben"] * happened
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
    network = losing_hand_offs(lambda: bench.release("anna"))
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
    bench.clock.skew_ms = -5_000
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
