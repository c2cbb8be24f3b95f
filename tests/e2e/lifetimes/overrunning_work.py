"""Work that takes five times as long as its lease, and contenders that ask all the time."""

from __future__ import annotations

import itertools
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from fairlock.aws.executions import StepFunctions
from fairlock.aws.lock_table import LockTable
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import AcquireRequest, Liveness
from fairlock.protocol.outcomes import Grant
from fairlock.store.context import Event, Extended, LockContext
from testbed.localaws import LocalAws
from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment, Ended
from tests.e2e.lifetimes.contested_lock import ContestedLock, calling
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS
from tests.support.operations import Operations
from tests.support.workflows import FakeWorkflows

OVERRUN_SECONDS: Final = 5 * PLAIN_LEASE_SECONDS
CONTENDERS: Final = 3
_BETWEEN_KNOCKS_SECONDS: Final = 2.5
_REQUESTED_LEASE_MS: Final = 1000


@dataclass
class Contenders:
    """Direct callers in this process, on the deployed table; each is the first time here.

    Attributes:
        workflows: how they find out whether the holder's workflow runs.
        extended: how often they extended the holder's lease.
        refused: how often they were refused.
        granted_at: when one of them was granted the lock, in epoch seconds.
    """

    contested: ContestedLock
    workflows: FakeWorkflows
    events: list[Event] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    granted_at: float | None = None

    @property
    def extended(self) -> int:
        return sum(isinstance(event, Extended) for event in self.events)

    def knock(self) -> None:
        """Asks until one of them is granted."""
        context = LockContext(
            table=LockTable(_client(self.contested.deployment.aws, "dynamodb"), self._table_name),
            workflows=self.workflows,
            observe=self.events.append,
        )
        store = Operations(context)
        for number in itertools.count():
            try:
                answer = store.acquire(self._request(number))
            except LockStoreUnavailable:  # outcome unknown, on a machine that is very busy
                continue
            if isinstance(answer, Grant):
                self.granted_at = answer.acquired_at_ms / 1000
            if self.granted_at is not None:
                return
            self.refused.append(time.time())
            time.sleep(_BETWEEN_KNOCKS_SECONDS)

    @property
    def _table_name(self) -> str:
        return self.contested.deployment.table_name

    def _request(self, number: int) -> AcquireRequest:
        return AcquireRequest(
            lock_name=self.contested.lock,
            owner_id=str(uuid.uuid4()),
            owner_name=f"knock {number}",
            lease_ms=_REQUESTED_LEASE_MS,
        )


@dataclass(frozen=True)
class Overrun:
    """Work that outlasted its lease, and what those were told who asked meanwhile."""

    ended: Ended
    asked: int
    extended: int
    refused: int
    granted_at: float

    @property
    def held_seconds(self) -> float:
        return self.granted_at - float(self.ended.output["began_ms"]) / 1000

    @property
    def robbed(self) -> bool:
        return self.granted_at < float(self.ended.output["ended_ms"]) / 1000


def knocked_at(deployment: Deployment, machine: str) -> Overrun:
    step_functions = StepFunctions(lambda: _client(deployment.aws, "stepfunctions"))
    return _overrun(deployment, machine, FakeWorkflows(runs=step_functions.describe))


def by_contenders_that_do_not_ask(deployment: Deployment, machine: str) -> Overrun:
    """They take every lease that is over for the lease of the dead."""
    return _overrun(deployment, machine, FakeWorkflows(runs=Liveness.OVER))


def _overrun(deployment: Deployment, machine: str, workflows: FakeWorkflows) -> Overrun:
    contested = ContestedLock(deployment)
    with calling():
        execution = contested.start_inside(machine, seconds=OVERRUN_SECONDS)
    contenders = Contenders(contested, workflows)
    with ThreadPoolExecutor(CONTENDERS) as pool:
        for knocking in [pool.submit(contenders.knock) for _ in range(CONTENDERS)]:
            knocking.result(LONGEST_WAIT_SECONDS)
    assert contenders.granted_at is not None
    return Overrun(
        ended=contested.ended(execution),
        asked=len(workflows.described),
        extended=contenders.extended,
        refused=len(contenders.refused),
        granted_at=contenders.granted_at,
    )


@cache
def _client(aws: LocalAws, service: str) -> Any:  # noqa: ANN401 - a boto3 client
    return aws.client(service, max_pool_connections=64)
