"""Mutants of the queue and of takeover."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from leasehold.protocol import hand_over as hand_over_protocol
from leasehold.protocol import next_step
from leasehold.protocol.expressions import I_DO_NOT_HOLD, NOT_CONTENDED, PERMIT_FREE
from leasehold.store import acquire, hand_over, join, release
from tests.model.contention import weak_functions
from tests.model.contention.clients import Client
from tests.model.contention.configurations import Configuration, workflows
from tests.model.contention.faults import Faults
from tests.model.contention.invariants import Invariant
from tests.model.mutant import Mutant, Patch, weak

_NO_FAULTS: Final = Faults()
_THREE: Final = workflows(3)
_ANNA, _BEN, _CARL = _THREE


def _mutant(
    breaks: Invariant,
    *patches: Patch,
    clients: tuple[Client, ...] = _THREE,
    faults: Faults = _NO_FAULTS,
) -> Mutant:
    return Mutant(
        breaks, Configuration(name="of a mutant", clients=clients, faults=faults), patches
    )


def _each(
    module: ModuleType, names: tuple[str, ...], condition: str, instead: str = ""
) -> list[Patch]:
    return [weak(module, name, condition, instead=instead) for name in names]


MUTANTS: Final[dict[str, Mutant]] = {
    "the queue is closed without wait_seq": _mutant(
        Invariant.WAKE_UP,
        *_each(next_step, ("close_queue", "leave_without_successor"), "#wait_seq = :wait_seq"),
    ),
    "a release does not ask whether a client waits": _mutant(
        Invariant.WAKE_UP, weak(release, "release_permit", NOT_CONTENDED)
    ),
    "joining does not ask whether permits are out": _mutant(
        Invariant.WAKE_UP, weak(join, "join_queue", "#held >= :limit")
    ),
    "the push comes before the state": _mutant(
        Invariant.TOLD,
        (hand_over, "_send", weak_functions.send_pushing_first),
        clients=(_ANNA, Client(name="ben", gives_up=True)),
    ),
    "a hand-off is two writes": _mutant(
        Invariant.QUEUE, (hand_over, "_send", weak_functions.send_in_two_writes)
    ),
    "joining is two writes, the waiter first": _mutant(
        Invariant.GONE,
        (acquire, "join", weak_functions.join_in_two_writes),
        faults=Faults(lost_replies=1),
    ),
    "joining does not ask whether I hold": _mutant(
        Invariant.QUEUE,
        weak(join, "join_queue", I_DO_NOT_HOLD),
        clients=(_ANNA, Client(name="ben", polls=2)),
    ),
    "the limit is compared with <>": _mutant(
        Invariant.LIMIT,
        weak(acquire, "acquire_permit", PERMIT_FREE, instead=PERMIT_FREE.replace("<", "<>")),
        clients=(Client(name="anna", limit=2), Client(name="ben", limit=2), _CARL),
    ),
    "a hand-off ignores the last token": _mutant(
        Invariant.TOKENS,
        weak(next_step, "hand_over_permit", "#fencing_token = :seen_token"),
        clients=(Client(name="anna", limit=2, waits=False), *workflows(4, limit=2)[1:]),
    ),
    "an eviction ignores the revision": _mutant(
        Invariant.EVICTED,
        *_each(
            next_step,
            ("hand_over_permit", "leave_without_successor"),
            "#expired0.#revision = :seen0",
            instead="attribute_exists(#expired0)",
        ),
        clients=(Client(name="anna", pushed=False, heartbeats=1), Client(name="ben", polls=1)),
        faults=Faults(epochs=1),
    ),
    "an eviction does not ask whether the workflow runs": _mutant(
        Invariant.TOLD,
        (acquire, "check_expired_holders", weak_functions.check_no_expired_holder),
        faults=Faults(epochs=1),
    ),
    "a cancel does not ask for a grant in between": _mutant(
        Invariant.ENDED,
        (release, "_stop_waiting", weak_functions.stop_waiting_without_second_try),
        clients=(_ANNA, Client(name="ben", gives_up=True)),
    ),
    "an acquire ignores the clients that wait": _mutant(
        Invariant.ORDER,
        weak(acquire, "acquire_permit", NOT_CONTENDED),
        clients=(_ANNA, _BEN, Client(name="carl", limit=2)),
    ),
    "a hand-off ignores that the waiter asked again": _mutant(
        Invariant.UNTOLD,
        (
            next_step,
            "hand_over_permit",
            weak_functions.hand_over_to_any(hand_over_protocol.hand_over_permit),
        ),
        # Of the last waiter that was seen, wait_seq tells, too. So carl waits behind ben.
        clients=(_ANNA, Client(name="ben", polls=1), _CARL),
    ),
}
