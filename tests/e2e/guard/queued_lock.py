"""A lock that another caller holds, and workflows that wait for it."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

import pytest

from fairlock.aws.executions import NoWorkflows, WorkflowEngine
from fairlock.aws.lock_table import LockTable
from fairlock.clock import DATE_RESOLUTION_MS, FRONT_END_MS
from fairlock.protocol.model import ReleaseRequest
from fairlock.store.context import LockContext
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.guard.stack import GIVES_UP_SECONDS, TURNS
from tests.e2e.scenario_runs import Scenario
from tests.support import Operations
from tests.support.faulty_table import FaultyTable, Killed, kill
from tests.support.store_bench import FakeWorkflows

HOLDER: Final = "a test"
_ENTERING: Final = threading.BoundedSemaphore(3)
"""Each call of a function beyond those at work is a cold start: a second of a processor."""


@dataclass(frozen=True)
class QueuedLock:
    """One lock. Its first holder is no workflow, and in this process."""

    deployment: Deployment
    lock_name: str = field(default_factory=lambda: f"line/{uuid.uuid4()}")
    owner_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        with _ENTERING:
            self._call("Acquire", owner_name=HOLDER, lease_seconds=600)

    def start(self, machine: str, **inputs: object) -> str:
        """Starts a workflow that wants the lock, and tells when its work began and ended."""
        work = {"sleep": 0, "seconds": 0}
        return self.deployment.start(machine, {"lock": self.lock_name, **work, **inputs})

    def join(self, machine: str) -> str:
        """Starts a workflow and sees it into the queue."""
        with _ENTERING:
            execution = self.start(machine)
            self.await_waiters(lambda waiters: execution in waiters)
        return execution

    def join_polling(self, machine: str) -> str:
        """Starts a workflow that polls, and sees it refused once."""
        with _ENTERING:
            execution = self.start(machine)
            entered = self.deployment.states_entered
            wait_until(lambda: "Guard: Wait" in entered(execution), pause_seconds=0.1)
        return execution

    def await_waiters(self, condition: Callable[[Sequence[str]], bool]) -> None:
        wait_until(lambda: condition(self.waiters()), pause_seconds=0.1)

    def waiters(self) -> list[str]:
        return self.deployment.waiters(self.lock_name)

    def holders(self) -> list[str]:
        return self.deployment.holders(self.lock_name)

    def lease_ends_at(self) -> float:
        """The end of the only holder's lease, in epoch seconds."""
        [holder] = self.deployment.state(self.lock_name).holders
        return holder.expires_at_ms / 1000

    def shorten(self, *, lease_seconds: int) -> None:
        """Lets the holder's lease end so many seconds from now."""
        self._call("Heartbeat", lease_seconds=lease_seconds)

    def release(self) -> float:
        """Releases through the deployed function; answers when it was asked to."""
        asked_at = time.time()
        self._call("Release")
        return asked_at

    def release_untold(self) -> float:
        """Releases from here, and no one is notified of the hand-off."""
        asked_at = time.time()
        self._store(self._table_client(), NoWorkflows()).release(self._request())
        return asked_at

    def release_killed(self, *, after_requests: float) -> None:
        """Releases from here, and is killed after so many requests to the table.

        With infinitely many it is killed when it would ask or tell Step Functions of the waiter.
        """
        plan = () if math.isinf(after_requests) else (kill(int(after_requests) + 1),)
        killed = FakeWorkflows(wakes=_die, ends=_die, runs=_die)
        with pytest.raises(Killed):
            self._store(FaultyTable(self._table_client(), *plan), killed).release(self._request())

    def began(self, execution_arn: str) -> float:
        """When a workflow's work began, after its end."""
        ended = self.deployment.ended(execution_arn, pause_seconds=0.5)
        assert ended.status == "SUCCEEDED", ended
        return float(ended.output["began_ms"]) / 1000

    def _table_client(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client("dynamodb")

    def _store(self, client: Any, workflows: WorkflowEngine) -> Operations:  # noqa: ANN401 - same
        table = LockTable(client, self.deployment.table_name)
        return Operations(LockContext(table=table, workflows=workflows))

    def _request(self) -> ReleaseRequest:
        return ReleaseRequest(lock_name=self.lock_name, owner_id=self.owner_id)

    def _call(self, operation: str, **more: object) -> None:
        answer = self.deployment.invoke(
            operation, lock_name=self.lock_name, owner_id=self.owner_id, **more
        )
        done = {"Acquire": "acquired", "Heartbeat": "renewed", "Release": "released"}[operation]
        assert answer[done] is True, answer


def _die(*_: object) -> NoReturn:
    raise Killed


# Long scenarios, run at the same time: each records what it sees, and the tests judge.

LEASE_SECONDS: Final = 3
OVER_SECONDS: Final = (FRONT_END_MS + DATE_RESOLUTION_MS) / 1000
"""From the stored end of a lease until every Date, cut to the second, says that it is over."""
POLL_SECONDS: Final = TURNS.seconds + TURNS.pause_seconds
"""From one question of a waiter to its next."""
WAITS_SECONDS: Final = 20
QUEUE: Final = "QueuePatient"
POLLING: Final = "Waits"
KILLED_AFTER: Final = (0, 1, 2, math.inf)
"""Requests to the table: the third hands the lock over, and the next one would wake the waiter."""
SLACK_SECONDS: Final = 60
"""For what is to happen: a busy machine is slow, and the number of questions says the rest."""
WATCHED_SECONDS: Final = 6
"""How much longer than that time one is watched who is not to get the lock."""


@dataclass(frozen=True)
class GaveUp:
    """A wait in vain.

    Attributes:
        waited_seconds: from its entry until it gave up, as its history has it.
        failed_calls: what it met on the way.
        seconds: how long all of it took.
    """

    ended: Ended
    waited_seconds: float
    failed_calls: list[str]
    seconds: float
    waiters: list[str]
    holders: list[str]


@dataclass(frozen=True)
class LateGrant:
    granted_to_waiter: bool
    ended: Ended
    holders: list[str]
    waiters: list[str]


@dataclass(frozen=True)
class Advanced:
    """How the queue went on.

    Attributes:
        seconds: until the next one worked; None if it still waits.
        questions: how often that one asked since the lock could be had.
        holders_meanwhile: right after the fault.
        waiters_meanwhile: how many there were then.
    """

    seconds: float | None
    questions: int
    holders_meanwhile: list[str]
    waiters_meanwhile: int


@dataclass(frozen=True)
class Waited:
    transitions: int
    calls: int
    tries: int
    seconds: float


def gives_up(deployment: Deployment, *, machine: str) -> GaveUp:
    line = QueuedLock(deployment)
    execution = line.join(machine)
    ended = deployment.ended(execution, pause_seconds=0.5)
    timeline = deployment.timeline(execution)
    return GaveUp(
        ended=ended,
        waited_seconds=timeline.entered("Guard: Give up") - timeline.entered("Guard: Enter"),
        failed_calls=deployment.failed_calls(execution),
        seconds=deployment.seconds(execution),
        waiters=line.waiters(),
        holders=line.holders(),
    )


def granted_while_giving_up(deployment: Deployment) -> LateGrant:
    """The lock is handed over, but the waiter does not hear of it before its time is over."""
    line = QueuedLock(deployment)
    execution = line.join(f"QueueGivesUp{GIVES_UP_SECONDS[0]}")
    line.release_untold()
    granted_to_waiter = line.holders() == [execution]
    ended = deployment.ended(execution, pause_seconds=0.5)
    return LateGrant(granted_to_waiter, ended, line.holders(), line.waiters())


def push_lost(deployment: Deployment, *, machine: str) -> Advanced:
    line = QueuedLock(deployment)
    execution = line.join(machine)
    return _watch(line, execution, line.release_untold(), watched=machine == QUEUE)


def releaser_killed(deployment: Deployment, *, after_requests: float, machine: str) -> Advanced:
    line = QueuedLock(deployment)
    execution = line.join(machine)
    line.shorten(lease_seconds=LEASE_SECONDS)
    released_at = time.time()  # Before: the waiter may ask right after the hand-over.
    line.release_killed(after_requests=after_requests)
    handed_over = HOLDER not in line.holders()
    free_at = released_at if handed_over else line.lease_ends_at() + OVER_SECONDS
    return _watch(line, execution, free_at, watched=machine == QUEUE)


def dead_waiter_untold(deployment: Deployment) -> Advanced:
    """The oldest waiter is stopped; the lock goes to it, and no one notices that it is dead.

    Over the service without a reaper, which would notice.
    """
    line = QueuedLock(deployment.of("OtherService"))
    first, second = line.join("Untold"), line.join("Untold")
    deployment.stop(first)
    line.release_untold()
    return _watch(line, second, line.lease_ends_at() + OVER_SECONDS)


def waited(deployment: Deployment, *, machine: str) -> Waited:
    line = QueuedLock(deployment)
    execution = line.join(machine) if machine == QUEUE else line.join_polling(machine)
    time.sleep(WAITS_SECONDS)  # the length of this wait is what is tested
    line.release()
    ended = deployment.ended(execution, pause_seconds=0.5)
    assert ended.status == "SUCCEEDED", ended
    return Waited(
        transitions=deployment.transitions(execution),
        calls=deployment.calls(execution),
        tries=deployment.states_entered(execution).count("Guard: Acquire"),
        seconds=deployment.seconds(execution),
    )


def _watch(line: QueuedLock, execution: str, free_at: float, *, watched: bool = False) -> Advanced:
    """Waits for the work of the next one; or watches one that is not to get the lock.

    Args:
        line: the queue.
        execution: the next one.
        free_at: when the lock can be had by who asks, or is its already.
        watched: whether it asks too late to be waited for.
    """
    holders, waiters = line.holders(), len(line.waiters())
    deadline = free_at + POLL_SECONDS + (WATCHED_SECONDS if watched else SLACK_SECONDS)
    wait_until(
        lambda: time.time() > deadline or not line.deployment.is_running(execution),
        seconds=LEASE_SECONDS + POLL_SECONDS + 2 * SLACK_SECONDS,
        pause_seconds=0.5,
    )
    questions = len(line.deployment.timeline(execution).calls("Guard: Acquire", after=free_at))
    if line.deployment.is_running(execution):
        line.deployment.stop(execution)
        return Advanced(None, questions, holders, waiters)
    return Advanced(line.began(execution) - free_at, questions, holders, waiters)


_PLAYS: Final[dict[str, Scenario]] = {
    **{f"{machine} waits": partial(waited, machine=machine) for machine in (QUEUE, POLLING)},
    **{f"gives up {s}": partial(gives_up, machine=f"QueueGivesUp{s}") for s in GIVES_UP_SECONDS},
    "granted while giving up": granted_while_giving_up,
    "push lost": partial(push_lost, machine="QueueTurns"),
    "push lost, no fallback": partial(push_lost, machine=QUEUE),
    "dead waiter, untold": dead_waiter_untold,
    **{
        f"killed after {n}": partial(releaser_killed, after_requests=n, machine="QueueTurns")
        for n in KILLED_AFTER
    },
    "killed, no fallback": partial(releaser_killed, after_requests=2, machine=QUEUE),
}
SCENARIOS: Final = {name: [play] for name, play in _PLAYS.items()}
AT_ONCE: Final = 3
"""Functions that scenarios begun together call at the same time."""
