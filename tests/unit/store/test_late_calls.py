"""Calls that stall, and hand-offs that land late or without an answer: who holds, and is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from fairlock.aws.executions import Delivery
from fairlock.aws.lock_table import Written
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.admission import LEFT_LAST
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, Released
from fairlock.protocol.waiters import mark_given_up
from fairlock.store import hand_off, keep_alive, queue
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, acquire, owner, release
from tests.support.faulty_table import TRANSACTIONS, FaultyTable, fault, lost_reply, meanwhile
from tests.support.late_copies import confirmation_of_a_waiter_that_left
from tests.support.store_bench import OTHER_RUN, RUN, Bench, Wire, late, workflow_heartbeat

PROTECTED: Final = pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])


def losing_hand_offs(bench: Bench, instead: Callable[[], object] | None = None) -> FaultyTable:
    """The replies to transactions are lost; or they never arrive, and something else happens."""
    if instead is None:
        return FaultyTable(bench.client, fault(lost_reply(), when="after", of=TRANSACTIONS))
    return FaultyTable(bench.client, fault(lost_reply(), then=instead, of=TRANSACTIONS))


def does_nothing(*_args: object, **_named: object) -> None:
    """A protection that is switched off."""


@PROTECTED
def test_the_waiter_of_a_hand_off_whose_reply_was_lost_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    """The repeated release finds only that its holder is out, and nothing of the waiter."""
    if not protected:
        monkeypatch.setattr(hand_off, "_wake_if_it_holds", does_nothing)
    bench.store().acquire(acquire("anna"))
    bench.wait("ben")
    with pytest.raises(LockStoreUnavailable):
        bench.store(losing_hand_offs(bench)).release(release("anna"))
    assert isinstance(bench.store().release(release("anna")), Released)
    assert bench.holders() == ["ben"]
    assert bench.pushed == (["ben"] if protected else [])


def test_no_one_is_told_of_a_hand_off_that_did_not_happen(bench: Bench) -> None:
    bench.store().acquire(acquire("anna"))
    bench.wait("ben")
    with pytest.raises(LockStoreUnavailable):
        bench.store(losing_hand_offs(bench, does_nothing)).release(release("anna"))
    assert (bench.holders(), bench.pushed) == (["anna"], [])


@PROTECTED
@pytest.mark.parametrize("arn", [None, OTHER_RUN])
def test_a_hand_off_that_another_call_made_and_told_of_is_left_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arn: str | None, *, protected: bool
) -> None:
    """Both hand-offs would grant the same token to the same waiter: a read cannot tell them apart.

    So the second push finds a task token that is used up, which proves nothing.
    """
    if not protected:
        monkeypatch.setattr(hand_off, "_send", takes_a_lost_reply_for_written)
    bench.store().acquire(acquire("anna", lease_ms=5_000))
    bench.wait("ben", execution_arn=arn)
    bench.clock.advance(10)
    uses = iter((Delivery.DELIVERED,))
    bench.workflows.wakes = lambda _token, _grant: next(uses, Delivery.GONE)
    network = losing_hand_offs(bench, lambda: bench.store().release(release("anna")))
    with suppress(LockStoreUnavailable):
        bench.store(network).acquire(acquire("carl"))
    holders = [(h.owner_name, h.is_undelivered) for h in bench.store().read_state(LOCK).holders]
    assert (holders == [("ben", False)]) is protected
    assert bench.pushed[:2] == ["ben", "ben"]


_send = hand_off._send  # noqa: SLF001 - the control replaces it


def takes_a_lost_reply_for_written(*args: Any) -> Any:  # noqa: ANN401 - as the real one
    try:
        return _send(*args)
    except LockStoreUnavailable:
        return Written({}, sent=0.0, date_ms=None)


def test_a_hand_off_that_lands_late_is_found_by_the_waiters_next_poll(bench: Bench) -> None:
    """No one is left to tell the waiter: a known limit."""
    bench.store().acquire(acquire("anna", lease_ms=600_000))
    bench.wait("ben")
    wire = late(bench, "SET #mine = :holder", lambda store: store.release(release("anna")))
    assert wire.land()
    assert isinstance(bench.store().release(release("anna")), Released)
    assert (bench.holders(), bench.pushed) == (["ben"], [])
    assert isinstance(bench.wait("ben"), Grant)


@PROTECTED
def test_a_heartbeat_takes_a_free_lock_again_that_a_late_join_has_left_contended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    if not protected:
        monkeypatch.setattr(keep_alive, "hand_over", does_nothing)
    wire = confirmation_of_a_waiter_that_left(bench)
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    bench.reap()
    assert wire.land()
    bench.redrive()
    outcome = bench.store().keep_alive(workflow_heartbeat("anna"))
    assert outcome is (KeepAliveOutcome.REACQUIRED if protected else KeepAliveOutcome.LOST)


@PROTECTED
def test_a_heartbeat_that_takes_away_that_mark_leaves_the_lock_to_who_came_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    if not protected:
        monkeypatch.setattr(keep_alive, "_may_retake", lambda *_: True)
    wire = confirmation_of_a_waiter_that_left(bench)
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    bench.reap()
    assert wire.land()
    bench.redrive()
    comes_first = FaultyTable(
        bench.client, meanwhile(5, lambda: bench.store().acquire(acquire("ben")))
    )
    outcome = bench.store(comes_first).keep_alive(workflow_heartbeat("anna"))
    assert (outcome is KeepAliveOutcome.LOST) is protected
    assert (bench.holders() == ["ben"]) is protected


@PROTECTED
@pytest.mark.parametrize("arn", [None, RUN])
def test_a_call_that_stalls_leaves_the_task_token_of_the_next_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arn: str | None, *, protected: bool
) -> None:
    """Its caller has given it up: a hand-off must wake the call that is awaited."""
    if not protected:
        monkeypatch.setattr(queue, "SLACK_MS", 3_600_000)
    bench.store().acquire(acquire("holder"))
    calls = [
        acquire("anna", waits=True, task_token=token, execution_arn=arn)
        for token in ("first", "second")
    ]

    def passes_by() -> None:
        bench.clock.advance(2)
        assert isinstance(bench.store().acquire(calls[1]), Queued)

    stalls_at = 2 if arn is None else 3  # Refused the permit, about to join.
    answer = bench.store(FaultyTable(bench.client, meanwhile(stalls_at, passes_by))).acquire(
        calls[0]
    )
    assert isinstance(answer, Queued)
    bench.store().release(release("holder"))
    assert bench.pushed == ["second" if protected else "first"]


@PROTECTED
def test_a_call_whose_departed_lock_was_redated_leaves_the_task_token_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    """Others have left the lock while it stalled, and its claim says that it is still wanted."""
    if not protected:
        monkeypatch.setattr(queue, "SLACK_MS", 3_600_000)
    bench.store().acquire(acquire("holder"))
    calls = [
        acquire("anna", waits=True, task_token=token, execution_arn=RUN)
        for token in ("first", "second")
    ]

    def passes_by() -> None:
        bench.clock.advance(2)
        assert isinstance(bench.store().acquire(calls[1]), Queued)
        bench.store().release(release("xeno", waits=True))

    bench.store(FaultyTable(bench.client, meanwhile(2, passes_by))).acquire(calls[0])
    bench.store().release(release("holder"))
    assert bench.pushed == ["second" if protected else "first"]


def test_a_quick_call_by_a_clock_that_is_behind_puts_its_task_token(bench: Bench) -> None:
    bench.store().acquire(acquire("holder"))
    bench.wait("anna", task_token="first")
    bench.clock.skew_ms = -5_000
    bench.wait("anna", task_token="second")
    bench.store().release(release("holder"))
    assert bench.pushed == ["second"]


@PROTECTED
def test_a_departure_that_lands_late_lets_no_late_acquire_in(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    """Carl's departure was sent before ben's, by less than the slack."""
    if not protected:
        monkeypatch.setattr("fairlock.protocol.waiters.LEFT_LAST_OF_ALL", LEFT_LAST)
    acquires = Wire(bench.client, "SET #mine = :holder")
    bench.store(acquires).acquire(acquire("ben"))
    bench.clock.advance(0.5)
    leaves = Wire(bench.client, "SET #last_given_up = :me", held_back=True)
    with suppress(LockStoreUnavailable):
        bench.store(leaves).release(release("carl", waits=True))
    bench.clock.advance(0.7)
    bench.store().release(release("ben"))
    bench.store().acquire(acquire("dora"))
    bench.store().release(release("dora"))  # Ben's own mark is gone, so the time alone protects.
    leaves.land()
    assert acquires.land() is not protected


@pytest.mark.parametrize("waits", [True, False])
def test_a_late_acquire_is_refused_once_its_release_has_left_a_mark(
    bench: Bench, *, waits: bool
) -> None:
    """Without `queue`, a release that finds nothing writes nothing: a known limit."""
    wire = late(bench, "SET #mine = :holder", lambda store: store.acquire(acquire("anna")))
    bench.clock.advance(2)
    bench.store().release(release("anna", waits=waits))
    assert wire.land() is not waits


# A repeated release gives the first answer again, and a stranger's release changes no answer.


def test_a_release_is_told_again_until_another_owner_releases(bench: Bench) -> None:
    bench.store().acquire(acquire("anna"))
    bench.store().release(release("anna"))
    repeated = Released(lock_name=LOCK, owner_id=owner("anna"), held_ms=None)
    assert bench.store().release(release("anna")) == repeated
    bench.store().acquire(acquire("ben"))
    assert bench.store().release(release("anna")) == repeated
    bench.store().release(release("ben"))
    assert bench.store().release(release("anna")) == NotHeld(lock_name=LOCK, owner_id=owner("anna"))


HOURS_OF_A_CLAIM_AND_MORE_SECONDS = 3_700
both_guards = pytest.mark.parametrize("keep_alive", [False, True])


def after_others(bench: Bench, **fields: Any) -> Released | NotHeld:  # noqa: ANN401 - of a release
    """Anna, a workflow, has released; three others came and went; her release comes again."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    if fields.get("keep_alive"):
        bench.store().keep_alive(workflow_heartbeat("anna"))
    assert isinstance(bench.store().release(release("anna", execution_arn=RUN, **fields)), Released)
    for name in ("ben", "carl", "dora"):
        bench.clock.advance(1)
        bench.store().acquire(acquire(name))
        bench.store().release(release(name))
    return bench.store().release(release("anna", execution_arn=RUN, **fields))


@both_guards
def test_a_workflows_release_is_answered_as_before_no_matter_who_came_and_went_since(
    bench: Bench, *, keep_alive: bool
) -> None:
    assert isinstance(after_others(bench, keep_alive=keep_alive), Released)


@both_guards
def test_without_the_mark_in_its_claim_the_repeat_would_count_as_a_loss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, keep_alive: bool
) -> None:
    monkeypatch.setattr("fairlock.store.release.gave_back_before", lambda _: False)
    assert isinstance(after_others(bench, keep_alive=keep_alive), NotHeld)


@both_guards
def test_a_workflow_that_lost_its_lock_is_told_so_by_every_repeat(
    bench: Bench, *, keep_alive: bool
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    bench.clock.advance(HOURS_OF_A_CLAIM_AND_MORE_SECONDS)
    bench.grant("ben")
    lost = NotHeld(lock_name=LOCK, owner_id=owner("anna"))
    again = release("anna", execution_arn=RUN, keep_alive=keep_alive)
    assert [bench.store().release(again) for _ in range(2)] == [lost, lost]


def test_a_claim_that_kept_alive_is_done_once_its_lock_is_free_so_the_reaper_passes_over_it(
    bench: Bench,
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.store().release(release("anna", execution_arn=RUN, keep_alive=True))
    assert (bench.claims(), len(bench.claims(done=True))) == ([], 1)


def stranger_after_anna(bench: Bench) -> None:
    """Anna releases; then a stranger releases what it never had, by a ticket that it made up."""
    bench.store().acquire(acquire("anna"))
    bench.store().release(release("anna"))
    bench.clock.advance(1)
    bench.store().release(release("stranger", waits=True, ticket=0))


def test_a_strangers_release_leaves_the_answer_to_a_repeat_alone(bench: Bench) -> None:
    stranger_after_anna(bench)
    assert isinstance(bench.store().release(release("anna")), Released)


def test_a_strangers_release_opens_the_lock_to_no_late_acquire(bench: Bench) -> None:
    stranger_after_anna(bench)
    assert isinstance(bench.store().acquire(acquire("anna")), Refusal)


def test_if_it_left_the_mark_of_a_release_a_late_acquire_would_be_granted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_released(*arguments: object, **fields: object) -> object:
        update = mark_given_up(*arguments, **fields)  # type: ignore[arg-type]  # passed through
        names = {"#last_given_up": "last_released"}
        return type(update)(
            **{
                **{name: getattr(update, name) for name in update.__slots__},
                "names": {**update.names, **names},
            }
        )

    monkeypatch.setattr("fairlock.store.release.mark_given_up", as_released)
    stranger_after_anna(bench)
    bench.grant("anna")


def test_who_gave_up_before_its_acquire_landed_is_refused_all_the_same(bench: Bench) -> None:
    bench.store().release(release("anna", waits=True))
    assert isinstance(bench.store().acquire(acquire("anna")), Refusal)
