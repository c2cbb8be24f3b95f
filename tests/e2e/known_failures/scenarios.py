"""Long scenarios, begun at the same time: each records what it sees, and the tests judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from fairlock.protocol.model import Holder
from tests.e2e.deployment import Deployment, Ended, Json, wait_until
from tests.e2e.known_failures.lock import (
    LEASE_SECONDS,
    MOST_TRIES,
    PAUSE_SECONDS,
    Knocks,
    Lock,
    most_inside,
)
from tests.e2e.scenario_runs import Scenario, wait_for_reap_passes

OVERRUN_SECONDS: Final = 15
"""Longer than lease and clock tolerance, by several knocks also on a busy machine."""
FOR_EVER_SECONDS: Final = 600


@dataclass(frozen=True)
class Overrun:
    """Work that takes longer than its lease, with contenders knocking from its first moment on."""

    ended: Ended
    knocks: Knocks


@dataclass(frozen=True)
class Freed:
    """A lock whose workflow was stopped, and one whose workflow runs on.

    Attributes:
        status: of the workflow that was stopped.
        lease_ends_at_ms: of the lock that it left behind.
        knocks: on that lock.
        meanwhile: what was told, when it was free, to who asked for the other one.
        other_execution: whose that is.
    """

    status: str
    lease_ends_at_ms: int
    knocks: Knocks
    meanwhile: Json
    other_execution: str


@dataclass(frozen=True)
class WaitsForItself:
    """A workflow that asks for a lock, and the holders of that lock a lease later."""

    execution: str
    is_running: bool
    was_inside: bool
    holders: list[str]


@dataclass(frozen=True)
class GaveUp:
    """How one workflow ended that waited in vain, and whether another one still waits."""

    ended: Ended
    other_is_running: bool
    other_tries: int


Spans = list[Json]


def overrun(
    deployment: Deployment,
    machine: str,
    *,
    seconds: int = OVERRUN_SECONDS,
    inputs: Json | None = None,
) -> Overrun:
    lock = Lock(deployment)
    execution = lock.start(machine, seconds=seconds, **(inputs or {}))
    wait_until(lambda: lock.state().held == 1, pause_seconds=PAUSE_SECONDS)
    knocks = lock.knock()
    return Overrun(ended=lock.ended(execution), knocks=knocks)


def extended(deployment: Deployment, machine: str, inputs: Json | None = None) -> Overrun:
    """Of a holder whose lease is extended; longer if a busy machine has knocked too late."""
    for seconds in (OVERRUN_SECONDS, 3 * OVERRUN_SECONDS, 9 * OVERRUN_SECONDS):
        seen = overrun(deployment, machine, seconds=seconds, inputs=inputs)
        if len(seen.knocks.leases_seen) > 1:
            break
    return seen


def robbed(deployment: Deployment) -> Overrun:
    """Of a holder whose execution no one knows; longer if a busy machine has knocked too late."""
    for seconds in (OVERRUN_SECONDS, 3 * OVERRUN_SECONDS, 9 * OVERRUN_SECONDS):
        seen = overrun(deployment, "Anonymous", seconds=seconds)
        if seen.knocks.granted_at_ms < seen.ended.output["work"]["ended_ms"]:
            break
    return seen


def failing_overrun(deployment: Deployment, machine: str) -> Overrun:
    return extended(deployment, machine, {"raise": "CardDeclined"})


def stopped(deployment: Deployment) -> Freed:
    """StopExecution in the middle of the work."""
    left, other = Lock(deployment), Lock(deployment)
    running = other.start_inside("Lasting", seconds=FOR_EVER_SECONDS)
    execution = left.start_inside("Lasting", seconds=FOR_EVER_SECONDS)
    [holder] = left.state().holders
    deployment.stop(execution)
    return _freed(left, other, holder, dead=execution, running=running)


def acquired_late(deployment: Deployment) -> Freed:
    """An acquire that was under way lands when its workflow has been stopped."""
    left, other = Lock(deployment), Lock(deployment)
    dead, running = (left.start_inside("Unguarded", seconds=FOR_EVER_SECONDS) for _ in range(2))
    deployment.stop(dead)
    wait_for_reap_passes(deployment, [dead], least=1)
    for lock, execution in ((other, running), (left, dead)):
        lock.take(lease_seconds=LEASE_SECONDS, execution_arn=execution, owner_name=execution)
    [holder] = left.state().holders
    return _freed(left, other, holder, dead=dead, running=running)


def _freed(left: Lock, other: Lock, holder: Holder, *, dead: str, running: str) -> Freed:
    knocks = left.knock()
    # The lease on the other lock began earlier; to be over it only lacks the end of its workflow.
    meanwhile = other.ask()
    left.deployment.stop(running)
    return Freed(
        status=left.ended(dead).status,
        lease_ends_at_ms=holder.expires_at_ms,
        knocks=knocks,
        meanwhile=meanwhile,
        other_execution=running,
    )


def waits_for_itself(deployment: Deployment) -> WaitsForItself:
    """The reply is lost, and the repeated call is another owner's."""
    lock = Lock(deployment)
    execution = lock.start("LostReplyNewOwner", seconds=0)
    wait_until(
        lambda: any(holder.revision > 1 for holder in lock.state().holders),
        pause_seconds=PAUSE_SECONDS,
    )
    seen = WaitsForItself(
        execution=execution,
        is_running=deployment.is_running(execution),
        was_inside="Stay" in deployment.states_entered(execution),
        holders=[holder.owner_name for holder in lock.state().holders],
    )
    deployment.stop(execution)
    return seen


def gave_up(deployment: Deployment) -> GaveUp:
    """A guard and a chain without an end, on a lock that stays taken."""
    lock = Lock(deployment)
    lock.take(lease_seconds=FOR_EVER_SECONDS)
    endless = lock.start("Chain", seconds=0)
    ended = lock.run("GivesUp", seconds=0)
    wait_until(lambda: deployment.calls(endless) > 1, pause_seconds=PAUSE_SECONDS)
    seen = GaveUp(
        ended=ended,
        other_is_running=deployment.is_running(endless),
        other_tries=deployment.calls(endless),
    )
    deployment.stop(endless)
    return seen


def two_locks(deployment: Deployment) -> Spans:
    """Two machines with a lock each; again if a busy machine has let them work one by one."""
    for _ in range(MOST_TRIES):
        spans = two_machines(deployment, locks=2, seconds=5)
        if most_inside(spans) > 1:
            break
    return spans


def two_machines(deployment: Deployment, *, locks: int, seconds: int) -> Spans:
    """The work of two machines with two guards each, on one lock or on a lock each."""
    names = [Lock(deployment) for _ in range(locks)]
    machines = ("TwoGuards", "TwoGuardsToo")
    executions = [names[i % locks].start(name, seconds=seconds) for i, name in enumerate(machines)]
    return [span for execution in executions for span in names[0].ended(execution).output]


SCENARIOS: Final[dict[str, Scenario]] = {
    "overrun": partial(extended, machine="Guarded"),
    "failing overrun": partial(failing_overrun, machine="Guarded"),
    "robbed": robbed,
    "stopped": stopped,
    "acquired late": acquired_late,
    "waits for itself": waits_for_itself,
    "gave up": gave_up,
    "one lock": partial(two_machines, locks=1, seconds=1),
    "two locks": two_locks,
}
