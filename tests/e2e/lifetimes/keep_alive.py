"""Locks that are kept alive: lost in the middle of the work, ended with it, redriven."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.contested_lock import (
    MEASURING_SECONDS,
    QUICK_SECONDS,
    ContestedLock,
    calling,
)
from tests.e2e.reap_passes import SECOND_PASS_SECONDS

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
