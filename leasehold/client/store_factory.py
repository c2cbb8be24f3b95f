"""The lock protocol as a client uses it: over its table, with its clock and AWS clients."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from leasehold.backoff import Random
from leasehold.client.logging import failsafe_observer
from leasehold.clock import Clock
from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry import RetryBudget, retry
from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.model import NotHeld, Released, ReleaseRequest
from leasehold.store.context import LockContext
from leasehold.store.events import Observe
from leasehold.store.lease_expiry import LeaseExpiry
from leasehold.store.lock_store import LockStore
from leasehold.workflows.engine import WorkflowEngine

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


class AwsConnection(Protocol):
    """Where the AWS clients come from."""

    def dynamodb(self) -> DynamoDBClient:
        """The client for the lock table."""
        ...

    @property
    def workflows(self) -> WorkflowEngine:
        """The engine of workflows that are met in a queue."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFactory:
    """Makes stores over one table; each for one request, with a deadline of its own.

    Attributes:
        connection: where the AWS clients come from.
        table_name: the lock table.
        clock: the present.
        lease_expiry: tells whose lease is over.
        observe: called with what happens besides the answers.
        random: source of jitter.
    """

    connection: AwsConnection
    table_name: str
    clock: Clock
    lease_expiry: LeaseExpiry
    observe: Observe
    random: Random = field(default=random.random)

    def context(self, *, deadline: float = math.inf) -> LockContext:
        """What a request needs that must be done by a reading of the monotonic clock."""
        retry_budget = RetryBudget(deadline=deadline, clock=self.clock, random=self.random)
        return LockContext(
            table=LockTable(self.connection.dynamodb(), self.table_name, retry_budget=retry_budget),
            clock=self.clock,
            lease_expiry=self.lease_expiry,
            workflows=self.connection.workflows,
            observe=failsafe_observer(self.observe),
            retry_budget=retry_budget,
            random=self.random,
        )

    def store(self, *, deadline: float = math.inf) -> LockStore:
        """The operations of a lock, for such a request."""
        return LockStore(self.context(deadline=deadline))

    def release(
        self,
        request: ReleaseRequest,
        *,
        seconds: float,
        on_unknown: Callable[[], None] = lambda: None,
    ) -> Released | NotHeld:
        """Sends a release, again after each unknown outcome, until there is an answer.

        Args:
            request: what to release.
            seconds: how long to go on.
            on_unknown: called after each unknown outcome.

        Raises:
            LockStoreUnavailable: no answer in time.
        """
        store = self.store(deadline=self.clock.monotonic() + seconds)
        budget = RetryBudget(
            seconds=seconds,
            clock=self.clock,
            random=self.random,
            first_pause_seconds=_FIRST_PAUSE_SECONDS,
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
        )

        def is_unknown(error: Exception) -> bool:
            if not isinstance(error, LockStoreUnavailable):
                return False
            on_unknown()
            return True

        return retry(lambda: store.release(request), budget, repeat_after=is_unknown)
