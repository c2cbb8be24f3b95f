"""A lock that a caller in this process holds, and workflows that wait for it."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import pytest

from fairlock.aws.executions import NoWorkflows, WorkflowEngine
from fairlock.aws.lock_table import LockTable
from fairlock.protocol.model import ReleaseRequest
from fairlock.store.context import LockContext
from tests.e2e.deployment import wait_until
from tests.e2e.lifetimes.contested_lock import CALLING, ContestedLock
from tests.support import Operations
from tests.support.faulty_table import Fault, FaultyTable, Killed, kill
from tests.support.store_bench import FakeWorkflows

HOLDER: Final = "a test"


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
