"""Many waiters on one lock, through the store, with all requests counted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlock.aws.executions import Delivery
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.protocol.model import AcquireRequest, Grant, ReleaseRequest
from fairlock.protocol.outcomes import Queued, Refusal, Released
from fairlock.store.context import LockContext
from tests.support import TABLE, Operations, owner
from tests.support.faulty_table import FaultyTable
from tests.support.store_bench import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LONGEST_SECONDS = 120


@dataclass
class Waiters:
    """Waiters of one lock. A push is delivered to this process and remembered.

    Attributes:
        granted: names of the waiters that were notified of a grant, in order.
        tokens: their fencing tokens.
        requests: names of all requests to DynamoDB, in order.
    """

    client: DynamoDBClient
    lock_name: str
    limit: int = 1
    granted: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    requests: list[str] = field(init=False)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Makes the store."""
        counting: Any = FaultyTable(self.client)
        self.requests = counting.calls
        # Two minutes: on a busy machine a dozen threads get in each other's way for long.
        budget = RetryBudget(seconds=_LONGEST_SECONDS)
        table = LockTable(counting, TABLE, retry_budget=budget)
        workflows = FakeWorkflows(wakes=self._wake)
        self.store = Operations(LockContext(table=table, workflows=workflows, retry_budget=budget))

    def _wake(self, task_token: str, grant: Grant) -> Delivery:
        with self.mutex:
            self.granted.append(task_token)
            self.tokens.append(grant.fencing_token)
        return Delivery.DELIVERED

    def enter(self, name: str) -> Grant | Queued | Refusal:
        """Asks for the lock, and waits for it."""
        request = AcquireRequest(
            lock_name=self.lock_name,
            owner_id=owner(name),
            owner_name=name,
            lease_ms=600_000,
            limit=self.limit,
            waits=True,
            task_token=name,
        )
        return self.store.acquire(request)

    def leave(self, name: str) -> None:
        """Releases the lock."""
        request = ReleaseRequest(lock_name=self.lock_name, owner_id=owner(name))
        if not isinstance(self.store.release(request), Released):
            raise RuntimeError(f"{name} did not hold the lock")  # noqa: TRY004 - an answer, no type


def all_at_once(work: list[Any], *, threads: int) -> list[Any]:
    """Runs the calls from as many threads, which start together."""
    barrier = threading.Barrier(threads, timeout=_LONGEST_SECONDS)

    def share(calls: list[Any]) -> list[Any]:
        barrier.wait()
        return [call() for call in calls]

    with ThreadPoolExecutor(threads) as pool:
        shares = [work[i::threads] for i in range(threads)]
        return [
            answer
            for answers in pool.map(share, shares, timeout=_LONGEST_SECONDS)
            for answer in answers
        ]
