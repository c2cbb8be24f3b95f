"""Scenes in which a write stays on the wire, until its owner and others have come and gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from fairlock.aws.executions import Delivery
from fairlock.clock import stored_end_ms
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.grants import correct_grant
from fairlock.protocol.model import ForceReleaseRequest, Grant
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, Operations, acquire, heartbeat, release
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench, Wire, copied, late, workflow_heartbeat

Scene = Callable[[Bench], Wire]
"""Sends a write of which a copy stays on the wire, and all that comes before the copy lands."""
Sight = Callable[[Bench], object]

MARKS_RELEASED: Final = "#last_released = :me"
POLLING: Final = {"waits": True, "poll_interval_ms": 500}


def state(bench: Bench) -> Any:  # noqa: ANN401 - of whatever attributes a sight is of
    return bench.store().read_state(LOCK)


def left_ms(bench: Bench) -> int:
    """What is left of the lease of the only holder, without the margin of what is stored."""
    (holder,) = state(bench).holders
    return int(holder.expires_at_ms - stored_end_ms(bench.clock.now_ms, 0))


def passes(bench: Bench, name: str, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
    """An owner acquires, works for 2 s, and releases."""
    assert isinstance(bench.store().acquire(acquire(name, **fields)), Grant)
    bench.clock.advance(2)
    bench.store().release(release(name, execution_arn=fields.get("execution_arn")))


def granted_again(bench: Bench, *, seconds: float, **fields: Any) -> None:  # noqa: ANN401 - same
    """Ben takes the lock over from anna and releases it, and anna is granted it again."""
    assert isinstance(bench.store().acquire(acquire("ben", limit=fields.get("limit", 1))), Grant)
    bench.clock.advance(seconds)
    bench.store().release(release("ben"))
    bench.clock.advance(seconds)
    assert isinstance(bench.store().acquire(acquire("anna", **fields)), Grant)


def acquire_of_an_owner_that_left(bench: Bench) -> Wire:
    wire = late(bench, "SET #mine = :holder", lambda store: store.acquire(acquire("anna")))
    bench.clock.advance(2)
    passes(bench, "anna")
    passes(bench, "ben")
    return wire


def second_write_of_an_owner_that_gave_up(bench: Bench) -> Wire:
    passes(bench, "zoe")
    bench.clock.skew_ms = -3_000  # Her first write is refused, although she is alive.
    wire = late(bench, ":seen_released_at", lambda store: store.acquire(acquire("anna")))
    bench.clock.skew_ms = 0
    for name in ("anna", "xeno"):
        bench.clock.advance(1)
        bench.store().release(release(name, waits=True))
    return wire


def takeover_from_a_holder_that_renewed(bench: Bench) -> Wire:
    bench.store().acquire(acquire("anna", lease_ms=10_000))
    bench.clock.advance(13)
    wire = late(bench, "REMOVE #over0", lambda store: store.acquire(acquire("ben")))
    assert bench.store().heartbeat(heartbeat("anna", lease_ms=10_000)) is not None
    return wire


def eviction_for_nobody(bench: Bench) -> Wire:
    bench.store().acquire(acquire("run", limit=3, execution_arn=OTHER_RUN, lease_ms=10_000))
    bench.store().acquire(acquire("anna", limit=3, lease_ms=10_000))
    bench.store().acquire(acquire("long", limit=3, lease_ms=900_000))
    bench.clock.advance(12.5)
    wire = copied(bench, "REMOVE #over0", lambda store: store.acquire(acquire("ben", limit=2)))
    assert isinstance(bench.store().acquire(acquire("anna", limit=3)), Grant)
    return wire


def heartbeat_before_the_last(bench: Bench) -> Wire:
    beat = heartbeat("anna", lease_ms=60_000)
    bench.store().acquire(acquire("anna"))
    wire = copied(bench, "#h_expires_at_ms <= ", lambda store: store.heartbeat(beat))
    bench.clock.advance(20)
    bench.store().heartbeat(beat)
    return wire


def heartbeat_as_seen_before_the_last(bench: Bench) -> Wire:
    bench.store().acquire(acquire("anna", lease_ms=90_000))
    wire = copied(bench, "= :seen_revision", lambda store: store.heartbeat(heartbeat("anna")))
    bench.clock.advance(20)
    bench.store().heartbeat(heartbeat("anna"))
    return wire


def correction_before_a_heartbeat(bench: Bench) -> Wire:
    bench.store().acquire(acquire("anna"))
    (holder,) = state(bench).holders
    correction = correct_grant(LOCK, holder, raises_token=False, now_ms=bench.clock.now_ms)

    def correct(store: Operations) -> object:
        return store.context.table.update(correction)  # as a wrong clock would

    wire = copied(bench, "#h_acquired_at_ms = :now", correct)
    bench.clock.advance(20)
    bench.store().heartbeat(heartbeat("anna"))
    return wire


def extension_of_an_earlier_grant(bench: Bench) -> Wire:
    bench.store().acquire(acquire("anna", execution_arn=RUN, lease_ms=10_000))
    bench.clock.advance(12.5)
    wire = copied(bench, "= :seen_revision", lambda store: store.acquire(acquire("ben")))
    bench.store().release(release("anna", execution_arn=RUN))
    passes(bench, "zoe")
    bench.store().acquire(acquire("anna", lease_ms=60_000))
    return wire


def release_before_another_grant(bench: Bench, *, names_grant: bool, seconds: float) -> Wire:
    """Its sender gives it up, and others come and go in so many seconds."""
    grant = bench.store().acquire(acquire("anna", lease_ms=10_000))
    assert isinstance(grant, Grant)
    bench.clock.advance(13)
    leaving = release("anna", fencing_token=grant.fencing_token if names_grant else None)
    wire = late(bench, MARKS_RELEASED, lambda store: store.release(leaving))
    granted_again(bench, seconds=seconds)
    return wire


def release_on_behalf_of_a_redriven_execution(bench: Bench) -> Wire:
    bench.wait("anna")
    bench.end()
    wire = Wire(bench.client, MARKS_RELEASED)
    bench.reap(client=wire)
    bench.redrive()
    assert bench.store().keep_alive(workflow_heartbeat("anna")) is KeepAliveOutcome.REACQUIRED
    return wire


def release_by_force_of_an_earlier_grant(bench: Bench) -> Wire:
    grant = bench.store().acquire(acquire("anna", lease_ms=10_000))
    assert isinstance(grant, Grant)
    bench.clock.advance(13)
    by_force = ForceReleaseRequest(
        lock_name=LOCK, fencing_token=grant.fencing_token, requested_by="dora", reason="a test"
    )
    wire = late(bench, "#last_forced_release", lambda store: store.force_release(by_force))
    granted_again(bench, seconds=0.3)
    return wire


def _ceiling(limit: int | None, by: str = "olga") -> SetCeilingRequest:
    return SetCeilingRequest(lock_name=LOCK, limit=limit, requested_by=by, reason="a test")


def ceiling_of(bench: Bench) -> int | None:
    found = state(bench).ceiling
    return None if found is None else int(found.limit)


def pause_before_another_was_lifted(bench: Bench) -> Wire:
    bench.store().change_ceiling(_ceiling(5))
    wire = late(bench, "#ceiling = :ceiling", lambda store: store.change_ceiling(_ceiling(0)))
    for limit in (0, None):
        bench.store().change_ceiling(_ceiling(limit, "paul"))
    return wire


def resume_before_another_pause(bench: Bench) -> Wire:
    bench.store().change_ceiling(_ceiling(0))
    wire = late(bench, "#last_ceiling", lambda store: store.change_ceiling(_ceiling(None)))
    for limit in (None, 0):
        bench.store().change_ceiling(_ceiling(limit, "paul"))
    return wire


def join_with_an_older_task_token(bench: Bench) -> Wire:
    bench.store().acquire(acquire("holder"))
    first, second = (
        acquire("anna", waits=True, task_token=token, execution_arn=RUN)
        for token in ("first", "second")
    )
    wire = late(bench, "SET #contended = :yes", lambda store: store.acquire(first))
    bench.clock.advance(3)
    bench.store().acquire(second)
    return wire


def join_of_a_waiter_that_left(bench: Bench) -> Wire:
    bench.store().acquire(acquire("holder"))
    wire = late(
        bench, "SET #contended = :yes", lambda store: store.acquire(acquire("anna", **POLLING))
    )
    for name in ("anna", "xeno"):
        bench.clock.advance(2)
        bench.store().release(release(name, waits=True))
    return wire


def confirmation_of_a_waiter_that_left(bench: Bench) -> Wire:
    bench.store().acquire(acquire("holder"))
    wire = Wire(bench.client, "nothing")
    confirm = FaultyTable(
        wire, meanwhile(4, lambda: setattr(wire, "text", "SET #contended = :yes"))
    )
    bench.store(confirm).acquire(acquire("anna", **POLLING))
    bench.store().release(release("anna", waits=True))
    bench.store().release(release("holder"))
    return wire


def end_of_a_queue_that_others_joined(bench: Bench) -> Wire:
    assert confirmation_of_a_waiter_that_left(bench).land()
    wire = copied(bench, "REMOVE #contended", lambda store: store.acquire(acquire("ben")))
    bench.store().acquire(acquire("carl", **POLLING))
    return wire


def give_up_before_others_released(bench: Bench, *, joins: bool = False) -> Wire:
    if joins:
        bench.store().acquire(acquire("holder"))
        bench.store().acquire(acquire("anna", **POLLING))
    ticket = {"ticket": bench.clock.now_ms} if joins else {}
    gives_up = release("anna", waits=True, **ticket)
    mark = f"SET {MARKS_RELEASED}" if joins else "SET #last_given_up = :me"
    wire = late(bench, mark, lambda store: store.release(gives_up))
    bench.clock.advance(2)
    if joins:
        bench.store().release(release("holder"))
        bench.store().release(release("anna"))
        bench.clock.advance(2)
    passes(bench, "zoe")
    return wire


def departure_of_a_waiter_of_the_dead(bench: Bench) -> Wire:
    bench.wait("holder", execution_arn=None)
    bench.wait("anna")
    bench.end()
    wire = Wire(bench.client, " | #owner_id = :me")
    bench.reap(client=wire)
    bench.wait("ben", execution_arn=OTHER_RUN)
    return wire


def removal_of_a_waiter_that_came_back(bench: Bench) -> Wire:
    bench.store().acquire(acquire("holder", lease_ms=600_000))
    for name, timeout_ms in (("anna", 1_000), ("ben", 300_000)):
        bench.wait(name, waiter_timeout_ms=timeout_ms, execution_arn=None)
    bench.clock.advance(120)
    text = "(attribute_not_exists(#pk) OR #expires_at_ms = :seen_expires_at_ms)"
    wire = late(bench, text, lambda store: store.release(release("holder")))
    bench.wait("anna", waiter_timeout_ms=1_000, execution_arn=None)
    return wire


def hand_off_to_a_waiter_that_was_served(bench: Bench) -> Wire:
    bench.store().acquire(acquire("holder"))
    bench.store().acquire(acquire("anna", **POLLING))
    wire = late(bench, "SET #mine = :holder", lambda store: store.release(release("holder")))
    bench.store().release(release("holder"))
    bench.clock.advance(2)
    bench.store().release(release("anna"))
    granted_again(bench, seconds=2)
    bench.store().release(release("anna"))
    passes(bench, "zoe")
    bench.store().acquire(acquire("holder"))
    return wire


def eviction_without_successor(bench: Bench) -> Wire:
    bench.store().acquire(acquire("anna", lease_ms=10_000))
    bench.clock.advance(1)
    bench.store().acquire(acquire("dead", waiter_timeout_ms=3_000, **POLLING))
    bench.clock.advance(14)
    wire = copied(bench, "REMOVE #over0", lambda store: store.acquire(acquire("ben")))
    bench.store().release(release("ben"))
    bench.clock.advance(1)
    bench.store().acquire(acquire("anna"))
    return wire


def mark_of_a_grant_that_nobody_was_told_of(bench: Bench) -> Wire:
    bench.workflows.wakes = lambda token, _: (
        Delivery.GONE if token == "gone" else Delivery.DELIVERED
    )
    bench.store().acquire(acquire("holder"))
    bench.wait("anna", task_token="gone", lease_ms=10_000)
    wire = copied(bench, "#h_undelivered = :yes", lambda store: store.release(release("holder")))
    bench.clock.advance(12.5)
    bench.store().acquire(acquire("carl"))
    bench.wait("anna", task_token="there", lease_ms=10_000)
    bench.clock.advance(1)
    bench.store().release(release("carl"))
    return wire


def claim_of_an_acquisition_that_is_done(bench: Bench) -> Wire:
    wire = Wire(bench.client, "SET #lock_name = :lock_name")
    bench.store(wire).acquire(acquire("anna", execution_arn=RUN))
    bench.store().release(release("anna", execution_arn=RUN))
    return wire


def done_under_a_pass(bench: Bench) -> Wire:
    bench.wait("anna")
    leaving = release("anna", execution_arn=RUN)
    wire = late(bench, "#done = if_not_exists(#done, :done)", lambda store: store.release(leaving))
    bench.end()
    bench.reap()
    return wire


def done_before_a_redrive(bench: Bench) -> Wire:
    wire = done_under_a_pass(bench)
    bench.redrive()
    bench.clock.advance(1)
    assert bench.store().keep_alive(workflow_heartbeat("anna")) is KeepAliveOutcome.REACQUIRED
    return wire


def removal_of_a_claim(bench: Bench) -> Wire:
    """The release names no execution, so the claim of its grant is removed."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    return late(bench, " | attribute_not_exists", lambda store: store.release(release("anna")))


def removal_of_a_claim_under_a_pass(bench: Bench) -> Wire:
    wire = removal_of_a_claim(bench)
    bench.end()
    bench.reap()
    return wire


def heartbeat_before_a_redrive(bench: Bench) -> Wire:
    bench.wait("anna")
    first = workflow_heartbeat("anna", "first")
    wire = late(bench, "SET #task_token", lambda store: store.keep_alive(first))
    bench.end()
    bench.reap()
    bench.redrive()
    bench.clock.advance(1)
    bench.store().keep_alive(workflow_heartbeat("anna", "second"))
    return wire


def end_of_work_that_has_ended(bench: Bench) -> Wire:
    bench.wait("anna")
    leaving = release("anna", execution_arn=RUN, keep_alive=True)
    wire = copied(bench, "#ended = :yes, #expiry_time", lambda store: store.release(leaving))
    bench.clock.advance(5)
    return wire


def stage_of_the_first_pass(bench: Bench, *, text: str) -> Wire:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    wire = Wire(bench.client, text)
    bench.reap(client=wire)
    bench.clock.advance(40)
    bench.reap(second=True)
    return wire


def fence_of_a_redriven_execution(bench: Bench) -> Wire:
    bench.wait("anna")
    bench.store().keep_alive(workflow_heartbeat("anna"))
    bench.end()
    wire = Wire(bench.client, "SET #fenced = :stage", held_back=True)
    with suppress(LockStoreUnavailable):
        bench.reap(client=wire)
    bench.redrive()
    return wire


def heartbeat_of_a_state_that_was_repeated(bench: Bench) -> Wire:
    bench.wait("anna")
    first = workflow_heartbeat("anna", "first")
    wire = late(bench, "SET #task_token", lambda store: store.keep_alive(first))
    bench.clock.advance(3)
    bench.store().keep_alive(workflow_heartbeat("anna", "second"))
    return wire


def redriven_and_over_again(bench: Bench) -> Wire:
    bench.wait("anna")
    bench.end()
    bench.reap()
    bench.redrive()
    beat = workflow_heartbeat("anna")
    wire = late(bench, "SET #mine = :holder", lambda store: store.keep_alive(beat))
    bench.end(redrives=1)
    for second in (False, True):
        bench.reap(second=second, redrives=1)
        bench.clock.advance(40)
    return wire


def renewal_under_a_fence(bench: Bench) -> Wire:
    assert fence_of_a_redriven_execution(bench).land()
    beat = workflow_heartbeat("anna", "first")
    wire = copied(bench, "= :seen_revision", lambda store: store.keep_alive(beat))
    bench.clock.advance(20)
    bench.store().keep_alive(workflow_heartbeat("anna", "second"))
    return wire


def last_released(bench: Bench) -> object:
    return state(bench).last_released


def last_given_up(bench: Bench) -> object:
    return state(bench).last_given_up


def task_tokens(bench: Bench) -> list[str]:
    items = [*bench.claims(), *bench.client.waiters(LOCK)]
    return [item["task_token"]["S"] for item in items if "task_token" in item]


def stages(bench: Bench) -> list[str]:
    return [claim["fenced"]["N"] for claim in bench.claims()]


def is_contended(bench: Bench) -> bool:
    return bool(state(bench).contended)


def is_undelivered(bench: Bench) -> list[bool]:
    return [holder.is_undelivered for holder in state(bench).holders]
