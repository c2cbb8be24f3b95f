"""What a state machine drives: the store over some DynamoDB, with faults that can be ordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ReadTimeoutError

from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry import RetryBudget
from leasehold.protocol.schema import lock_key
from leasehold.store.context import LockContext
from leasehold.store.lock_store import LockStore
from tests.support import TABLE, FakeClock

Mutation = Callable[[dict[str, Any]], dict[str, Any]]
Interruption = Callable[[], None]


@dataclass
class UnreliableClient:
    """Passes updates on; each fault is ordered for the operation that comes next.

    Attributes:
        mutate: changes each update on its way: how a wrong protocol is tried.
        lose_reply: whether the reply to the next write that happens gets lost.
        interruption: runs between the first and the second update of an operation.
        mutated: how many updates were changed on their way.
    """

    inner: Any
    mutate: Mutation | None = None
    lose_reply: bool = False
    interruption: Interruption | None = None
    updates: int = 0
    mutated: int = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        return getattr(self.inner, name)

    def update_item(self, **request: Any) -> Any:  # noqa: ANN401 - as boto3 takes it and answers
        self.updates += 1
        if self.updates == 2 and self.interruption is not None:
            interrupt, self.interruption = self.interruption, None
            interrupt()
        if self.mutate is not None:
            wrong = self.mutate(dict(request))
            self.mutated += wrong != request
            request = wrong
        response = self.inner.update_item(**request)
        if self.lose_reply:
            self.lose_reply = False
            raise ReadTimeoutError(endpoint_url="https://dynamodb.us-east-1.amazonaws.com")
        return response

    def begin(self, *, lose_reply: bool = False, interruption: Interruption | None = None) -> None:
        """Orders the faults of the next operation."""
        self.updates = 0
        self.lose_reply, self.interruption = lose_reply, interruption


@dataclass
class Bench:
    """One clock, one table, and the store on top."""

    dynamodb: Any
    mutate: Mutation | None = None
    tolerance_ms: int = 2_000
    clock: FakeClock = field(default_factory=FakeClock)
    client: UnreliableClient = field(init=False)
    store: LockStore = field(init=False)

    def __post_init__(self) -> None:
        self.client = UnreliableClient(self.dynamodb, self.mutate)
        retry_budget = RetryBudget(clock=self.clock, random=lambda: 0.5)
        table: Any = self.client
        context = LockContext(
            table=LockTable(table, TABLE, retry_budget=retry_budget),
            clock=self.clock,
            tolerance_ms=self.tolerance_ms,
            retry_budget=retry_budget,
            random=lambda: 0.5,
        )
        self.store = LockStore(context)

    def item(self, lock: str) -> dict[str, Any]:
        found = self.dynamodb.get_item(TableName=TABLE, Key=lock_key(lock), ConsistentRead=True)
        item: dict[str, Any] = found.get("Item", {})
        return item

    def delete(self, lock: str) -> None:
        self.dynamodb.delete_item(TableName=TABLE, Key=lock_key(lock))
