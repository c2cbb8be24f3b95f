"""Who takes part in a run of the census: clients, direct callers of functions, workflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import Final

from fairlock.protocol.model import (
    AcquireRequest,
    HeartbeatRequest,
    KeepAliveRequest,
    ReleaseRequest,
)
from tests.histories.late_network import Call
from tests.support import LOCK, owner

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
        has_versions: whether its acquisitions ask for the newest only.
        version: of this acquisition, which is the time when it began.
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
    has_versions: bool = False
    version: int | None = None

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
        self.version = None

    def begin(self, now_ms: int) -> None:
        """Notes that it asks once more, and with which version."""
        self.asked += 1
        self.listens = self.asked
        if self.has_versions and self.version is None:
            self.version = now_ms

    def acquire_request(self, random: Random) -> AcquireRequest:
        """What it asks for with this call."""
        by_token = self.kind == WORKFLOW or (self.kind == FUNCTION and self.waits)
        return replace(
            self._acquisition(),
            waits=self.waits,
            ticket=self.ticket,
            task_token=f"{self.owner_id}|{self.asked}" if by_token else None,
            poll_interval_ms=None if by_token or not self.waits else 2_000,
            waiter_timeout_ms=random.choice((15_000, 60_000)) if self.waits else None,
        )

    def heartbeat_request(self) -> HeartbeatRequest:
        """How a client, or a caller of the functions, renews."""
        return HeartbeatRequest(
            lock_name=LOCK,
            owner_id=self.owner_id,
            lease_ms=self.lease_ms,
            only_newest=self.version,
        )

    def keep_alive_request(self) -> KeepAliveRequest:
        """How a workflow renews."""
        assert self.arn is not None
        return KeepAliveRequest(
            acquisition=self._acquisition(),
            execution_arn=self.arn,
            task_token=f"{self.owner_id}|{self.asked}",
        )

    def release_request(self) -> ReleaseRequest:
        """How it leaves: repeats are as the first."""
        if self.leaves is None:
            by_handle = self.kind == CLIENT and self.token is not None
            self.leaves = ReleaseRequest(
                lock_name=LOCK,
                owner_id=self.owner_id,
                # As the client does, and as docs/without-cdk.md advises if an outcome is unknown.
                waits=not by_handle and (self.waits or self.status is Status.ASKING),
                ticket=None if by_handle else self.ticket,
                execution_arn=self.arn,
                keep_alive=self.keep_alive,
                fencing_token=self.token if by_handle else None,
            )
        return self.leaves

    def _acquisition(self) -> AcquireRequest:
        return AcquireRequest(
            lock_name=LOCK,
            owner_id=self.owner_id,
            owner_name=self.name,
            lease_ms=self.lease_ms,
            limit=self.limit,
            execution_arn=self.arn,
            only_newest=self.version,
        )


@dataclass(order=True)
class Message:
    """An event of an execution on its way to the reaper."""

    due_ms: int
    arn: str
    redrives: int
    second: bool


def some_callers(random: Random, *, only_keep_alive: bool, with_turns: bool) -> Iterator[Caller]:
    """Those of one run, with limits and leases of their own, and with versions if it has turns."""
    versions = random.choice((0, 0.5, 1)) if with_turns else 0
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
            has_versions=with_turns and random.random() < versions,
        )
