"""The protocol with one protection taken away, and what then breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from leasehold.protocol import next_step as settling
from leasehold.protocol import queue
from leasehold.protocol.expressions import I_DO_NOT_HOLD, NOT_CONTENDED, PERMIT_FREE
from leasehold.store import acquire as acquisition
from leasehold.store import hand_over as vacating
from leasehold.store import join as joining
from leasehold.store import release as releasing
from tests.model.contention import weakened as mutations
from tests.model.contention.clients import Client
from tests.model.contention.configurations import workflows
from tests.model.contention.faults import Faults
from tests.model.contention.invariants import Property
from tests.model.contention.weakened import without

_WAIT_SEQ: Final = "#wait_seq = :wait_seq"
_PERMITS_OUT: Final = "#held >= :limit"
_REVISION: Final = "#departing.#revision = :revision"
_THREE: Final = workflows(3)
_ANNA, _BEN, _CARL = _THREE


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A weaker protocol.

    Attributes:
        breaks: the property that the search must find broken.
        clients: who shows it.
        faults: what must go wrong for that.
        patches: what is replaced: module, name, and by what.
    """

    breaks: Property
    patches: tuple[tuple[ModuleType, str, Any], ...]
    clients: tuple[Client, ...] = _THREE
    faults: Faults = field(default_factory=Faults)

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module, name, replacement in self.patches:
                stack.enter_context(patch.object(module, name, replacement))
            yield


def _weak(module: ModuleType, name: str, condition: str, **instead: str) -> tuple[Any, ...]:
    return module, name, without(condition, vars(module)[name], **instead)


def _wait_seq_ignored() -> tuple[Any, ...]:
    names = ("close_queue", "leave_and_close_queue")
    return tuple(_weak(settling, name, _WAIT_SEQ) for name in names)


def _revision_ignored() -> tuple[Any, ...]:
    names = ("hand_over_permit", "leave_without_successor", "leave_and_close_queue")
    exists = "attribute_exists(#departing)"
    return tuple(_weak(settling, name, _REVISION, instead=exists) for name in names)


_JOINING_AS_SKETCHED: Final = ((acquisition, "join", mutations.join_in_two_writes),)

MUTANTS: Final[dict[str, Mutant]] = {
    "the queue is closed without wait_seq": Mutant(
        breaks=Property.WAKE_UP, patches=_wait_seq_ignored()
    ),
    "a release does not look whether somebody waits": Mutant(
        breaks=Property.WAKE_UP, patches=(_weak(releasing, "release_permit", NOT_CONTENDED),)
    ),
    "joining does not ask whether permits are out": Mutant(
        breaks=Property.WAKE_UP, patches=(_weak(joining, "join_queue", _PERMITS_OUT),)
    ),
    "the push comes before the state": Mutant(
        breaks=Property.TOLD,
        patches=((vacating, "_send", mutations.send_pushing_first),),
        clients=(_ANNA, Client(name="ben", gives_up=True)),
    ),
    "a hand-off is two writes": Mutant(
        breaks=Property.QUEUE, patches=((vacating, "_send", mutations.send_in_two_writes),)
    ),
    "joining is two writes, the waiter first": Mutant(
        breaks=Property.GONE, patches=_JOINING_AS_SKETCHED, faults=Faults(lost_replies=1)
    ),
    "joining does not ask whether I hold": Mutant(
        breaks=Property.QUEUE,
        patches=(_weak(joining, "join_queue", I_DO_NOT_HOLD),),
        clients=(_ANNA, Client(name="ben", polls=2)),
    ),
    "the limit is compared with <>": Mutant(
        breaks=Property.LIMIT,
        patches=(
            _weak(
                acquisition, "acquire_permit", PERMIT_FREE, instead=PERMIT_FREE.replace("<", "<>")
            ),
        ),
        clients=(Client(name="anna", limit=2), Client(name="ben", limit=2), _CARL),
    ),
    "a hand-off does not look at the last token": Mutant(
        breaks=Property.TOKENS,
        patches=(_weak(settling, "hand_over_permit", "#fencing_token = :seen_token"),),
        clients=(Client(name="anna", limit=2, waits=False), *workflows(4, limit=2)[1:]),
    ),
    "an eviction does not look at the revision": Mutant(
        breaks=Property.ROBBED,
        patches=_revision_ignored(),
        clients=(Client(name="anna", pushed=False, heartbeats=1), Client(name="ben", polls=1)),
        faults=Faults(epochs=1),
    ),
    "an eviction does not ask whether the workflow runs": Mutant(
        breaks=Property.TOLD,
        patches=((acquisition, "check_expired_holders", mutations.find_departures_without_asking),),
        faults=Faults(epochs=1),
    ),
    "a cancel does not look for a grant in between": Mutant(
        breaks=Property.ENDED,
        patches=((releasing, "_stop_waiting", mutations.stop_waiting_without_second_look),),
        clients=(_ANNA, Client(name="ben", gives_up=True)),
    ),
    "a claim ignores those who wait": Mutant(
        breaks=Property.ORDER,
        patches=(_weak(acquisition, "acquire_permit", NOT_CONTENDED),),
        clients=(_ANNA, _BEN, Client(name="carl", limit=2)),
    ),
    "a hand-off ignores that the waiter asked again": Mutant(
        breaks=Property.UNTOLD,
        patches=(
            (
                settling,
                "hand_over_permit",
                mutations.without_sight_of_waiter(queue.hand_over_permit),
            ),
        ),
        # Behind the last waiter that was seen wait_seq watches too; so somebody is behind ben.
        clients=(_ANNA, Client(name="ben", polls=1), _CARL),
    ),
}
