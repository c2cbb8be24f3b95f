"""The lock protocol as a client uses it: over its table, with its clock and AWS clients."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from botocore.exceptions import BotoCoreError

from fairlock.backoff import Random
from fairlock.client.connection import Connection
from fairlock.client.local_waiters import LocalWaiters
from fairlock.client.logging import log_event
from fairlock.clock import Clock
from fairlock.dynamodb.aws_clock import AwsClock
from fairlock.dynamodb.failures import misconfigured
from fairlock.dynamodb.lock_table import LockTable
from fairlock.dynamodb.retry import RetryBudget, retry
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Released, ReleaseRequest, SeenLock
from fairlock.store.context import LockContext
from fairlock.store.lock_store import LockStore

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFactory:
    """Makes stores over one table; each for one request, with a deadline of its own.

    Attributes:
        connection: where the AWS clients come from.
        table_name: the lock table.
        clock: the present.
        aws_clock: the estimate of AWS's time, by all answers so far.
        local_waiters: are told of the hand-offs of this client.
        random: source of jitter.
    """

    connection: Connection
    table_name: str
    clock: Clock
    aws_clock: AwsClock
    local_waiters: LocalWaiters
    random: Random = field(default=random.random)

    def context(self, *, deadline: float = math.inf) -> LockContext:
        """What a request needs that must be done by a reading of the monotonic clock.

        Raises:
            LockStoreMisconfigured: no AWS client can be made, without a region for instance.
        """
        try:
            dynamodb = self.connection.dynamodb()
        except (BotoCoreError, ValueError) as error:
            raise misconfigured(error, table_name=self.table_name, region=None) from error
        retry_budget = RetryBudget(deadline=deadline, clock=self.clock, random=self.random)
        table = LockTable(
            dynamodb, self.table_name, retry_budget=retry_budget, aws_clock=self.aws_clock
        )
        return LockContext(
            table=table,
            workflows=self.connection.workflows,
            observe=log_event,
            note_hand_off=self.local_waiters.note,
            retry_budget=retry_budget,
            random=self.random,
        )

    def store(self, *, deadline: float = math.inf) -> LockStore:
        """The operations of a lock, for such a request."""
        return LockStore(self.context(deadline=deadline))

    def release(
        self, request: ReleaseRequest, *, seconds: float, seen: SeenLock | None = None
    ) -> bool:
        """Sends a release, again after each unknown outcome, until there is an answer.

        Args:
            request: what to release.
            seconds: how long to go on.
            seen: see `LockStore.release`.

        Returns:
            Whether this call may have released; after an attempt of unknown outcome also if the
            answer is "not held", which may well be the doing of that attempt.

        Raises:
            LockStoreUnavailable: no answer in time.
        """
        answer, attempts = self.repeat(
            lambda store, attempt: store.release(request, seen=seen if attempt == 1 else None),
            seconds=seconds,
        )
        return attempts > 1 or isinstance(answer, Released)

    def repeat(
        self, call: Callable[[LockStore, int], _Answer], *, seconds: float
    ) -> tuple[_Answer, int]:
        """Makes a call again after each unknown outcome, until there is an answer.

        Args:
            call: is given the store, and the number of the attempt, from 1.
            seconds: how long to go on.

        Returns:
            The answer, and how many attempts it took.

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
        attempts = 0

        def send() -> _Answer:
            nonlocal attempts
            attempts += 1
            return call(store, attempts)

        answer = retry(send, budget, repeat_after=lambda e: isinstance(e, LockStoreUnavailable))
        return answer, attempts
