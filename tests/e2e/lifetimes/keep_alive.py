"""Locks that are kept alive: lost in the middle of the work, ended with it, redriven."""

from __future__ import annotations

import itertools
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from fairlock.aws.executions import Liveness, StepFunctions
from fairlock.aws.lock_table import LockTable
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import AcquireRequest, Grant
from fairlock.store.context import Event, Extended, LockContext
from testbed.localaws import LocalAws
from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment, Ended, wait_until
from tests.e2e.lifetimes.contested_lock import (
    MEASURING_SECONDS,
    QUICK_SECONDS,
    ContestedLock,
    calling,
)
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS
from tests.e2e.scenario_runs import SECOND_PASS_SECONDS
from tests.support import Operations
from tests.support.store_bench import FakeWorkflows

MOST_TRIES: Final = 3
WORK_SECONDS: Final = 1
"""Of workflows whose end is measured."""
LONG_SECONDS: Final = 240
"""The work of workflows that are stopped long before its end."""
PAST_SECOND_PASS_SECONDS: Final = SECOND_PASS_SECONDS + 5
UNGUARDED_SECONDS: Final = 6
"""The work of workflows that no one stops: three intervals."""
WATCHED_SECONDS: Final = 4
"""How long a redriven workflow is watched that does not take its lock again."""
TAKES_AGAIN_SECONDS: Final = 30
"""How long one is waited for that does."""


@dataclass(frozen=True)
class Lost:
    """What became of a workflow whose lock was released by force in its work.

    Attributes:
        seconds: from then until it ended.
        heartbeats: how many of them began in that time.
        finished: whether its work came to its end.
    """

    execution: str
    ended: Ended
    seconds: float
    heartbeats: int
    finished: bool


def lost_to_force(deployment: Deployment, machine: str, *, seconds: int) -> Lost:
    """Released by force; again where a busy machine answered a heartbeat later than its interval.

    Such a heartbeat times out, and the one after it finds out.
    """
    for _ in range(MOST_TRIES):
        lost = force_released(deployment, machine, seconds=seconds)
        if lost.heartbeats <= 1:
            break
    return lost


def force_released(deployment: Deployment, machine: str, *, seconds: int) -> Lost:
    contested = ContestedLock(deployment)
    with calling():
        execution = contested.start_inside(machine, seconds=seconds)
        deployment.force_release(contested.lock)
        lost_at = time.time()
    ended = contested.ended(execution)
    return Lost(
        execution=execution,
        ended=ended,
        seconds=deployment.stopped_at(execution) - lost_at,
        heartbeats=len(deployment.timeline(execution).entries("Guard: Heartbeat", after=lost_at)),
        finished="Stay: End" in deployment.states_entered(execution),
    )


@dataclass(frozen=True)
class Redriven:
    """A workflow that was stopped in its work, reaped, and redriven.

    Attributes:
        ended: how it ended then.
        holders: of the lock when its work had begun again.
        again_seconds: from the redrive until then.
        seconds: from the redrive until its end.
        finished: whether its work came to its end.
        left: holders at the end.
    """

    execution: str
    ended: Ended
    holders: list[str]
    again_seconds: float
    seconds: float
    finished: bool
    left: list[str]


def redriven(
    deployment: Deployment, machine: str, *, seconds: int, taken: bool, reaped: bool = True
) -> Redriven:
    """Stops a workflow in its work and redrives it: when it was reaped, or at once."""
    contested = ContestedLock(deployment)
    with calling():
        execution = contested.start_inside(machine, seconds=seconds)
        # A workflow that was stopped between its grant and its work acquires again when redriven.
        wait_until(
            lambda: any(name.startswith("Stay") for name in deployment.states_entered(execution)),
            pause_seconds=QUICK_SECONDS,
        )
        contested.stop(execution)
        if reaped:
            wait_until(lambda: contested.holders() == [], pause_seconds=QUICK_SECONDS)
        if taken:
            contested.ask(owner_name="another", lease_seconds=600)
        redriven_at = time.time()
        deployment.redrive(execution)
    is_kept = machine == "DiesKeptAlive"
    seconds_to_look = TAKES_AGAIN_SECONDS if is_kept else WATCHED_SECONDS
    looks_until = redriven_at + (0 if taken else seconds_to_look)
    wait_until(
        lambda: time.time() > looks_until or execution in contested.holders(),
        pause_seconds=MEASURING_SECONDS,
    )
    holders, again_seconds = contested.holders(), time.time() - redriven_at
    ended = contested.ended(execution)
    return Redriven(
        execution=execution,
        ended=ended,
        holders=holders,
        again_seconds=again_seconds,
        seconds=deployment.stopped_at(execution) - redriven_at,
        finished="Stay: End" in deployment.states_entered(execution),
        left=contested.holders(),
    )


def lag_seconds(deployment: Deployment, machine: str) -> float:
    """From the end of the work until the end of the guard, and with it of the workflow."""
    contested = ContestedLock(deployment)
    execution = contested.start(machine, seconds=WORK_SECONDS)
    ended = contested.ended(execution, pause_seconds=QUICK_SECONDS)
    assert ended.status == "SUCCEEDED", ended
    return deployment.stopped_at(execution) - float(ended.output["ended_ms"]) / 1000


# Work that takes five times as long as its lease, and contenders that ask all the time.

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
