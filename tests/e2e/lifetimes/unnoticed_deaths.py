"""Dead workflows of which no one hears: only leases end their locks, and fallback polls."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment, Ended, Json, wait_until
from tests.e2e.lifetimes.contested_lock import (
    OVER_SECONDS,
    QUICK_SECONDS,
    ContestedLock,
    calling,
    calling_again,
)

FOR_EVER_SECONDS = 3000


@dataclass(frozen=True)
class Outlived:
    """How long a dead workflow's lock was taken.

    Attributes:
        lease_ends_at: the lock's, in epoch seconds.
        died_at: the workflow, likewise.
        granted_at: when another caller had the lock.
        asked: how often it was asked for once every Date told that the lease was over.
        early: what a direct caller was told when the lease had ended, and no Date could tell.
        next_ended: how the workflow behind it ended.
    """

    lease_ends_at: float
    died_at: float
    granted_at: float
    asked: int
    early: Json | None = None
    next_ended: Ended | None = None

    @property
    def seconds(self) -> float:
        return self.granted_at - self.died_at


def for_a_caller(deployment: Deployment, machine: str) -> Outlived:
    """No one waits; direct callers ask."""
    contested = ContestedLock(deployment.of("Unreaped"))
    with calling():
        victim = contested.start_inside(machine, seconds=FOR_EVER_SECONDS)
        died_at = contested.stop(victim)
        lease_ends_at = contested.holder().expires_at_ms / 1000
    return _ask_twice(contested, died_at, lease_ends_at)


def for_a_workflow(deployment: Deployment, machine: str) -> Outlived:
    """A workflow waits in the queue."""
    contested = ContestedLock(deployment.of("Unreaped"))
    with calling():
        victim = contested.start_inside(machine, seconds=FOR_EVER_SECONDS)
        follower = contested.start_behind("UnreapedPlain", seconds=0)
        died_at = contested.stop(victim)
        lease_ends_at = contested.holder().expires_at_ms / 1000
    ended = contested.ended(follower)
    assert ended.status == "SUCCEEDED", ended
    granted_at = ended.output["began_ms"] / 1000
    over_at = lease_ends_at + OVER_SECONDS
    asked = len(deployment.timeline(follower).calls("Guard: Acquire", after=over_at))
    if granted_at < over_at:  # by a Date that was cut by less than a second
        asked += 1
    return Outlived(lease_ends_at, died_at, granted_at, asked, next_ended=ended)


def while_it_runs(deployment: Deployment, machine: str) -> Json:
    """What a direct caller is told when the lease is as much over, but the workflow runs."""
    contested = ContestedLock(deployment.of("Unreaped"))
    with calling():
        holder = contested.start_inside(machine, seconds=FOR_EVER_SECONDS)
    _wait_for(contested.holder().expires_at_ms / 1000 + OVER_SECONDS + 0.2)
    with calling_again():
        answer = contested.ask()
    contested.stop(holder)
    return answer


@dataclass(frozen=True)
class Express:
    """An Express workflow that did not end by itself, and the lock that it held."""

    ended: Ended
    execution_arns: list[str | None]
    outlived: Outlived


def express(deployment: Deployment, machine: str) -> Express:
    """StartSyncExecution of a workflow that runs out of its time, or fails past any Catch."""
    contested = ContestedLock(deployment)
    seconds = FOR_EVER_SECONDS if "Timeout" in machine else 1
    with ThreadPoolExecutor(1) as pool:
        with calling():
            inputs = {"lock": contested.lock, "seconds": seconds}
            run = pool.submit(deployment.run_express, machine, inputs)
            wait_until(lambda: contested.holders() != [], pause_seconds=QUICK_SECONDS)
        ended = run.result(LONGEST_WAIT_SECONDS)
    died_at = time.time()
    holders = deployment.state(contested.lock).holders
    lease_ends_at = max(holder.expires_at_ms for holder in holders) / 1000
    return Express(
        ended,
        [holder.execution_arn for holder in holders],
        _ask_twice(contested, died_at, lease_ends_at),
    )


def _ask_twice(contested: ContestedLock, died_at: float, lease_ends_at: float) -> Outlived:
    """A direct caller asks when the lease has just ended, and others when every Date tells."""
    _wait_for(lease_ends_at + 0.2)
    with calling_again():
        early = contested.ask()
    asked = 1
    if not early["acquired"]:  # else the machine was so busy that it came late
        _wait_for(lease_ends_at + OVER_SECONDS + 0.05)
        with calling_again():
            asked = contested.ask_until_granted()
    granted_at = contested.holder().acquired_at_ms / 1000
    return Outlived(lease_ends_at, died_at, granted_at, asked, early=early)


def _wait_for(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))  # A lease ends by the clock and by nothing else.
