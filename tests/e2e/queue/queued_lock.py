"""A lock that another caller holds, and workflows that wait for it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlock.aws.executions import NoWorkflows, StepFunctions, WorkflowEngine
from fairlock.aws.lock_table import LockTable
from fairlock.protocol.model import ReleaseRequest
from fairlock.store.context import LockContext
from tests.e2e.deployment import Deployment, wait_until
from tests.support.operations import Operations

HOLDER: Final = "a test"
_ENTERING: Final = threading.BoundedSemaphore(3)
"""Each call of a function beyond those at work is a cold start: a second of a processor."""


class Killed(BaseException):
    """The end of the process: no code of the project sees it coming, or goes on after it."""


@dataclass
class RemainingRequests:
    """How many requests a process still makes before it is killed."""

    requests: float

    def spend(self) -> None:
        if self.requests == 0:
            raise Killed
        self.requests -= 1


@dataclass
class KilledClient:
    """A boto3 client whose process is killed before one of its requests."""

    inner: Any
    remaining: RemainingRequests

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name == "exceptions":
            return attribute

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            self.remaining.spend()
            return attribute(**arguments)

        return call


@dataclass(frozen=True)
class QueuedLock:
    """One lock. Its first holder is no workflow, and in this process."""

    deployment: Deployment
    lock_name: str = field(default_factory=lambda: f"line/{uuid.uuid4()}")
    owner_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        with _ENTERING:
            self._call("Acquire", owner_name=HOLDER, lease_seconds=600)

    def start(self, machine: str, **inputs: object) -> str:
        """Starts a workflow that wants the lock, and tells when its work began and ended."""
        work = {"sleep": 0, "seconds": 0}
        return self.deployment.start(machine, {"lock": self.lock_name, **work, **inputs})

    def join(self, machine: str) -> str:
        """Starts a workflow and sees it into the queue."""
        with _ENTERING:
            execution = self.start(machine)
            self.await_waiters(lambda waiters: execution in waiters)
        return execution

    def join_polling(self, machine: str) -> str:
        """Starts a workflow that polls, and sees it refused once."""
        with _ENTERING:
            execution = self.start(machine)
            entered = self.deployment.states_entered
            wait_until(lambda: "Guard: Wait" in entered(execution), pause_seconds=0.1)
        return execution

    def await_waiters(self, condition: Callable[[Sequence[str]], bool]) -> None:
        wait_until(lambda: condition(self.waiters()), pause_seconds=0.1)

    def waiters(self) -> list[str]:
        return self.deployment.waiters(self.lock_name)

    def holders(self) -> list[str]:
        return self.deployment.holders(self.lock_name)

    def lease_ends_at(self) -> float:
        """The end of the only holder's lease, in epoch seconds."""
        [holder] = self.deployment.state(self.lock_name).holders
        return holder.expires_at_ms / 1000

    def shorten(self, *, lease_seconds: int) -> None:
        """Lets the holder's lease end so many seconds from now."""
        self._call("Heartbeat", lease_seconds=lease_seconds)

    def release(self) -> float:
        """Releases through the deployed function; answers when it was asked to."""
        asked_at = time.time()
        self._call("Release")
        return asked_at

    def release_untold(self) -> float:
        """Releases from here, and no one is notified of the hand-off."""
        asked_at = time.time()
        self._store(self._table_client(), NoWorkflows()).release(self._request())
        return asked_at

    def release_killed(self, *, after_requests: float, after_wakes: int = 0) -> bool:
        """Releases from here, and is killed after so many requests to the table, or to the waiter.

        Answers whether it was: a release that has to repeat a request makes more of them.
        """
        client = KilledClient(
            self.deployment.aws.client("stepfunctions"), RemainingRequests(after_wakes)
        )
        workflows = StepFunctions(lambda: client)  # type: ignore[arg-type,return-value]  # counts, then passes on
        table = KilledClient(self._table_client(), RemainingRequests(after_requests))
        try:
            self._store(table, workflows).release(self._request())
        except Killed:
            return True
        return False

    def began(self, execution_arn: str) -> float:
        """When a workflow's work began, after its end."""
        ended = self.deployment.ended(execution_arn, pause_seconds=0.5)
        assert ended.status == "SUCCEEDED", ended
        if "began_ms" in ended.output:
            return float(ended.output["began_ms"]) / 1000
        return float(ended.output["began"])

    def _table_client(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client("dynamodb")

    def _store(self, client: Any, workflows: WorkflowEngine) -> Operations:  # noqa: ANN401 - same
        table = LockTable(client, self.deployment.table_name)
        return Operations(LockContext(table=table, workflows=workflows))

    def _request(self) -> ReleaseRequest:
        return ReleaseRequest(lock_name=self.lock_name, owner_id=self.owner_id)

    def _call(self, operation: str, **more: object) -> None:
        answer = self.deployment.invoke(
            operation, lock_name=self.lock_name, owner_id=self.owner_id, **more
        )
        done = {"Acquire": "acquired", "Heartbeat": "renewed", "Release": "released"}[operation]
        assert answer[done] is True, answer
