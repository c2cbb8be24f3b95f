"""A herd of waiters on one lock, through the store, with the requests of everybody counted."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.dynamodb.lock_table import LockTable
from leasehold.protocol.model import (
    AcquireRequest,
    Grant,
    Queued,
    Refusal,
    Released,
    ReleaseRequest,
)
from leasehold.store.context import LockContext
from leasehold.store.lock_store import LockStore
from leasehold.workflows.engine import Delivery
from tests.support import TABLE, owner
from tests.support.workflows import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_ENTRY_MS = itertools.count(1_900_000_000_000)


@dataclass
class Herd:
    """Waiters of one lock. A push is delivered to this process and remembered.

    Requests are counted by the thread that made them, so that those of one operation can be told.
    """

    client: DynamoDBClient
    lock_name: str
    limit: int = 1
    granted: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        table = LockTable(_Counting(self.client, self), TABLE)  # type: ignore[arg-type]  # counts, then passes on
        self.store = LockStore(LockContext(table=table, workflows=FakeWorkflows(wakes=self._wake)))

    def _wake(self, task_token: str, grant: Grant) -> Delivery:
        with self.mutex:
            self.granted.append(task_token)
            self.tokens.append(grant.fencing_token)
        return Delivery.DELIVERED

    def count(self, operation: str) -> None:
        with self.mutex:
            self.requests[operation] += 1

    def enter(self, name: str) -> Grant | Queued | Refusal:
        """Asks for the lock in a moment of its own: the order of entry is known."""
        with self.mutex:
            entered_at_ms = next(_ENTRY_MS)
        return self.enter_at(name, entered_at_ms)

    def enter_at(self, name: str, entered_at_ms: int) -> Grant | Queued | Refusal:
        request = AcquireRequest(
            lock_name=self.lock_name,
            owner_id=owner(name),
            owner_name=name,
            lease_ms=600_000,
            limit=self.limit,
            entered_at_ms=entered_at_ms,
            waits=True,
            task_token=name,
        )
        return self.store.acquire(request)

    def leave(self, name: str) -> None:
        request = ReleaseRequest(lock_name=self.lock_name, owner_id=owner(name))
        assert isinstance(self.store.release(request), Released)


@dataclass
class _Counting:
    inner: Any
    herd: Herd

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name == "exceptions":
            return attribute

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            self.herd.count(name)
            return attribute(**arguments)

        return call


def all_at_once(work: list[Any], *, threads: int) -> list[Any]:
    """Runs the calls from as many threads, which start together."""
    barrier = threading.Barrier(threads)

    def share(calls: list[Any]) -> list[Any]:
        barrier.wait()
        return [call() for call in calls]

    with ThreadPoolExecutor(threads) as pool:
        shares = [work[i::threads] for i in range(threads)]
        return [answer for answers in pool.map(share, shares) for answer in answers]
