"""What may go wrong in one behaviour, and how often."""

from __future__ import annotations

import itertools
from dataclasses import astuple, dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often each thing may still happen.

    Attributes:
        crashes: a workflow ends in the middle, and so does what it runs; a polling caller stops.
        orphans: a workflow ends, but the handler that it called goes on.
        lost_replies: a request happened, but the caller does not hear of it, or is killed in this
            moment; it begins the operation again.
        lost_pushes: Step Functions does not take the answer.
        repeats: boto3 sends a write twice, and returns the second answer.
        epochs: so much time passes that all leases are over.
        late_joins: a join has happened, and its waiter is not seen by queries until its next step.
        copies: a write is given up after its time-out and sent again, and the first sending stays
            on the wire; or its caller begins the operation again.
        late_calls: an invocation of acquire is given up after its time-out and sent again; the
            first one reaches the function later, which then does all that an acquire does.
    """

    crashes: int = 0
    orphans: int = 0
    lost_replies: int = 0
    lost_pushes: int = 0
    repeats: int = 0
    epochs: int = 0
    late_joins: int = 0
    copies: int = 0
    late_calls: int = 0


CRASH, ORPHAN, LOST_REPLY, LOST_PUSH, REPEAT, EPOCH, LATE_JOIN, COPY, LATE_CALL = range(9)
LANDS: Final = 9
"""What a copy does when it may: it needs no allowance."""
HELD_BACK: Final = 10
"""As `COPY`, but no sending arrived: the caller begins again."""
NONE: Final = -1


class Budget:
    """Numbers for all rests of an allowance of faults; number 0 is the whole of it."""

    def __init__(self, allowed: Faults) -> None:
        whole = astuple(allowed)
        ranges = [range(most, -1, -1) for most in whole]
        self._rests = list(itertools.product(*ranges))
        numbers = {rest: number for number, rest in enumerate(self._rests)}
        self._after = [
            [
                numbers.get(tuple(left - (i == kind) for i, left in enumerate(rest)), NONE)
                for kind in range(len(whole))
            ]
            for rest in self._rests
        ]
        self._exhausted = [not any(rest) for rest in self._rests]
        self._spent = [
            tuple(most - left for most, left in zip(whole, rest, strict=True))
            for rest in self._rests
        ]

    def spend(self, rest: int, kind: int) -> int:
        """What is left after one more fault of this kind; NONE if there is none left."""
        return self._after[rest][kind]

    def exhausted(self, rest: int) -> bool:
        """Whether nothing more goes wrong."""
        return self._exhausted[rest]

    def spent(self, rest: int, *kinds: int) -> bool:
        """Whether any of these faults has happened."""
        return any(self._spent[rest][kind] for kind in kinds)
