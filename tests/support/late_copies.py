"""Copies of writes on a lock that land late: after their owner and others have come and gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from fairlock.clock import stored_end_ms
from fairlock.protocol.admission import LEFT_LAST, LEFT_LAST_OF_ALL, NO_GRANT_SINCE
from fairlock.protocol.grants import correct_grant
from fairlock.protocol.schema import MY_GRANT, WAIT_SEQ_UNMOVED
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, Operations, acquire, heartbeat, owner, release
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench, Wire, by_force, ceiling, copied, late

OUTDATED: Final = "(attribute_not_exists(#released_at) OR #released_at <= :outdated_at)"
DEPARTING: Final = "#departing_token = :seen_grant"
REVISION: Final = "#mine.#h_revision = :seen_revision"
STILL_REAPED: Final = (
    "#revision = :seen AND (attribute_exists(#fenced) OR attribute_exists(#ended))"
)
UNCHANGED: Final = "#last_ceiling.#change = :seen_change"
MARKS_RELEASED: Final = "#last_released = :me"
POLLING: Final = {"waits": True, "poll_interval_ms": 500}
ANNA: Final = ["anna"]
NO_ONE: Final[list[str]] = []

Scene = Callable[..., Wire]
"""Sends a write of which a copy stays on the wire, and all that comes before the copy lands."""


@dataclass(frozen=True)
class LateCopy:
    """A write whose copy is refused.

    Attributes:
        makers: the functions of the protocol that make it.
        by: the conditions that refuse the copy.
        sees: what is looked at.
        right: what is seen although the copy landed.
        wrong: what would be seen if the conditions were not there.
    """

    makers: str
    by: tuple[str, ...]
    scene: Scene
    variant: dict[str, Any]
    sees: Callable[[Bench], object]
    right: object
    wrong: object

    def __str__(self) -> str:
        return " ".join([self.scene.__name__, *map(str, self.variant.values())])


CASES: Final[list[LateCopy]] = []


def late_copy(
    makers: str,
    *by: str,
    sees: Callable[[Bench], object] = Bench.holders,
    right: object = ANNA,
    wrong: object = NO_ONE,
    **variant: Any,  # noqa: ANN401 - arguments of the scene
) -> Callable[[Scene], Scene]:
    """Makes a case of a scene. If it does not say otherwise, anna holds, and would be out."""

    def add(scene: Scene) -> Scene:
        CASES.append(LateCopy(makers, by, scene, variant, sees, right, wrong))
        return scene

    return add


def left_ms(bench: Bench) -> int:
    """What is left of the lease of the only holder, without the margin of what is stored."""
    (holder,) = bench.state.holders
    return int(holder.expires_at_ms - stored_end_ms(bench.clock.wall_ms(), 0))


def ceiling_of(bench: Bench) -> int | None:
    found = bench.state.ceiling
    return None if found is None else found.limit


def is_undelivered(bench: Bench) -> bool:
    return bench.state.holders[0].is_undelivered


def task_tokens(bench: Bench) -> list[str]:
    items = [*bench.claims(), *bench.client.waiters(LOCK)]
    return [item["task_token"]["S"] for item in items if "task_token" in item]


KEEPS_THE_TOKEN: Final[dict[str, Any]] = {
    "sees": task_tokens,
    "right": ["second"],
    "wrong": ["first"],
}


def passes(bench: Bench, name: str, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
    """An owner acquires, works for 2 s, and releases."""
    bench.grant(name, **fields)
    bench.clock.advance(2)
    bench.release(name, execution_arn=fields.get("execution_arn"))


def granted_again(bench: Bench, *, seconds: float, **fields: Any) -> None:  # noqa: ANN401 - same
    """Ben takes the lock over from anna and releases it, and anna is granted it again."""
    bench.grant("ben", limit=fields.get("limit", 1))
    bench.clock.advance(seconds)
    bench.release("ben")
    bench.clock.advance(seconds)
    bench.grant("anna", **fields)


@late_copy("acquire_permit", OUTDATED, right=[], wrong=ANNA)
def acquire_of_an_owner_that_left(bench: Bench) -> Wire:
    wire = late(bench, "SET #mine = :holder", lambda store: store.acquire(acquire("anna")))
    bench.clock.advance(2)
    passes(bench, "anna")
    passes(bench, "ben")
    return wire


@late_copy("acquire_permit_as_seen", "#released_at = :seen_released_at", right=[], wrong=ANNA)
def second_write_of_an_owner_that_gave_up(bench: Bench) -> Wire:
    passes(bench, "zoe")
    bench.own_clock.skew_ms = -3_000  # Her first write is refused, although she is alive.
    wire = late(bench, ":seen_released_at", lambda store: store.acquire(acquire("anna")))
    bench.own_clock.skew_ms = 0
    for name in ("anna", "xeno"):
        bench.clock.advance(1)
        bench.release(name, waits=True)
    return wire


@late_copy("take_over_permit", "#over0.#h_revision = :seen0", wrong=["ben"])
def takeover_from_a_holder_that_renewed(bench: Bench) -> Wire:
    bench.ask("anna", lease_ms=10_000)
    bench.clock.advance(13)
    wire = late(bench, "REMOVE #over0", lambda store: store.acquire(acquire("ben")))
    assert bench.renew("anna", lease_ms=10_000) is not None
    return wire


@late_copy(
    "evict",
    NO_GRANT_SINCE,
    LEFT_LAST,
    sees=lambda bench: sorted(bench.holders()),
    right=["anna", "long", "run"],
    wrong=["long", "run"],
)
def eviction_that_frees_no_room(bench: Bench) -> Wire:
    bench.ask("run", limit=3, execution_arn=OTHER_RUN, lease_ms=10_000)
    bench.ask("anna", limit=3, lease_ms=10_000)
    bench.ask("long", limit=3, lease_ms=900_000)
    bench.clock.advance(12.5)
    wire = copied(bench, "REMOVE #over0", lambda store: store.acquire(acquire("ben", limit=2)))
    bench.grant("anna", limit=3)
    return wire


@late_copy(
    "renew", "#mine.#h_expires_at_ms <= :expires_at_ms", sees=left_ms, right=60_000, wrong=40_000
)
def heartbeat_before_the_last(bench: Bench) -> Wire:
    beat = heartbeat("anna", lease_ms=60_000)
    bench.ask("anna")
    wire = copied(bench, "#h_expires_at_ms <= ", lambda store: store.heartbeat(beat))
    bench.clock.advance(20)
    bench.store().heartbeat(beat)
    return wire


@late_copy("renew_as_seen", REVISION, sees=left_ms, right=90_000, wrong=70_000)
def heartbeat_as_seen_before_the_last(bench: Bench) -> Wire:
    bench.ask("anna", lease_ms=90_000)
    wire = copied(bench, "= :seen_revision", lambda store: store.heartbeat(heartbeat("anna")))
    bench.clock.advance(20)
    bench.renew("anna")
    return wire


@late_copy(
    "correct_grant",
    "#mine.#h_revision = :revision",
    sees=left_ms,
    right=60_000,
    wrong=40_000,
    another_grant=False,
)
@late_copy("correct_grant", MY_GRANT, sees=left_ms, right=60_000, wrong=38_000, another_grant=True)
def correction_before(bench: Bench, *, another_grant: bool) -> Wire:
    bench.ask("anna")
    (holder,) = bench.state.holders
    correction = correct_grant(LOCK, holder, raises_token=False, now_ms=bench.clock.wall_ms())

    def correct(store: Operations) -> object:
        return store.context.table.update(correction)  # as a wrong clock would

    wire = copied(bench, "#h_acquired_at_ms = :now", correct)
    bench.clock.advance(20)
    if another_grant:
        bench.release("anna")
        granted_again(bench, seconds=1)
    else:
        bench.renew("anna")
    return wire


@late_copy("extend_lease", MY_GRANT, sees=left_ms, right=60_000, wrong=8_000)
def extension_of_an_earlier_grant(bench: Bench) -> Wire:
    bench.ask("anna", execution_arn=RUN, lease_ms=10_000)
    bench.clock.advance(12.5)
    wire = copied(bench, "= :seen_revision", lambda store: store.acquire(acquire("ben")))
    bench.release("anna", execution_arn=RUN)
    passes(bench, "zoe")
    bench.ask("anna", lease_ms=60_000)
    return wire


@late_copy("release_permit", MY_GRANT, names_grant=True, seconds=0.3)
@late_copy("release_permit", LEFT_LAST, names_grant=False, seconds=2)
def release_before_another_grant(bench: Bench, *, names_grant: bool, seconds: float) -> Wire:
    """Its sender gives it up, and others come and go in so many seconds."""
    grant = bench.grant("anna", lease_ms=10_000)
    bench.clock.advance(13)
    leaving = release("anna", fencing_token=grant.fencing_token if names_grant else None)
    wire = late(bench, MARKS_RELEASED, lambda store: store.release(leaving))
    granted_again(bench, seconds=seconds)
    return wire


@late_copy("release_permit still_reaped", STILL_REAPED)
def release_on_behalf_of_a_redriven_execution(bench: Bench) -> Wire:
    bench.wait("anna")
    bench.end()
    wire = Wire(bench.client, MARKS_RELEASED)
    bench.reap(client=wire)
    bench.redrive()
    assert bench.beat("anna") is KeepAliveOutcome.REACQUIRED
    return wire


@late_copy("release_by_force", DEPARTING)
def release_by_force_of_an_earlier_grant(bench: Bench) -> Wire:
    grant = bench.grant("anna", lease_ms=10_000)
    bench.clock.advance(13)
    forced = by_force(grant)
    wire = late(bench, "#last_forced_release", lambda store: store.force_release(forced))
    granted_again(bench, seconds=0.3)
    return wire


@late_copy("set_ceiling", UNCHANGED, sees=ceiling_of, right=None, wrong=0)
def pause_before_another_was_lifted(bench: Bench) -> Wire:
    bench.set_ceiling(5)
    wire = late(bench, "#ceiling = :ceiling", lambda store: store.change_ceiling(ceiling(0)))
    for limit in (0, None):
        bench.set_ceiling(limit, "paul")
    return wire


@late_copy("raise_ceiling", UNCHANGED, sees=ceiling_of, right=0, wrong=None)
def resume_before_another_pause(bench: Bench) -> Wire:
    bench.set_ceiling(0)
    wire = late(bench, "#last_ceiling", lambda store: store.change_ceiling(ceiling(None)))
    for limit in (None, 0):
        bench.set_ceiling(limit, "paul")
    return wire


@late_copy("join_queue", "#asked_at_ms <= :asked_at", **KEEPS_THE_TOKEN)
def join_with_an_older_task_token(bench: Bench) -> Wire:
    bench.ask("holder")
    first, second = (
        acquire("anna", waits=True, task_token=token, execution_arn=RUN)
        for token in ("first", "second")
    )
    wire = late(bench, "SET #contended = :yes", lambda store: store.acquire(first))
    bench.clock.advance(3)
    bench.store().acquire(second)
    return wire


@late_copy("join_queue", OUTDATED, sees=Bench.waiters, right=[], wrong=ANNA)
def join_of_a_waiter_that_left(bench: Bench) -> Wire:
    bench.ask("holder")
    wire = late(
        bench, "SET #contended = :yes", lambda store: store.acquire(acquire("anna", **POLLING))
    )
    for name in ("anna", "xeno"):
        bench.clock.advance(2)
        bench.release(name, waits=True)
    return wire


def confirmation_of_a_waiter_that_left(bench: Bench) -> Wire:
    bench.ask("holder")
    wire = Wire(bench.client, "nothing")
    confirm = FaultyTable(
        wire, meanwhile(4, lambda: setattr(wire, "text", "SET #contended = :yes"))
    )
    bench.store(confirm).acquire(acquire("anna", **POLLING))
    bench.release("anna", waits=True)
    bench.release("holder")
    return wire


@late_copy(
    "close_queue", WAIT_SEQ_UNMOVED, sees=attrgetter("state.contended"), right=True, wrong=False
)
def end_of_a_queue_that_others_joined(bench: Bench) -> Wire:
    assert confirmation_of_a_waiter_that_left(bench).land()
    wire = copied(bench, "REMOVE #contended", lambda store: store.acquire(acquire("ben")))
    bench.ask("carl", **POLLING)
    return wire


@late_copy(
    "mark_given_up",
    LEFT_LAST_OF_ALL,
    sees=attrgetter("state.last_given_up"),
    right=None,
    wrong=owner("anna"),
)
@late_copy(
    "give_up leave_queue",
    LEFT_LAST_OF_ALL,
    "#owner_id = :me",
    sees=attrgetter("state.last_released"),
    right=owner("zoe"),
    wrong=owner("anna"),
    joins=True,
)
def give_up_before_others_released(bench: Bench, *, joins: bool = False) -> Wire:
    if joins:
        bench.ask("holder")
        bench.ask("anna", **POLLING)
    ticket = {"ticket": bench.clock.wall_ms()} if joins else {}
    gives_up = release("anna", waits=True, **ticket)
    mark = f"SET {MARKS_RELEASED}" if joins else "SET #last_given_up = :me"
    wire = late(bench, mark, lambda store: store.release(gives_up))
    bench.clock.advance(2)
    if joins:
        bench.release("holder")
        bench.release("anna")
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


@late_copy("clear_waiters", "#expires_at_ms = :seen_expires_at_ms", sees=Bench.waiters)
def removal_of_a_waiter_that_came_back(bench: Bench) -> Wire:
    bench.ask("holder", lease_ms=600_000)
    for name, timeout_ms in (("anna", 1_000), ("ben", 300_000)):
        bench.wait(name, waiter_timeout_ms=timeout_ms, execution_arn=None)
    bench.clock.advance(120)
    text = "(attribute_not_exists(#pk) OR #expires_at_ms = :seen_expires_at_ms)"
    wire = late(bench, text, lambda store: store.release(release("holder")))
    bench.wait("anna", waiter_timeout_ms=1_000, execution_arn=None)
    return wire


@late_copy(
    "serve_waiter delete_waiter",
    DEPARTING,
    LEFT_LAST,
    NO_GRANT_SINCE,
    "#expires_at_ms = :seen_expires_at_ms",
    right=["holder"],
    wrong=ANNA,
)
def hand_off_to_a_waiter_that_was_served(bench: Bench) -> Wire:
    bench.ask("holder")
    bench.ask("anna", **POLLING)
    wire = late(bench, "SET #mine = :holder", lambda store: store.release(release("holder")))
    bench.release("holder")
    bench.clock.advance(2)
    bench.release("anna")
    granted_again(bench, seconds=2)
    bench.release("anna")
    passes(bench, "zoe")
    bench.ask("holder")
    return wire


@late_copy("leave_without_successor", "#over_token0 = :seen_grant", LEFT_LAST, WAIT_SEQ_UNMOVED)
def eviction_without_successor(bench: Bench) -> Wire:
    bench.ask("anna", lease_ms=10_000)
    bench.clock.advance(1)
    bench.ask("dead", waiter_timeout_ms=3_000, **POLLING)
    bench.clock.advance(14)
    wire = copied(bench, "REMOVE #over0", lambda store: store.acquire(acquire("ben")))
    bench.release("ben")
    bench.clock.advance(1)
    bench.ask("anna")
    return wire


@late_copy("mark_undelivered", MY_GRANT, sees=is_undelivered, right=False, wrong=True)
@late_copy(
    "mark_undelivered",
    "#mine.#h_revision = :one",
    sees=left_ms,
    right=600_000,
    wrong=59_000,
    renewed=True,
)
def mark_of_an_untold_grant(bench: Bench, *, renewed: bool = False) -> Wire:
    bench.gone("gone")
    bench.ask("holder")
    bench.wait("anna", task_token="gone", lease_ms=600_000 if renewed else 10_000)
    wire = copied(bench, "#h_undelivered = :yes", lambda store: store.release(release("holder")))
    if renewed:
        bench.wait("anna", task_token="there", lease_ms=600_000)
        return wire
    bench.clock.advance(12.5)
    bench.ask("carl")
    bench.wait("anna", task_token="there", lease_ms=10_000)
    bench.clock.advance(1)
    bench.release("carl")
    return wire
