"""Workflows that die where nothing inside them can release, and how long their lock outlives them.

Each scenario is over within seconds; the tests check what the second pass leaves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlock.protocol.claims import Claim
from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment, Ended, Json, wait_until
from tests.e2e.lifetimes.contested_lock import (
    MEASURING_SECONDS,
    OVER_SECONDS,
    QUICK_SECONDS,
    ContestedLock,
    GatedLock,
    calling,
    calling_again,
)

FOR_EVER_SECONDS: Final = 3000
BY_ERROR_SECONDS: Final = 15
WITHIN_SECONDS: Final = 300
"""Half the lease: whatever frees the lock by then, it is not the end of the lease."""


@dataclass(frozen=True)
class Death:
    """What became of a lock after its workflow had died.

    Attributes:
        execution: the workflow.
        follower: the workflow behind it, if there was one.
        ended: how it ended.
        seconds: from its end until it held the lock (or stood in the queue) no more; None if it
            still did when the time was over.
        left: who held the lock (or stood in the queue) when the time was over.
        next_seconds: from its end until the work of the one behind it began, if there was one.
        next_ended: how that one ended.
        meanwhile: who held the lock when a release that came late had landed.
        holders: of the lock, at the end.
        waiters: for the lock, at the end.
        contested: where it was.
    """

    execution: str
    follower: str | None
    ended: Ended
    seconds: float | None
    left: list[str]
    next_seconds: float | None
    next_ended: Ended | None
    meanwhile: list[str]
    holders: list[str]
    waiters: list[str]
    contested: ContestedLock

    @property
    def claims(self) -> list[Claim]:
        """What is still on record of the dead workflow, now."""
        return self.contested.deployment.claims(self.execution)


def in_work(deployment: Deployment, machine: str, *, followed: bool, within: float) -> Death:
    """StopExecution in the middle of the work."""
    contested = ContestedLock(deployment)
    with calling() as leave:
        victim = contested.start_inside(machine, seconds=FOR_EVER_SECONDS)
        follower = _start_behind(contested) if followed else None
        return _watch(
            contested, victim, contested.stop(victim), follower, within=within, leave=leave
        )


def voluntary(deployment: Deployment, machine: str, *, followed: bool, within: float) -> Death:
    """The machine's own timeout, or an error that nothing can catch."""
    contested = ContestedLock(deployment)
    with calling():
        seconds = FOR_EVER_SECONDS if "Timeout" in machine else BY_ERROR_SECONDS
        victim = contested.start_inside(machine, seconds=seconds)
        follower = _start_behind(contested) if followed else None
    wait_until(lambda: not deployment.is_running(victim), pause_seconds=QUICK_SECONDS)
    ended_at = deployment.stopped_at(victim)
    return _watch(contested, victim, ended_at, follower, within=within, leave=lambda: None)


def with_its_task(deployment: Deployment, machine: str, *, followed: bool, within: float) -> Death:
    """The process that runs the task's function is killed."""
    contested = ContestedLock(deployment)
    with calling() as leave:
        kill = Path(deployment.outputs["DyingWorkflows"]["Gates"]) / f"{uuid.uuid4()}.kill"
        victim = contested.start_inside(machine, die_when=str(kill))
        wait_until(lambda: "Work" in deployment.states_entered(victim), pause_seconds=QUICK_SECONDS)
        follower = _start_behind(contested) if followed else None
        killed_at = time.time()
        kill.touch()
        return _watch(contested, victim, killed_at, follower, within=within, leave=leave)


def in_acquire(
    deployment: Deployment,
    machine: str,
    *,
    followed: bool,
    within: float,
    stack: str = "DyingWorkflows",
) -> Death:
    """StopExecution when acquire has written the grant, and has not told the workflow of it."""
    contested = GatedLock(deployment, stack=stack, operation="acquire", requests=2)
    with calling() as leave:
        victim = contested.start(machine, seconds=FOR_EVER_SECONDS)
        contested.await_arrival()
        follower = _start_behind(contested) if followed else None
        stopped_at = contested.stop(victim)
        contested.open()
        return _watch(contested, victim, stopped_at, follower, within=within, leave=leave)


def in_release(
    deployment: Deployment,
    machine: str,
    *,
    followed: bool,
    within: float,
    stack: str = "DyingWorkflows",
) -> Death:
    """StopExecution when release has been called; it lands when the next one holds the lock."""
    contested = GatedLock(deployment, stack=stack, operation="release", requests=0)
    with calling() as leave:
        victim = contested.start(machine, seconds=0)
        contested.await_arrival()
        may_end = contested.beside(".follower-may-end")
        follower = contested.start_behind("PlainTask", until=str(may_end)) if followed else None
        stopped_at = contested.stop(victim)

        def release_late() -> None:
            if follower is not None:
                contested.await_holder(follower)
            contested.open()

        return _watch(
            contested,
            victim,
            stopped_at,
            follower,
            within=within,
            leave=leave,
            once_gone=release_late,
            at_last=may_end.touch,
        )


def in_wait(deployment: Deployment, machine: str, *, followed: bool, within: float) -> Death:
    """StopExecution in the queue; then the holder leaves, and the one behind gets the lock."""
    contested = ContestedLock(deployment)
    with calling() as leave:
        owner_id = contested.ask(owner_name="a test", lease_seconds=600)["owner_id"]
        victim = contested.start_behind(machine, seconds=FOR_EVER_SECONDS)
        follower = _start_behind(contested) if followed else None
        stopped_at = contested.stop(victim)

        def release() -> None:
            deployment.invoke("Release", lock_name=contested.lock, owner_id=owner_id)

        return _watch(
            contested,
            victim,
            stopped_at,
            follower,
            within=within,
            leave=leave,
            once_gone=release,
            listed=contested.waiters,
        )


def _start_behind(contested: ContestedLock) -> str:
    return contested.start_behind("Dies", seconds=0)


def _watch(
    contested: ContestedLock,
    victim: str,
    ended_at: float,
    follower: str | None,
    *,
    within: float,
    leave: Callable[[], None],
    once_gone: Callable[[], None] | None = None,
    at_last: Callable[[], None] | None = None,
    listed: Callable[[], list[str]] | None = None,
) -> Death:
    """Polls the holders, or the waiters, until the dead one is gone."""
    if within < WITHIN_SECONDS:  # It will not go, and nothing is measured.
        leave()
    listed = listed or contested.holders
    seconds = _seconds_until_gone(listed, victim, ended_at, within=within)
    left = listed() if seconds is None else []
    meanwhile: list[str] = []
    if once_gone is not None:
        once_gone()
        meanwhile = contested.holders()
    if at_last is not None:
        at_last()
    next_ended = (
        None if follower is None else contested.ended(follower, pause_seconds=QUICK_SECONDS)
    )
    began = None if next_ended is None else next_ended.output["began_ms"] / 1000
    return Death(
        execution=victim,
        follower=follower,
        ended=contested.ended(victim, pause_seconds=QUICK_SECONDS),
        seconds=seconds,
        left=left,
        next_seconds=None if began is None else began - ended_at,
        next_ended=next_ended,
        meanwhile=meanwhile,
        holders=contested.holders(),
        waiters=contested.waiters(),
        contested=contested,
    )


def _seconds_until_gone(
    listed: Callable[[], list[str]], victim: str, ended_at: float, *, within: float
) -> float | None:
    while time.time() < ended_at + within:
        if victim not in listed():
            return max(0.0, time.time() - ended_at)
        time.sleep(MEASURING_SECONDS)
    return None


# Dead workflows of which no one hears: only leases end their locks, and fallback polls.


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
