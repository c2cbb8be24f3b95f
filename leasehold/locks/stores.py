"""The lock protocol as this process uses it: its table, its clock, its judgement of others."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from leasehold.backoff import Random
from leasehold.clock import Clock
from leasehold.context import LockContext
from leasehold.dynamo import LockTable
from leasehold.events import Observe
from leasehold.locks.arguments import require_callable, require_table_name
from leasehold.locks.journal import quietly
from leasehold.locks.lapses import Lapses
from leasehold.model import Grant, Liveness
from leasehold.patience import Patience
from leasehold.push import Pushed
from leasehold.store import LockStore

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Connected(Protocol):
    """Where the AWS clients come from."""

    def dynamodb(self) -> DynamoDBClient:
        """The client for the lock table."""
        ...

    def push(self, task_token: str, grant: Grant) -> Pushed:
        """Tells a waiting workflow."""
        ...

    def liveness_of(self, execution_arn: str) -> Liveness:
        """Asks whether a workflow runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Makes stores over one table; each for one errand, with a deadline of its own.

    Attributes:
        connection: where the AWS clients come from.
        table_name: the lock table.
        clock: the present.
        lapses: whose lease is over.
        observe: is told what happens besides the answers.
        random: source of jitter.
    """

    connection: Connected
    table_name: str
    clock: Clock
    lapses: Lapses
    observe: Observe
    random: Random = field(default=random.random)

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` if what the user gave breaks a rule."""
        require_table_name(self.table_name)
        require_callable("observe", self.observe)

    def context(self, *, deadline: float = math.inf) -> LockContext:
        """The world of an errand that must be done by a reading of the monotonic clock."""
        patience = Patience(deadline=deadline, clock=self.clock, random=self.random)
        return LockContext(
            table=LockTable(self.connection.dynamodb(), self.table_name, patience=patience),
            clock=self.clock,
            lapsed=self.lapses.lapsed,
            liveness_of=self.connection.liveness_of,
            push=self.connection.push,
            observe=quietly(self.observe),
            patience=patience,
            random=self.random,
        )

    def store(self, *, deadline: float = math.inf) -> LockStore:
        """The operations of a lock, for such an errand."""
        return LockStore(self.context(deadline=deadline))
