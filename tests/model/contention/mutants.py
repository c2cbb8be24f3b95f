"""Mutants of the queue and of takeover."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairlock.protocol import admission, items, leaving, outcomes, waiters
from fairlock.protocol.admission import (
    NO_CEILING,
    NOBODY_CAME_IN,
    PERMIT_FREE,
    Unlearned,
    not_outdated,
)
from fairlock.protocol.model import LockState, Waiter
from fairlock.protocol.schema import I_DO_NOT_HOLD, NEXT_TOKEN, NOT_CONTENDED
from fairlock.store import acquire, administration, hand_off, keep_alive, queue, release
from fairlock.store.keep_alive import ExpiredHolders
from fairlock.store.seen_queue import SeenQueue
from tests.model.contention import weak_functions
from tests.model.contention.clients import Client
from tests.model.contention.configurations import (
    A_CALL_IS_LATE,
    A_HEARTBEAT_IS_LATE,
    A_NEWEST_DIES,
    A_POLLING_NEWEST_DIES,
    A_WAITER_CALLS_LATE,
    LOWERS,
    OLGA,
    ONE_GIVES_UP_LATE,
    PAUL,
    RAISED_OVER_ONE_WHO_GIVES_UP,
    READERS_AND_A_WRITER,
    RESUME_AND_A_NEWEST_DIES,
    TWO_NEWEST,
    VERSIONS,
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

_ONE_COPY: Final = (Fault.COPY,)
_NOT_OUTDATED: Final = not_outdated(0).condition
_THREE: Final = workflows(3)
_ANNA, _BEN, _CARL = _THREE
_ALWAYS: Final = "(attribute_not_exists(#newest) OR :version = :version)"
_THE_GRANT_SEEN: Final = "#departing_token = :seen_grant"
_OVER_AS_SEEN: Final = "#over0.#h_revision = :seen0"
_SAME_TOKEN: Final = NEXT_TOKEN.removesuffix(" + :one")
_LIMIT_STAYS: Final = "#limit = if_not_exists(#limit, :limit)"
_WIDE_NARROW_WIDE: Final = (
    anna(limit=3, waits=False),
    ben(limit=2, waits=False),
    carl(limit=3, waits=False),
)
_TWO_NARROW_ONE_WIDE: Final = (_ANNA, _BEN, carl(limit=2))


def _mutant(
    breaks: Invariant,
    *patches: Patch,
    clients: tuple[Client, ...] = _THREE,
    faults: Faults = (),
) -> Mutant:
    return Mutant(breaks, Configuration("of a mutant", clients, faults), *patches)


_JOINS_BLINDLY: Final[Patch] = (acquire, "join", weak_functions.join_seeing_nothing_after)
"""What the confirmation of a join shows is a second protection beside the join's condition."""
_HANDS_OVER_TO_ANY: Final = weak(leaving, "serve_waiter", "#expires_at_ms = :seen_expires_at_ms")
"""To any waiter that has this key, even if it asked again."""

MUTANTS: Final[dict[str, Mutant]] = {
    "the queue is closed without wait_seq": _mutant(
        Invariant.WAKE_UP,
        weak(leaving, "close_queue", "#wait_seq = :wait_seq"),
        weak(leaving, "leave_without_successor", "#wait_seq = :wait_seq"),
    ),
    "a release does not ask whether a client waits": _mutant(
        Invariant.WAKE_UP, weak(release, "release_permit", NOT_CONTENDED)
    ),
    "neither joining nor what follows asks whether permits are out": _mutant(
        Invariant.WAKE_UP, weak(queue, "join_queue", "#held >= :limit"), _JOINS_BLINDLY
    ),
    "the push comes before the state": _mutant(
        Invariant.TOLD,
        (hand_off, "_send", weak_functions.send_pushing_first),
        clients=(_ANNA, ben(gives_up=True)),
    ),
    "a hand-off is two writes": _mutant(
        Invariant.QUEUE, (hand_off, "_send", weak_functions.send_in_two_writes)
    ),
    "joining is two writes, the waiter first": _mutant(
        Invariant.GONE,
        weak_functions.JOIN_IN_TWO_WRITES,
        faults=(Fault.LOST_REPLY,),
    ),
    "joining does not ask whether I hold": _mutant(
        Invariant.QUEUE, weak(queue, "join_queue", I_DO_NOT_HOLD), clients=(_ANNA, ben(polls=2))
    ),
    "the limit is compared with <>": _mutant(
        Invariant.LIMIT,
        weak(
            acquire,
            "acquire_permit",
            PERMIT_FREE,
            instead="(attribute_not_exists(#held) OR #held <> :limit)",
        ),
        clients=(anna(limit=2), ben(limit=2), _CARL),
    ),
    "the first write does not ask for a ceiling": _mutant(
        Invariant.CEILING, weak(acquire, "acquire_permit", NO_CEILING), clients=(_ANNA, PAUL)
    ),
    "a ceiling is set, and the fencing token stays": _mutant(
        Invariant.CEILING,
        weak(administration, "set_ceiling", NEXT_TOKEN, instead=_SAME_TOKEN),
        clients=(_ANNA, _BEN, PAUL),
    ),
    "a pause beside a hand-off that ignores the token": _mutant(
        Invariant.CEILING,
        weak(leaving, "serve_waiter", NOBODY_CAME_IN),
        clients=(_ANNA, _BEN, PAUL),
    ),
    "a ceiling is raised in the moment of a release": _mutant(
        Invariant.WAKE_UP,
        weak(
            leaving,
            "leave_without_successor",
            f"(#held > :limit OR ({NOBODY_CAME_IN} AND #held > :lowest))",
            instead="#held > :lowest",
        ),
        clients=(*workflows(3, limit=2), replace(PAUL, sets=(1, 2))),
    ),
    "a ceiling is lifted without a look at who joins": _mutant(
        Invariant.WAKE_UP,
        weak(administration, "raise_ceiling", NOT_CONTENDED),
        clients=(_ANNA, PAUL),
    ),
    "a ceiling is lifted over a holder that left in the same millisecond": _mutant(
        Invariant.WAKE_UP,
        weak(leaving, "raise_ceiling", "#held = :seen_held"),
        clients=(_ANNA, ben(polls=1, gives_up=True), carl(waits=False, pushed=False), PAUL),
    ),
    "a ceiling is raised over a waiter that gives up": Mutant(
        Invariant.WAKE_UP,
        RAISED_OVER_ONE_WHO_GIVES_UP,
        weak(leaving, "raise_ceiling", "attribute_not_exists(#released_at)"),
        # A second protection, unless the operator's process dies: it reads the queue again.
        (LockState, "is_full", lambda _: True),
    ),
    "a late copy of a pause comes after the resume": _mutant(
        Invariant.LIFTED,
        weak(administration, "set_ceiling", "attribute_not_exists(#last_ceiling)"),
        clients=(PAUL,),
        faults=_ONE_COPY,
    ),
    "a ceiling is lifted, and a reader comes in beside a writer": _mutant(
        Invariant.LIMIT,
        (hand_off, "next_step", weak_functions.next_step_by_the_waiters_limit),
        clients=(*READERS_AND_A_WRITER, LOWERS),
    ),
    "joining does not ask whether the ceiling still stands": _mutant(
        Invariant.WAKE_UP,
        weak(queue, "join_queue", NOBODY_CAME_IN),
        _JOINS_BLINDLY,
        clients=(anna(limit=2), ben(limit=3), replace(PAUL, sets=(1, 3))),
    ),
    "a resume leaves the mark of a newest that died": Mutant(
        Invariant.SUPERSEDED,
        RESUME_AND_A_NEWEST_DIES,
        (administration, "hand_over", weak_functions.hand_over_leaving_marks),
    ),
    "a hand-off ignores the last token": _mutant(
        Invariant.TOKENS,
        weak(leaving, "serve_waiter", "#fencing_token = :seen_token"),
        clients=(anna(limit=2, waits=False), *workflows(4, limit=2)[1:]),
    ),
    "a hand-off to the last waiter ignores wait_seq": _mutant(
        Invariant.WAKE_UP,
        weak(leaving, "serve_waiter", "#wait_seq = :wait_seq"),
        clients=(anna(limit=2), ben(limit=1), carl(limit=2), dora(limit=2)),
    ),
    "a hand-off to a remembered waiter ignores that it asked again": _mutant(
        Invariant.UNTOLD,
        _HANDS_OVER_TO_ANY,
        clients=(_ANNA, ben(remembers=True), carl(polls=1)),
    ),
    "an eviction ignores the revision": _mutant(
        Invariant.EVICTED,
        weak(leaving, "serve_waiter", _OVER_AS_SEEN, instead="attribute_exists(#over0)"),
        weak(leaving, "leave_without_successor", _OVER_AS_SEEN, instead="attribute_exists(#over0)"),
        clients=(anna(pushed=False, heartbeats=1), ben(polls=1)),
        faults=(Fault.EPOCH,),
    ),
    "an eviction does not ask whether the workflow runs": _mutant(
        Invariant.TOLD,
        (
            acquire,
            "check_expired_holders",
            lambda _context, _name, state, candidates, *, needed: ExpiredHolders(
                state=state, evictable=tuple(candidates[:needed])
            ),
        ),
        faults=(Fault.EPOCH,),
    ),
    "a cancel does not ask for a grant in between": _mutant(
        Invariant.ENDED,
        edited(release, "_stop_waiting", "_release_permit(context, request, check)[0]", "None"),
        clients=(_ANNA, ben(gives_up=True)),
    ),
    "an acquire ignores the clients that wait": _mutant(
        Invariant.ORDER,
        weak(acquire, "acquire_permit", NOT_CONTENDED),
        clients=(anna(limit=2), _BEN, carl(limit=2)),
    ),
    "the first write ignores the limit in force": _mutant(
        Invariant.LIMIT,
        weak(acquire, "acquire_permit", " AND #limit = :limit", instead=" "),
        clients=_WIDE_NARROW_WIDE,
    ),
    "a reader comes in beside a writer": _mutant(
        Invariant.LIMIT,
        weak(acquire, "acquire_permit", " AND #limit = :limit", instead=" "),
        clients=READERS_AND_A_WRITER,
    ),
    "a reader overtakes a writer that waits": _mutant(
        Invariant.ORDER,
        weak(acquire, "acquire_permit", NOT_CONTENDED),
        clients=READERS_AND_A_WRITER,
    ),
    "an acquire ignores the limits of the holders": _mutant(
        Invariant.LIMIT,
        (LockState, "limit_for", lambda _state, limit: limit),
        clients=_WIDE_NARROW_WIDE,
    ),
    "an acquire does not lower the limit in force": _mutant(
        Invariant.LIMIT, (items, "SET_LIMIT", _LIMIT_STAYS), clients=_WIDE_NARROW_WIDE
    ),
    "an acquire beside other limits ignores the last token": _mutant(
        Invariant.LIMIT,
        weak(acquire, "acquire_permit_as_seen", NOBODY_CAME_IN),
        clients=_WIDE_NARROW_WIDE,
    ),
    "raising the limit in force ignores the last token": _mutant(
        Invariant.IN_FORCE,
        (acquire, "acquire_permit_as_seen", weak_functions.acquire_permit_raising_at_any_time),
        clients=(
            anna(limit=3, waits=False),
            ben(limit=2, waits=False),
            carl(limit=2, waits=False),
            dora(limit=3, waits=False),
        ),
    ),
    "a takeover ignores the last token": _mutant(
        Invariant.LIMIT,
        weak(acquire, "take_over_permit", NOBODY_CAME_IN),
        clients=(anna(limit=2, waits=False), ben(limit=1, waits=False), carl(limit=2, waits=False)),
        faults=(Fault.CRASH, Fault.EPOCH),
    ),
    "a hand-off ignores the limits of the holders": _mutant(
        Invariant.LIMIT,
        (hand_off, "next_step", weak_functions.next_step_by_the_waiters_limit),
        (LockState, "is_full", lambda _: False),
        clients=_TWO_NARROW_ONE_WIDE,
    ),
    "a hand-off does not lower the limit in force": _mutant(
        Invariant.LIMIT,
        (items, "SET_LIMIT", _LIMIT_STAYS),
        clients=(anna(limit=2), ben(limit=1), carl(limit=2, waits=False)),
    ),
    "joining does not ask whether the holders with a lower limit still hold": _mutant(
        Invariant.WAKE_UP,
        weak(queue, "join_queue", NOBODY_CAME_IN),
        _JOINS_BLINDLY,
        clients=(anna(limit=1, waits=False), ben(limit=2, waits=False), carl(limit=2)),
    ),
    "a join is not confirmed": _mutant(
        Invariant.WAKE_UP,
        (queue, "confirm_join", weak_functions.confirm_nothing),
        faults=(Fault.LATE_JOIN,),
    ),
    "a join is confirmed by a read": _mutant(
        Invariant.WAKE_UP,
        weak_functions.JOIN_CONFIRMED_BY_A_READ,
        faults=(Fault.LATE_JOIN,),
    ),
    "a release by force does not ask whether the grant is there": _mutant(
        Invariant.LIMIT,
        weak(administration, "release_by_force", _THE_GRANT_SEEN),
        clients=(_ANNA, OLGA),
    ),
    "a release by force names the owner and not the grant": _mutant(
        Invariant.EVICTED,
        weak(
            administration,
            "release_by_force",
            _THE_GRANT_SEEN,
            instead="attribute_exists(#departing)",
        ),
        clients=(anna(waits=False, pushed=False), ben(waits=False, pushed=False), OLGA),
        faults=(Fault.LOST_REPLY, Fault.EPOCH),
    ),
    "a release by force does not ask whether a client waits": _mutant(
        Invariant.WAKE_UP,
        weak(administration, "release_by_force", NOT_CONTENDED),
        clients=(_ANNA, _BEN, OLGA),
    ),
    "a heartbeat moves the end of the lease back": Mutant(
        Invariant.END,
        A_HEARTBEAT_IS_LATE,
        weak(
            keep_alive,
            "renew",
            "#mine.#h_expires_at_ms <= :expires_at_ms",
            instead="attribute_exists(#mine)",
        ),
    ),
    "an acquire does not ask who left after it was sent": _mutant(
        Invariant.ENDED, weak(acquire, "acquire_permit", _NOT_OUTDATED), faults=_ONE_COPY
    ),
    "a call that is late goes again on the state it was shown": Mutant(
        Invariant.ENDED,
        A_CALL_IS_LATE,
        (outcomes, "is_outdated", lambda *_args, **_kwargs: False),
    ),
    "a call that is late joins the queue": Mutant(
        Invariant.QUEUE, A_WAITER_CALLS_LATE, (queue, "SLACK_MS", TICKS * EPOCH_MS)
    ),
    "a join does not ask who left after it was sent": Mutant(
        Invariant.GONE, ONE_GIVES_UP_LATE, weak(queue, "join_queue", _NOT_OUTDATED)
    ),
    "giving up does not tell when": Mutant(
        Invariant.ENDED, ONE_GIVES_UP_LATE, (waiters, "LEFT_NOW", "#limit = #limit")
    ),
    "a departure that was held up sets its time back": Mutant(
        Invariant.GONE,
        ONE_GIVES_UP_LATE,
        (leaving, "LEFT_LAST", "attribute_exists(#held)"),
        (waiters, "LEFT_LAST_OF_ALL", "attribute_exists(#held)"),
    ),
    "a ticket is believed": _mutant(
        Invariant.ORDER,
        weak(queue, "join_queue", "attribute_exists(#pk)"),
        clients=(_ANNA, _BEN, carl(pushed=False, forges=True)),
    ),
    "a hand-off ignores that a waiter before the last one may have asked again": _mutant(
        Invariant.ORDER,
        (SeenQueue, "has_passed_over", False),
        clients=(anna(pushed=False, heartbeats=1), ben(pushed=False, polls=1), _CARL),
        faults=(Fault.EPOCH,),
    ),
    "a hand-off ignores that the waiter asked again": _mutant(
        Invariant.UNTOLD,
        _HANDS_OVER_TO_ANY,
        # Of the last waiter that was seen, wait_seq tells, too. So carl waits behind ben.
        clients=(_ANNA, ben(polls=1), _CARL),
    ),
    "a grant goes below a version that was granted": Mutant(
        Invariant.NEWEST,
        VERSIONS,
        (admission, "NOT_SUPERSEDED", _ALWAYS),
        (LockState, "supersedes", lambda _state, _version: False),
    ),
    "a newest that died while it waited stays the newest": Mutant(
        Invariant.SUPERSEDED, A_NEWEST_DIES, (Unlearned, "of", lambda *_args: None)
    ),
    "a waiter is refused while it is unknown whether the newest lives": Mutant(
        Invariant.SUPERSEDED,
        A_NEWEST_DIES,
        (LockState, "is_telling", lambda _state, *, date_ms: date_ms < 0),
    ),
    "a hand-off to a waiter that polls sets the newest": Mutant(
        Invariant.SUPERSEDED,
        A_POLLING_NEWEST_DIES,
        (
            Waiter,
            "marks_newest",
            property(lambda waiter: waiter.request.only_newest is not None),
        ),
    ),
    "a holder is told that it is superseded": Mutant(
        Invariant.ENDED, TWO_NEWEST, (acquire, "judge", weak_functions.judge_versions_first)
    ),
}
