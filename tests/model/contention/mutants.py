"""Mutants of the queue and of takeover."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from fairlock.protocol import admission, items, leaving, outcomes, waiters
from fairlock.protocol.admission import (
    NO_CEILING,
    NO_GRANT_SINCE,
    PERMIT_FREE,
    Unlearned,
    not_outdated,
)
from fairlock.protocol.model import LockState, Waiter
from fairlock.protocol.schema import I_DO_NOT_HOLD, NEXT_TOKEN, NOT_CONTENDED, WAIT_SEQ_UNMOVED
from fairlock.store import acquire, administration, hand_off, keep_alive, queue, release
from fairlock.store.seen_queue import SeenQueue
from tests.model.contention import weak_functions
from tests.model.contention.clients import Client
from tests.model.contention.configurations import (
    CONFIGURATIONS,
    LOWERS,
    OLGA,
    PAUL,
    READERS_AND_A_WRITER,
    Configuration,
    anna,
    ben,
    carl,
    dora,
    workflows,
)
from tests.model.contention.invariants import Invariant
from tests.model.replay import EPOCH_MS, TICKS
from tests.model.scene import Fault, Faults, Mutant
from tests.support.weakened import Patch, edited, weak

_NOT_OUTDATED: Final = not_outdated(0).condition
_ALWAYS: Final = "(attribute_not_exists(#newest) OR :version = :version)"
_LIMIT_STAYS: Final = "#limit = if_not_exists(#limit, :limit)"
_OVER_AS_SEEN: Final = "#over0.#h_revision = :seen0"
_IS_OVER: Final = "attribute_exists(#over0)"
_THREE: Final = workflows(3)
_ANNA, _BEN, _CARL = _THREE
_ONE_PAUSES: Final = (_ANNA, _BEN, PAUL)
_ONE_FORCES: Final = (_ANNA, _BEN, OLGA)
_WIDE_NARROW_WIDE: Final = (
    anna(limit=3, waits=False),
    ben(limit=2, waits=False),
    carl(limit=3, waits=False),
)
_SCENES: Final = {scene.name: scene for scene in CONFIGURATIONS}
_ONE_GIVES_UP_LATE: Final = "a late copy beside a waiter that gives up"
_A_NEWEST_DIES: Final = "only the newest, and a workflow dies"


def _mutant(
    breaks: Invariant, clients: tuple[Client, ...] | str, *patches: Patch, faults: Faults = ()
) -> Mutant:
    """A mutant, and what shows it: these clients, or a search of the protocol by its name."""
    if isinstance(clients, str):
        return Mutant(breaks, _SCENES[clients], *patches)
    return Mutant(breaks, Configuration("of a mutant", clients, faults), *patches)


_first_write = partial(weak, acquire, "acquire_permit")
_join = partial(weak, queue, "join_queue")
_hand_off = partial(weak, leaving, "serve_waiter")
_leave = partial(weak, leaving, "leave_without_successor")
_force = partial(weak, administration, "release_by_force")
_HANDS_OVER_TO_ANY: Final = _hand_off("#expires_at_ms = :seen_expires_at_ms")
"""To any waiter that has this key, even if it asked again."""
_JOINS_BLINDLY: Final = edited(
    queue, "_join_again", "state = read_state(confirmed.item)", "state = entry.state"
)
"""What the confirmation of a join shows is a second protection beside the join's condition."""

MUTANTS: Final[dict[str, Mutant]] = {
    "the queue is closed without wait_seq": _mutant(
        Invariant.WAKE_UP,
        _THREE,
        weak(leaving, "close_queue", WAIT_SEQ_UNMOVED),
        _leave(WAIT_SEQ_UNMOVED),
    ),
    "a release does not ask whether a client waits": _mutant(
        Invariant.WAKE_UP, _THREE, weak(release, "release_permit", NOT_CONTENDED)
    ),
    "neither joining nor what follows asks whether permits are out": _mutant(
        Invariant.WAKE_UP, _THREE, _join("#held >= :limit"), _JOINS_BLINDLY
    ),
    "the push comes before the state": _mutant(
        Invariant.TOLD, (_ANNA, ben(gives_up=True)), weak_functions.PUSH_BEFORE_THE_STATE
    ),
    "a hand-off is two writes": _mutant(
        Invariant.QUEUE, _THREE, weak_functions.HAND_OFF_IN_TWO_WRITES
    ),
    "joining is two writes, the waiter first": _mutant(
        Invariant.GONE, _THREE, weak_functions.JOIN_IN_TWO_WRITES, faults=(Fault.LOST_REPLY,)
    ),
    "joining does not ask whether I hold": _mutant(
        Invariant.QUEUE, (_ANNA, ben(polls=2)), _join(I_DO_NOT_HOLD)
    ),
    "the limit is compared with <>": _mutant(
        Invariant.LIMIT,
        (anna(limit=2), ben(limit=2), _CARL),
        _first_write(PERMIT_FREE, instead="(attribute_not_exists(#held) OR #held <> :limit)"),
    ),
    "the first write does not ask for a ceiling": _mutant(
        Invariant.CEILING, (_ANNA, PAUL), _first_write(NO_CEILING)
    ),
    "a ceiling is set, and the fencing token stays": _mutant(
        Invariant.CEILING,
        _ONE_PAUSES,
        weak(administration, "set_ceiling", NEXT_TOKEN, instead=NEXT_TOKEN.removesuffix(" + :one")),
    ),
    "a pause beside a hand-off that ignores the token": _mutant(
        Invariant.CEILING, _ONE_PAUSES, _hand_off(NO_GRANT_SINCE)
    ),
    "a ceiling is raised in the moment of a release": _mutant(
        Invariant.WAKE_UP,
        (*workflows(3, limit=2), replace(PAUL, sets=(1, 2))),
        _leave(
            f"(#held > :limit OR ({NO_GRANT_SINCE} AND #held > :lowest))",
            instead="#held > :lowest",
        ),
    ),
    "a ceiling is lifted without a look at who joins": _mutant(
        Invariant.WAKE_UP, (_ANNA, PAUL), weak(administration, "raise_ceiling", NOT_CONTENDED)
    ),
    "a ceiling is lifted over a holder that left in the same millisecond": _mutant(
        Invariant.WAKE_UP,
        (_ANNA, ben(polls=1, gives_up=True), carl(waits=False, pushed=False), PAUL),
        weak(leaving, "raise_ceiling", "#held = :seen_held"),
    ),
    "a ceiling is raised over a waiter that gives up": _mutant(
        Invariant.WAKE_UP,
        "a ceiling is raised over a waiter that gives up before another one",
        weak(leaving, "raise_ceiling", "attribute_not_exists(#released_at)"),
        # A second protection, unless the operator's process dies: it reads the queue again.
        (LockState, "is_full", lambda _: True),
    ),
    "a late copy of a pause comes after the resume": _mutant(
        Invariant.LIFTED,
        (PAUL,),
        weak(administration, "set_ceiling", "attribute_not_exists(#last_ceiling)"),
        faults=(Fault.COPY,),
    ),
    "a ceiling is lifted, and a reader comes in beside a writer": _mutant(
        Invariant.LIMIT,
        (*READERS_AND_A_WRITER, LOWERS),
        (hand_off, "next_step", weak_functions.next_step_by_the_waiters_limit),
    ),
    "joining does not ask whether the ceiling still stands": _mutant(
        Invariant.WAKE_UP,
        (anna(limit=2), ben(limit=3), replace(PAUL, sets=(1, 3))),
        _join(NO_GRANT_SINCE),
        _JOINS_BLINDLY,
    ),
    "a resume leaves the mark of a newest that died": _mutant(
        Invariant.SUPERSEDED,
        "a lock is paused and resumed beside versions, and a workflow dies",
        (administration, "hand_over", weak_functions.hand_over_leaving_marks),
    ),
    "a hand-off ignores the last token": _mutant(
        Invariant.TOKENS,
        (anna(limit=2, waits=False), *workflows(4, limit=2)[1:]),
        _hand_off(NO_GRANT_SINCE),
    ),
    "a hand-off to the last waiter ignores wait_seq": _mutant(
        Invariant.WAKE_UP,
        (anna(limit=2), ben(limit=1), carl(limit=2), dora(limit=2)),
        _hand_off(WAIT_SEQ_UNMOVED),
    ),
    "a hand-off to a remembered waiter ignores that it asked again": _mutant(
        Invariant.UNTOLD, (_ANNA, ben(remembers=True), carl(polls=1)), _HANDS_OVER_TO_ANY
    ),
    "an eviction ignores the revision": _mutant(
        Invariant.EVICTED,
        (anna(pushed=False, heartbeats=1), ben(polls=1)),
        _hand_off(_OVER_AS_SEEN, instead=_IS_OVER),
        _leave(_OVER_AS_SEEN, instead=_IS_OVER),
        faults=(Fault.EPOCH,),
    ),
    "an eviction does not ask whether the workflow runs": _mutant(
        Invariant.TOLD,
        _THREE,
        edited(keep_alive, "check_expired_holders", "if holder.execution_arn is None", "if True"),
        faults=(Fault.EPOCH,),
    ),
    "a cancel does not ask for a grant in between": _mutant(
        Invariant.ENDED,
        (_ANNA, ben(gives_up=True)),
        edited(release, "_stop_waiting", "_release_permit(context, request, check)[0]", "None"),
    ),
    "an acquire ignores the clients that wait": _mutant(
        Invariant.ORDER, (anna(limit=2), _BEN, carl(limit=2)), _first_write(NOT_CONTENDED)
    ),
    "the first write ignores the limit in force": _mutant(
        Invariant.LIMIT, _WIDE_NARROW_WIDE, _first_write(" AND #limit = :limit", instead=" ")
    ),
    "a reader comes in beside a writer": _mutant(
        Invariant.LIMIT, READERS_AND_A_WRITER, _first_write(" AND #limit = :limit", instead=" ")
    ),
    "a reader overtakes a writer that waits": _mutant(
        Invariant.ORDER, READERS_AND_A_WRITER, _first_write(NOT_CONTENDED)
    ),
    "an acquire ignores the limits of the holders": _mutant(
        Invariant.LIMIT, _WIDE_NARROW_WIDE, (LockState, "limit_for", lambda _state, limit: limit)
    ),
    "an acquire does not lower the limit in force": _mutant(
        Invariant.LIMIT, _WIDE_NARROW_WIDE, (items, "SET_LIMIT", _LIMIT_STAYS)
    ),
    "an acquire beside other limits ignores the last token": _mutant(
        Invariant.LIMIT, _WIDE_NARROW_WIDE, weak(acquire, "acquire_permit_as_seen", NO_GRANT_SINCE)
    ),
    "raising the limit in force ignores the last token": _mutant(
        Invariant.IN_FORCE,
        (
            anna(limit=3, waits=False),
            ben(limit=2, waits=False),
            carl(limit=2, waits=False),
            dora(limit=3, waits=False),
        ),
        (acquire, "acquire_permit_as_seen", weak_functions.acquire_permit_raising_at_any_time),
    ),
    "a takeover ignores the last token": _mutant(
        Invariant.LIMIT,
        (anna(limit=2, waits=False), ben(limit=1, waits=False), carl(limit=2, waits=False)),
        weak(acquire, "take_over_permit", NO_GRANT_SINCE),
        faults=(Fault.CRASH, Fault.EPOCH),
    ),
    "a hand-off ignores the limits of the holders": _mutant(
        Invariant.LIMIT,
        (_ANNA, _BEN, carl(limit=2)),
        (hand_off, "next_step", weak_functions.next_step_by_the_waiters_limit),
        (LockState, "is_full", lambda _: False),
    ),
    "a hand-off does not lower the limit in force": _mutant(
        Invariant.LIMIT,
        (anna(limit=2), ben(limit=1), carl(limit=2, waits=False)),
        (items, "SET_LIMIT", _LIMIT_STAYS),
    ),
    "joining does not ask whether the holders with a lower limit still hold": _mutant(
        Invariant.WAKE_UP,
        (anna(limit=1, waits=False), ben(limit=2, waits=False), carl(limit=2)),
        _join(NO_GRANT_SINCE),
        _JOINS_BLINDLY,
    ),
    "a join is not confirmed": _mutant(
        Invariant.WAKE_UP,
        _THREE,
        edited(waiters, "confirm_join", "_JOIN", 'Part(sets="#wait_seq = #wait_seq")'),
        faults=(Fault.LATE_JOIN,),
    ),
    "a join is confirmed by a read": _mutant(
        Invariant.WAKE_UP,
        _THREE,
        weak_functions.JOIN_CONFIRMED_BY_A_READ,
        faults=(Fault.LATE_JOIN,),
    ),
    "a release by force does not ask whether the grant is there": _mutant(
        Invariant.LIMIT, (_ANNA, OLGA), _force("#departing_token = :seen_grant")
    ),
    "a release by force names the owner and not the grant": _mutant(
        Invariant.EVICTED,
        (anna(waits=False, pushed=False), ben(waits=False, pushed=False), OLGA),
        _force("#departing_token = :seen_grant", instead="attribute_exists(#departing)"),
        faults=(Fault.LOST_REPLY, Fault.EPOCH),
    ),
    "a release by force does not ask whether a client waits": _mutant(
        Invariant.WAKE_UP, _ONE_FORCES, _force(NOT_CONTENDED)
    ),
    "a heartbeat moves the end of the lease back": _mutant(
        Invariant.END,
        "a late copy beside a client that renews",
        weak(
            keep_alive,
            "renew",
            "#mine.#h_expires_at_ms <= :expires_at_ms",
            instead="attribute_exists(#mine)",
        ),
    ),
    "an acquire does not ask who left after it was sent": _mutant(
        Invariant.ENDED, _THREE, _first_write(_NOT_OUTDATED), faults=(Fault.COPY,)
    ),
    "a call that is late goes again on the state it was shown": _mutant(
        Invariant.ENDED,
        "a late call of a direct caller",
        (outcomes, "is_outdated", lambda *_args, **_kwargs: False),
    ),
    "a call that is late joins the queue": _mutant(
        Invariant.QUEUE,
        "a late call of a direct caller that waits",
        (queue, "SLACK_MS", TICKS * EPOCH_MS),
    ),
    "a join does not ask who left after it was sent": _mutant(
        Invariant.GONE, _ONE_GIVES_UP_LATE, _join(_NOT_OUTDATED)
    ),
    "giving up does not tell when": _mutant(
        Invariant.ENDED, _ONE_GIVES_UP_LATE, (waiters, "LEFT_NOW", "#limit = #limit")
    ),
    "a departure that was held up sets its time back": _mutant(
        Invariant.GONE,
        _ONE_GIVES_UP_LATE,
        (leaving, "LEFT_LAST", "attribute_exists(#held)"),
        (waiters, "LEFT_LAST_OF_ALL", "attribute_exists(#held)"),
    ),
    "a ticket is believed": _mutant(
        Invariant.ORDER,
        (_ANNA, _BEN, carl(pushed=False, forges=True)),
        _join("attribute_exists(#pk)"),
    ),
    "a hand-off ignores that a waiter before the last one may have asked again": _mutant(
        Invariant.ORDER,
        (anna(pushed=False, heartbeats=1), ben(pushed=False, polls=1), _CARL),
        (SeenQueue, "has_passed_over", False),
        faults=(Fault.EPOCH,),
    ),
    "a hand-off ignores that the waiter asked again": _mutant(
        # Of the last waiter that was seen, wait_seq tells, too. So carl waits behind ben.
        Invariant.UNTOLD,
        (_ANNA, ben(polls=1), _CARL),
        _HANDS_OVER_TO_ANY,
    ),
    "a grant goes below a version that was granted": _mutant(
        Invariant.NEWEST,
        "only the newest of those that wait",
        (admission, "NOT_SUPERSEDED", _ALWAYS),
        (LockState, "supersedes", lambda _state, _version: False),
    ),
    "a newest that died while it waited stays the newest": _mutant(
        Invariant.SUPERSEDED, _A_NEWEST_DIES, (Unlearned, "of", lambda *_args: None)
    ),
    "a waiter is refused while it is unknown whether the newest lives": _mutant(
        Invariant.SUPERSEDED,
        _A_NEWEST_DIES,
        (LockState, "is_telling", lambda _state, *, date_ms: date_ms < 0),
    ),
    "a hand-off to a waiter that polls sets the newest": _mutant(
        Invariant.SUPERSEDED,
        "only the newest, a client that polls dies, and leases end",
        (Waiter, "marks_newest", property(lambda waiter: waiter.request.only_newest is not None)),
    ),
    "a holder is told that it is superseded": _mutant(
        Invariant.ENDED,
        "only the newest of two permits, and a reply is lost",
        (acquire, "judge", weak_functions.judge_versions_first),
    ),
}
