"""A client that dies, or is interrupted, at a chosen request of an operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry import RetryBudget
from leasehold.store.context import LockContext
from leasehold.store.lock_store import LockStore
from leasehold.workflows.engine import WorkflowEngine
from tests.support import TABLE, FakeClock
from tests.support.memory_table import MemoryTable

REQUESTS = ("update_item", "transact_write_items", "delete_item", "query")


class Killed(BaseException):
    """The process ended here."""


@dataclass
class CrashingClient:
    """Counts requests; at the ordered one it is killed, or lets somebody else go first."""

    inner: MemoryTable
    mutate: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
    count: int = 0
    kill_at: int | None = None
    kill_done: bool = False
    interrupt_at: int | None = None
    interruption: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name not in REQUESTS:
            return attribute
        return lambda **request: self._send(name, attribute, request)

    def kill(self, request_number: int, *, done: bool) -> None:
        self.count, self.kill_at, self.kill_done = 0, request_number, done

    def interrupt(self, request_number: int, interruption: Callable[[], None]) -> None:
        self.count, self.interrupt_at, self.interruption = 0, request_number, interruption

    def calm_down(self) -> None:
        self.kill_at = self.interrupt_at = None

    def _send(self, name: str, send: Callable[..., Any], request: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        self.count += 1
        if self.count == self.interrupt_at and self.interruption is not None:
            self.interrupt_at = None
            self.interruption()
        if self.count == self.kill_at and not self.kill_done:
            raise Killed
        if self.mutate is not None:
            request = self.mutate(name, request)
        response = send(**request)
        if self.count == self.kill_at:
            raise Killed
        return response


def queue_store(client: Any, clock: FakeClock, workflows: WorkflowEngine) -> LockStore:  # noqa: ANN401 - any client
    retry_budget = RetryBudget(clock=clock, random=lambda: 0.5)
    context = LockContext(
        table=LockTable(client, TABLE, retry_budget=retry_budget),
        clock=clock,
        workflows=workflows,
        retry_budget=retry_budget,
        random=lambda: 0.5,
    )
    return LockStore(context)
