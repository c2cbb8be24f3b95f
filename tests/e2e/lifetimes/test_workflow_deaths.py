"""However a workflow ends, its lock is free soon, and not before its work has ended."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from fairlock.clock import stored_end_ms
from tests.e2e.deployment import LONGEST_WAIT_SECONDS, SECOND_PASS_SECONDS, Deployment, wait_until
from tests.e2e.lifetimes.stack import (
    EXPRESS_LEASE_SECONDS,
    FALLBACK_SECONDS,
    LONG_LEASE_SECONDS,
    PLAIN_LEASE_SECONDS,
)
from tests.e2e.locks import (
    CALLING,
    CALLING_AGAIN,
    OVER_SECONDS,
    TOLERANCE_SECONDS,
    ContestedLock,
    GatedLock,
)
from tests.e2e.together import Figures, together

FOR_EVER_SECONDS: Final = 3000

# A lock lives as long as the workflow that holds it, however that one dies.


Death = tuple[ContestedLock, str, str, float]
"""Of a workflow: its lock, the workflow, the next one, which waited behind it, and when it died."""


def in_its_work(deployment: Deployment, machine: str) -> Death:
    """StopExecution in the middle of the work."""
    lock = ContestedLock(deployment)
    victim = lock.start_inside(machine, seconds=FOR_EVER_SECONDS)
    follower = lock.start_behind("Stays", seconds=0)
    return lock, victim, follower, lock.stop(victim)


def in_the_queue(deployment: Deployment, machine: str) -> Death:
    """StopExecution in the queue; then the holder leaves, and the one behind gets the lock."""
    lock = ContestedLock(deployment)
    owner_id = lock.ask(owner_name="a test", lease_seconds=600)["owner_id"]
    victim = lock.start_behind(machine, seconds=FOR_EVER_SECONDS)
    follower = lock.start_behind("Stays", seconds=0)
    died_at = lock.stop(victim)
    wait_until(lambda: victim not in lock.waiters())
    lock.release(owner_id)
    return lock, victim, follower, died_at


def in_acquire(deployment: Deployment, machine: str) -> Death:
    """StopExecution when acquire has written the grant, and has not told the workflow of it."""
    lock = GatedLock.of(deployment, "acquire", 2)
    victim = lock.start(machine, seconds=FOR_EVER_SECONDS)
    lock.await_arrival()
    follower = lock.start_behind("Stays", seconds=0)
    died_at = lock.stop(victim)
    lock.open()
    return lock, victim, follower, died_at


def in_release(deployment: Deployment, machine: str) -> Death:
    """StopExecution when release has been called; it lands when the next one holds the lock."""
    lock = GatedLock.of(deployment, "release", 0)
    victim = lock.start(machine, seconds=0)
    lock.await_arrival()
    may_end = lock.beside(".follower-may-end")
    follower = lock.start_behind("PlainTask", until=str(may_end))
    died_at = lock.stop(victim)
    lock.await_holder(follower)
    lock.open()
    assert lock.holders() == [follower], "the late release changes nothing"
    may_end.touch()
    return lock, victim, follower, died_at


def of_itself(deployment: Deployment, machine: str) -> Death:
    lock = ContestedLock(deployment)
    victim = lock.start_inside(machine, seconds=15 if machine == "MeetsError" else FOR_EVER_SECONDS)
    follower = lock.start_behind("Stays", seconds=0)
    wait_until(lambda: not deployment.is_running(victim))
    return lock, victim, follower, deployment.stopped_at(victim)


def with_its_task(deployment: Deployment, machine: str) -> Death:
    """The process that runs the task's function is killed."""
    lock = ContestedLock(deployment)
    kill = Path(deployment.outputs["DyingWorkflows"]["Gates"]) / f"{uuid.uuid4()}.kill"
    victim = lock.start_inside(machine, die_when=str(kill))
    wait_until(lambda: "Work" in deployment.states_entered(victim))
    follower = lock.start_behind("Stays", seconds=0)
    died_at = time.time()
    kill.touch()
    return lock, victim, follower, died_at


@together
@pytest.mark.parametrize(
    ("dies", "machine", "status", "error"),
    [
        (in_its_work, "Stays", "ABORTED", None),
        (in_its_work, "StaysKeptAlive", "ABORTED", None),
        (in_the_queue, "Stays", "ABORTED", None),
        (in_acquire, "StaysAtGate", "ABORTED", None),
        (in_release, "StaysAtGate", "ABORTED", None),
        (of_itself, "TimesOut", "TIMED_OUT", None),
        (of_itself, "MeetsError", "FAILED", "States.Runtime"),
        (with_its_task, "WorksLong", "FAILED", "Runtime.ExitError"),
    ],
)
def test_its_lock_is_free_at_once_the_next_one_works_and_nothing_is_left(
    deployment: Deployment,
    dies: Callable[[Deployment, str], Death],
    machine: str,
    status: str,
    error: str | None,
) -> Figures:
    with CALLING:
        lock, victim, follower, died_at = dies(deployment, machine)
        next_ended = lock.ended(follower)
    ended = lock.ended(victim)
    assert (ended.status, ended.error) == (status, error)
    assert next_ended.status == "SUCCEEDED"
    seconds = float(next_ended.output["began_ms"]) / 1000 - died_at
    assert seconds < LONG_LEASE_SECONDS / 2
    assert (lock.holders(), lock.waiters()) == ([], [])
    wait_until(lambda: deployment.claims(victim) == [])
    how = f"{dies.__name__.replace('_', ' ')} ({machine})"
    return {f"a workflow dies {how}: until the next one works": seconds}


@together
@pytest.mark.parametrize(("machine", "is_free"), [("Watched", True), ("Unreaped", False)])
def test_a_machine_that_is_watched_is_reaped_and_of_another_no_death_is_noticed(
    deployment: Deployment, machine: str, *, is_free: bool
) -> None:
    lock = ContestedLock(deployment.of("OtherService"))
    with CALLING:
        victim = lock.start_inside(machine, seconds=FOR_EVER_SECONDS)
        lock.stop(victim)
    if is_free:
        wait_until(lambda: lock.holders() == [])
    else:
        time.sleep(PLAIN_LEASE_SECONDS)  # which its own lease outlasts by far
        assert lock.holders() == [victim]


# A death that no event reports: the lock is free when its lease is over.


def until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))  # A lease ends by the clock and by nothing else.


def granted_after_the_lease(lock: ContestedLock, lease_ends_at: float) -> float:
    """When direct callers had the lock: at the first question when every Date tells its end."""
    until(lease_ends_at + 0.2)
    with CALLING_AGAIN:
        early = lock.ask()
    if not early["acquired"]:  # else the machine was so busy that it came late
        assert early["reason"] == "HELD"
        until(lease_ends_at + OVER_SECONDS + 0.05)
        with CALLING_AGAIN:
            assert lock.ask()["acquired"] is True
    granted_at = lock.holder().acquired_at_ms / 1000
    assert granted_at >= lease_ends_at + TOLERANCE_SECONDS
    return granted_at


@together
def test_without_any_event_a_lock_is_free_for_a_caller_after_one_lease(
    deployment: Deployment,
) -> Figures:
    lock = ContestedLock(deployment.of("OtherService"))
    with CALLING:
        victim = lock.start_inside("UnreapedPlain", seconds=FOR_EVER_SECONDS)
        died_at = lock.stop(victim)
    granted_at = granted_after_the_lease(lock, lock.holder().expires_at_ms / 1000)
    what = f"all events lost, lease {PLAIN_LEASE_SECONDS} s, direct caller: held"
    return {what: granted_at - died_at}


@together
def test_without_any_event_a_lock_goes_to_a_waiting_workflow_after_a_lease_and_a_poll(
    deployment: Deployment,
) -> Figures:
    lock = ContestedLock(deployment.of("OtherService"))
    with CALLING:
        victim = lock.start_inside("UnreapedPlain", seconds=FOR_EVER_SECONDS)
        follower = lock.start_behind("UnreapedPlain", seconds=0)
        died_at = lock.stop(victim)
        over_at = lock.holder().expires_at_ms / 1000 + OVER_SECONDS
    granted_at = lock.ended(follower).output["began_ms"] / 1000
    assert granted_at >= over_at - OVER_SECONDS + TOLERANCE_SECONDS
    asked = len(deployment.acquires(follower, after=over_at))
    assert asked == int(granted_at >= over_at), "else by a Date that was cut by less than a second"
    what = f"all events lost, lease {PLAIN_LEASE_SECONDS} s, poll {FALLBACK_SECONDS} s, queue: held"
    return {what: granted_at - died_at}


@together
def test_the_lock_of_a_running_workflow_is_not_free_when_its_lease_is_over(
    deployment: Deployment,
) -> None:
    lock = ContestedLock(deployment.of("OtherService"))
    with CALLING:
        holder = lock.start_inside("UnreapedPlain", seconds=FOR_EVER_SECONDS)
    until(lock.holder().expires_at_ms / 1000 + OVER_SECONDS + 0.2)
    with CALLING_AGAIN:
        answer = lock.ask()
    lock.stop(holder)
    assert (answer["acquired"], answer["reason"]) == (False, "HELD")


@together
@pytest.mark.parametrize(
    ("machine", "seconds", "status", "error"),
    [
        ("ExpressByTimeout", FOR_EVER_SECONDS, "TIMED_OUT", None),
        ("ExpressByError", 1, "FAILED", "States.Runtime"),
    ],
)
def test_an_express_workflow_that_dies_leaves_its_lock_to_the_lease(
    deployment: Deployment, machine: str, seconds: int, status: str, error: str | None
) -> Figures:
    lock = ContestedLock(deployment)
    with ThreadPoolExecutor(1) as pool, CALLING:
        inputs = {"lock": lock.lock, "seconds": seconds}
        run = pool.submit(deployment.run_express, machine, inputs)
        wait_until(lambda: lock.holders() != [])
        ended = run.result(LONGEST_WAIT_SECONDS)
    died_at, holder = time.time(), lock.holder()
    assert (ended.status, ended.error, holder.execution_arn) == (status, error, None)
    granted_at = granted_after_the_lease(lock, holder.expires_at_ms / 1000)
    what = f"an Express workflow dies, lease {EXPRESS_LEASE_SECONDS} s, direct caller: held"
    return {what: granted_at - died_at}


# A branch is stopped because its sibling failed, and its execution goes on.
#
# No Catch runs in it, and no one is told: an execution that runs is not reaped, nor robbed.

GOES_ON_SECONDS = 40
LAPSED_SECONDS = stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000 + OVER_SECONDS


def await_sibling(lock: ContestedLock, execution: str) -> None:
    wait_until(lambda: "GoesOn" in lock.deployment.states_entered(execution))


@together
@pytest.mark.parametrize("machine", ["PlainSibling", "KeepAliveSibling"])
def test_what_the_branch_held_is_taken_until_the_execution_ends(
    deployment: Deployment, machine: str
) -> None:
    """Which is documented: the guard belongs around the whole, or a Catch into the branch."""
    lock = ContestedLock(deployment)
    with CALLING:
        execution = lock.start_inside(machine, seconds=GOES_ON_SECONDS)
    await_sibling(lock, execution)
    until(time.time() + LAPSED_SECONDS)
    with CALLING_AGAIN:
        assert (lock.ask()["acquired"], deployment.is_running(execution)) == (False, True)
    lock.stop(execution)
    wait_until(lambda: lock.holders() == [])


@together
def test_what_it_is_handed_later_is_free_after_its_lease(deployment: Deployment) -> None:
    """No one was there to be notified, so Step Functions is not asked either."""
    lock = ContestedLock(deployment)
    with CALLING:
        owner_id = lock.ask(lease_seconds=600)["owner_id"]
        execution = lock.start_behind("PlainSibling", seconds=GOES_ON_SECONDS)
        await_sibling(lock, execution)
        lock.release(owner_id)
        assert lock.holders() == [execution]
        lock.ask_until_granted()
    assert deployment.is_running(execution)
    lock.stop(execution)


@together
def test_an_acquire_that_lands_after_the_first_reap_pass_is_freed_by_the_second(
    deployment: Deployment,
) -> Figures:
    """The workflow holds an outer lock: once that is free, the first pass is over."""
    lock = GatedLock.of(deployment, "acquire", 0)
    outer = f"outer/{lock.lock}"
    with CALLING:
        victim = lock.start("StaysInTwo", seconds=FOR_EVER_SECONDS)
        lock.await_arrival()
        assert deployment.holders(outer) == [victim]
        died_at = lock.stop(victim)
        wait_until(lambda: deployment.holders(outer) == [])
        lock.open()
        assert lock.holders() == [victim]
        follower = lock.start_behind("Stays", seconds=0)
    freed_seconds = float(lock.ended(follower).output["began_ms"]) / 1000 - died_at
    assert SECOND_PASS_SECONDS - 1 < freed_seconds < LONG_LEASE_SECONDS
    assert (lock.holders(), lock.waiters()) == ([], [])
    return {"acquire lands after the first pass: until the next one works": freed_seconds}
