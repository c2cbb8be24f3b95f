"""Who takes part in a run of the census: clients, direct callers of functions, workflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final

from fairlock.protocol.model import ReleaseRequest
from tests.histories.late_network import Call
from tests.support import owner

CLIENT, FUNCTION, WORKFLOW = "client", "function", "workflow"
_LEASES_MS: Final = (5_000, 10_000, 20_000)
_ARN: Final = "arn:aws:states:us-east-1:123456789012:execution:billing:"


class Status(Enum):
    """What a caller knows of its acquisition."""

    IDLE = auto()
    ASKING = auto()
    """The outcome of its last call is unknown."""
    WAITING = auto()
    HOLDING = auto()
    LEAVING = auto()
    DEAD = auto()
    """Its execution is over, and not redriven so far."""


@dataclass
class Caller:
    """One caller, and its acquisition at this moment.

    Attributes:
        number: of its acquisitions.
        asked: calls of this acquisition so far.
        listens: the number of the call whose task token is awaited; 0 if none is.
        died_as: the status in which its execution ended.
        call: that is under way, and that its caller waits for.
    """

    name: str
    kind: str
    limit: int
    lease_ms: int
    waits: bool
    keep_alive: bool
    number: int = 0
    status: Status = Status.IDLE
    ticket: int | None = None
    token: int | None = None
    asked: int = 0
    listens: int = 0
    redrives: int = 0
    died_as: Status = Status.IDLE
    call: Call | None = None
    leaves: ReleaseRequest | None = None

    @property
    def owner_id(self) -> str:
        return owner(f"{self.name}{self.number}")

    @property
    def arn(self) -> str | None:
        return f"{_ARN}{self.name}{self.number}" if self.kind == WORKFLOW else None

    def next(self) -> None:
        """Begins with another acquisition, under another owner_id."""
        self.number, self.status = self.number + 1, Status.IDLE
        self.asked = self.listens = self.redrives = 0
        self.ticket = self.token = self.call = self.leaves = None


@dataclass(order=True)
class Message:
    """An event of an execution on its way to the reaper."""

    due_ms: int
    arn: str
    redrives: int
    second: bool


def some_callers(random: Random, *, only_keep_alive: bool) -> Iterator[Caller]:
    """Those of one run, with limits and leases of their own."""
    limits = random.choice(((1,), (1,), (1,), (2,), (3,), (1, 2), (1, 2, 3)))
    kinds = random.choice(
        ((CLIENT, FUNCTION, WORKFLOW), (WORKFLOW,), (CLIENT,), (FUNCTION, WORKFLOW))
    )
    for number in range(random.choice((3, 4, 5))):
        kind = WORKFLOW if only_keep_alive else random.choice(kinds)
        yield Caller(
            name=f"{kind}-{number}-",
            kind=kind,
            limit=random.choice(limits),
            lease_ms=5_000 if only_keep_alive else random.choice(_LEASES_MS),
            waits=kind == WORKFLOW or random.random() < 0.7,
            keep_alive=kind == WORKFLOW and (only_keep_alive or random.random() < 0.6),
        )
