"""The lock protocol as this process uses it: its table, its clock, its judgement of others."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from leasehold.backoff import Random
from leasehold.client.arguments import require_callable, require_table_name
from leasehold.client.event_log import logging_errors
from leasehold.clock import Clock
from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry import RetryBudget
from leasehold.store.context import LockContext
from leasehold.store.events import Observe
from leasehold.store.lease_expiry import LeaseExpiry
from leasehold.store.lock_store import LockStore
from leasehold.workflows.engine import WorkflowEngine

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


class Connected(Protocol):
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
    """Makes stores over one table; each for one errand, with a deadline of its own.

    Attributes:
        connection: where the AWS clients come from.
        table_name: the lock table.
        clock: the present.
        lease_expiry: whose lease is over.
        observe: is told what happens besides the answers.
        random: source of jitter.
    """

    connection: Connected
    table_name: str
    clock: Clock
    lease_expiry: LeaseExpiry
    observe: Observe
    random: Random = field(default=random.random)

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` if what the user gave breaks a rule."""
        require_table_name(self.table_name)
        require_callable("observe", self.observe)

    def context(self, *, deadline: float = math.inf) -> LockContext:
        """The world of an errand that must be done by a reading of the monotonic clock."""
        retry_budget = RetryBudget(deadline=deadline, clock=self.clock, random=self.random)
        return LockContext(
            table=LockTable(self.connection.dynamodb(), self.table_name, retry_budget=retry_budget),
            clock=self.clock,
            lease_expiry=self.lease_expiry,
            workflows=self.connection.workflows,
            observe=logging_errors(self.observe),
            retry_budget=retry_budget,
            random=self.random,
        )

    def retry_budget(self, *, seconds: float) -> RetryBudget:
        """For repeats of a whole operation whose outcome is unknown."""
        return RetryBudget(
            seconds=seconds,
            clock=self.clock,
            random=self.random,
            first_pause_seconds=_FIRST_PAUSE_SECONDS,
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
        )

    def store(self, *, deadline: float = math.inf) -> LockStore:
        """The operations of a lock, for such an errand."""
        return LockStore(self.context(deadline=deadline))
