"""Locks of one test each: contended for by workflows and callers, held by a test, or at a gate."""

from __future__ import annotations

import math
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from fairlock.aws.executions import NoWorkflows, WorkflowEngine
from fairlock.aws.lock_table import LockTable
from fairlock.clock import DATE_RESOLUTION_MS, FRONT_END_MS
from fairlock.protocol.model import Holder, ReleaseRequest
from fairlock.store.context import LockContext
from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment, Ended, Json, wait_until
from tests.support import Operations
from tests.support.faulty_table import Fault, FaultyTable, Killed, kill
from tests.support.store_bench import FakeWorkflows

HOLDER: Final = "a test"
TOLERANCE_SECONDS: Final = FRONT_END_MS / 1000
OVER_SECONDS: Final = TOLERANCE_SECONDS + DATE_RESOLUTION_MS / 1000
"""From the stored end of a lease until every Date, cut to the second, says that it is over."""

CALLING: Final = threading.BoundedSemaphore(3)
"""Held in a stretch of a play that calls functions. Each call beyond those at work is a cold start,
which would keep a busy machine longer than the functions' timeouts."""
CALLING_AGAIN: Final = threading.BoundedSemaphore(2)
"""For a short stretch whose time has come; it does not stand behind plays that have not begun."""


@dataclass(frozen=True)
class ContestedLock:
    """A lock that no other scenario uses."""

    deployment: Deployment
    lock: str = field(default_factory=lambda: f"life/{uuid.uuid4()}")

    def start(self, machine: str, **inputs: object) -> str:
        return self.deployment.start(machine, {"lock": self.lock, **inputs})

    def start_inside(self, machine: str, **inputs: object) -> str:
        """Starts a workflow and sees it hold the lock."""
        execution = self.start(machine, **inputs)
        self.await_holder(execution)
        return execution

    def start_behind(self, machine: str, **inputs: object) -> str:
        """Starts a workflow and sees it in the queue, or past it if the holder left meanwhile."""
        execution = self.start(machine, **inputs)
        wait_until(
            lambda: (
                execution in (*self.waiters(), *self.holders())
                or not self.deployment.is_running(execution)
            ),
        )
        return execution

    def stop(self, execution_arn: str) -> float:
        """Stops it; tells when that was asked for."""
        asked_at = time.time()
        self.deployment.stop(execution_arn)
        return asked_at

    def ended(self, execution_arn: str) -> Ended:
        return self.deployment.ended(execution_arn)

    def await_holder(self, execution_arn: str) -> None:
        wait_until(lambda: execution_arn in self.holders())

    def await_waiters(self, number: int, *, seconds: float = LONGEST_WAIT_SECONDS) -> None:
        """Until so many executions are in the queue, or more."""
        wait_until(lambda: len(self.waiters()) >= number, seconds=seconds)

    def holders(self) -> list[str]:
        """Who holds the lock; no one if it was never used."""
        return self.deployment.holders(self.lock)

    def holder(self) -> Holder:
        [holder] = self.deployment.state(self.lock).holders
        return holder

    def held(self) -> int:
        return self.deployment.held(self.lock)

    def waiters(self) -> list[str]:
        return self.deployment.waiters(self.lock)

    def ask(self, *, owner_id: str = "", **terms: object) -> Json:
        """What a direct caller is told, who never asked before unless it is named."""
        owner_id = owner_id or str(uuid.uuid4())
        return self.deployment.invoke("Acquire", lock_name=self.lock, owner_id=owner_id, **terms)

    def release(self, owner_id: str) -> float:
        """On behalf of a direct caller that holds the lock; tells when that was asked for."""
        asked_at = time.time()
        answer = self.deployment.invoke("Release", lock_name=self.lock, owner_id=owner_id)
        assert answer["released"] is True, answer
        return asked_at

    def ask_until_granted(self) -> None:
        """One direct caller after the other asks, until one is granted."""
        wait_until(lambda: bool(self.ask()["acquired"]))


@dataclass(frozen=True)
class GatedLock(ContestedLock):
    """A lock at whose name a handler stops before one of its requests."""

    @classmethod
    def of(cls, deployment: Deployment, operation: str, requests: int) -> GatedLock:
        """The handler of "acquire" or "release" makes so many requests before it stops."""
        return cls(deployment, f"gate/{operation}/{requests}/{uuid.uuid4()}")

    def await_arrival(self) -> None:
        """Until the handler stands before the gate."""
        wait_until(self.beside(".entered").exists)

    def open(self) -> None:
        """Lets the handler go on, and sees it return."""
        self.beside(".open").touch()
        wait_until(self.beside(".left").exists)

    def beside(self, suffix: str) -> Path:
        """A file of this lock in the directory of the gates."""
        gates = Path(self.deployment.outputs["DyingWorkflows"]["Gates"])
        return gates / f"{self.lock.rpartition('/')[2]}{suffix}"


@dataclass(frozen=True)
class QueuedLock(ContestedLock):
    """One lock. Its first holder is no workflow."""

    owner_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        with CALLING:
            self.ask(owner_id=self.owner_id, owner_name=HOLDER, lease_seconds=3600)

    def start(self, machine: str, **inputs: object) -> str:
        """Starts a workflow that wants the lock, and tells when its work began and ended."""
        return super().start(machine, **{"sleep": 0, "seconds": 0, **inputs})

    def join(self, machine: str) -> str:
        """Starts a workflow and sees it into the queue, or refused once if it polls."""
        with CALLING:
            execution = self.start(machine)
            entered = self.deployment.states_entered
            wait_until(lambda: execution in self.waiters() or "Guard: Wait" in entered(execution))
        return execution

    def release(self, owner_id: str = "") -> float:
        """Releases through the deployed function; answers when it was asked to."""
        return super().release(owner_id or self.owner_id)

    def release_untold(self) -> None:
        """Releases from here, and no one is notified of the hand-off."""
        self._release_here(NoWorkflows())

    def release_killed(self, *, after_requests: float) -> None:
        """Releases from here, and is killed after so many requests to the table.

        With infinitely many it is killed when it would ask or tell Step Functions of the waiter.
        """
        plan = () if math.isinf(after_requests) else (kill(int(after_requests) + 1),)
        with pytest.raises(Killed):
            self._release_here(FakeWorkflows(wakes=_die, ends=_die, runs=_die), *plan)

    def _release_here(self, workflows: WorkflowEngine, *plan: Fault) -> None:
        client: Any = FaultyTable(self.deployment.aws.client("dynamodb"), *plan)
        table = LockTable(client, self.deployment.table_name)
        request = ReleaseRequest(lock_name=self.lock, owner_id=self.owner_id)
        Operations(LockContext(table=table, workflows=workflows)).release(request)

    def began(self, execution_arn: str) -> float:
        """When a workflow's work began, after its end."""
        ended = self.deployment.ended(execution_arn)
        assert ended.status == "SUCCEEDED", ended
        return float(ended.output["began_ms"]) / 1000


def _die(*_: object) -> NoReturn:
    raise Killed
