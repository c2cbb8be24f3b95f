"""What a search is given: who acts, what may go wrong, what must hold; and mutants of the code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from tests.support.weakened import Patch


class Fault(StrEnum):
    """What may go wrong once; the text tells it in a trace."""

    CRASH = "dies"
    """A workflow ends in the middle, and so does what it runs; a polling caller stops."""
    ORPHAN = "dies, but its handler goes on"
    LOST_REPLY = "happens, but the caller is not told and begins again"
    """Or the caller is killed in this moment."""
    LOST_PUSH = "is lost"
    """Step Functions does not take the answer."""
    REPEAT = "is sent twice"
    """By boto3, which returns the second answer."""
    EPOCH = "time passes, until all leases of before are over"
    LATE_JOIN = "happens, but queries do not show its waiter yet"
    """Not until its caller's next step."""
    COPY = "is sent again after its time-out; the first sending stays on the wire"
    HELD_BACK = "stays on the wire; the caller begins again after its time-out"
    """What becomes of a `COPY`, too."""
    LANDS = "arrives late"
    """What a copy does when it may."""
    LATE_CALL = "calls, and calls again after its time-out; the first call stays on the wire"
    """The first invocation of acquire reaches its function later, which does all that it does."""
    STOP = "stopped"
    """At any time; calls under way go on."""
    STOP_AT_REST = "stopped while no call of it is under way"
    REDRIVE = "redriven"
    KILL = "killed after it"
    """A function dies after a request, or after the effect of an operation that is not recorded."""
    HANG = "is not waited for any more"
    """A workflow gives up a call, which goes on."""
    OUTDATED = "outdated"
    """Step Functions calls an execution running that was stopped."""
    TIMEOUT = "times out"
    """A callback, though its waiter is in the queue."""


Faults: TypeAlias = tuple[Fault, ...]
"""Those that may happen, or may still happen, in the order in which the scene names them."""


@cache
def spend(left: Faults, fault: Fault) -> Faults | None:
    """What may still happen after this fault; None if it may not happen."""
    if fault not in left:
        return None
    at = left.index(fault)
    return left[:at] + left[at + 1 :]


@cache
def spent(allowed: Faults, left: Faults) -> frozenset[Fault]:
    """What has happened."""
    return frozenset(fault for fault in allowed if left.count(fault) < allowed.count(fault))


@dataclass(frozen=True, slots=True)
class Scene:
    """One search.

    Attributes:
        faults: each may happen once; of some there are several.
        invariants: those that are checked.
        begin: the names of actors that have finished their first call, one after the other, when
            the search begins.
    """

    name: str
    actors: tuple[Any, ...]
    faults: Faults = ()
    invariants: frozenset[StrEnum] = frozenset()
    begin: tuple[str, ...] = ()


class Mutant:
    """The real code without one protection, a search that shows it, and the invariant it breaks."""

    def __init__(self, breaks: StrEnum, scene: Scene, *patches: Patch) -> None:
        self.breaks, self.patches = breaks, patches
        self.scene = replace(scene, invariants=frozenset({breaks}))
