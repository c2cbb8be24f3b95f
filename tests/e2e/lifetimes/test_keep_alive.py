"""`keep_alive`: when it renews, and what happens to work that loses its lock."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from tests.e2e.conftest import Tell
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.stack import INTERVAL_SECONDS, LONG_INTERVAL_SECONDS
from tests.e2e.locks import CALLING, ContestedLock
from tests.e2e.together import TIMES, Figures, alone, together

# What keep_alive costs: no time after the work, and a call for each interval.

AT_ONCE = 2


def lag_seconds(lock: ContestedLock) -> float:
    """From the end of the work until the end of the guard, and with it of the workflow."""
    execution = lock.start("StaysKeptAlive", seconds=1)
    ended = lock.ended(execution)
    assert ended.status == "SUCCEEDED", ended
    return lock.deployment.stopped_at(execution) - float(ended.output["ended_ms"]) / 1000


@alone
def test_the_guard_ends_with_the_work_and_not_with_the_interval(
    deployment: Deployment, tell: Tell
) -> None:
    locks = [ContestedLock(deployment) for _ in range(AT_ONCE * TIMES)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seconds = list(pool.map(lag_seconds, locks))
    assert min(seconds) < LONG_INTERVAL_SECONDS / 2
    what = f"kept alive every {LONG_INTERVAL_SECONDS} s: from the work's end to the guard's"
    tell(what, seconds)


@together
def test_a_heartbeat_is_one_transition_and_one_call(deployment: Deployment) -> None:
    """All but the last end by their timeout; what else fails is repeated, on a busy machine."""
    execution = ContestedLock(deployment).start("KeepAliveChain", seconds=2 * INTERVAL_SECONDS + 1)
    assert deployment.ended(execution).status == "SUCCEEDED"
    states = deployment.states_entered(execution)
    heartbeats = states.count("Guard: Heartbeat")
    assert heartbeats > 1
    assert len(states) - heartbeats == 9, "four of them are the work's"
    kinds = Counter(event["type"] for event in deployment.events(execution))
    repeated = kinds["TaskFailed"] + kinds["TaskTimedOut"] - (heartbeats - 1)
    assert kinds["TaskScheduled"] - repeated == heartbeats + 2, "acquire and release"


# With keep_alive the work stops when its lock is lost; a redrive does not run it unguarded.

MOST_TRIES: Final = 3
LONG_SECONDS: Final = 240
"""The work of workflows that are stopped long before its end."""
UNGUARDED_SECONDS: Final = 6
"""The work of workflows that no one stops: three intervals."""


class Lost(NamedTuple):
    """What became of a workflow whose lock was released by force in its work."""

    ended: Ended
    seconds: float  # from then until it ended
    heartbeats: int  # begun in that time
    finished: bool  # whether its work came to its end


def force_released(deployment: Deployment, machine: str, *, seconds: int) -> Lost:
    lock = ContestedLock(deployment)
    with CALLING:
        execution = lock.start_inside(machine, seconds=seconds)
        deployment.force_release(lock.lock)
        lost_at = time.time()
    return Lost(
        ended=lock.ended(execution),
        seconds=deployment.stopped_at(execution) - lost_at,
        heartbeats=len(deployment.entries(execution, "Guard: Heartbeat", after=lost_at)),
        finished="Stay: End" in deployment.states_entered(execution),
    )


@together
def test_a_lock_that_is_lost_ends_the_work_within_an_interval(deployment: Deployment) -> Figures:
    """A heartbeat that a busy machine answers too late times out, and the next one finds out."""
    for _ in range(MOST_TRIES):
        lost = force_released(deployment, "KeepAliveChain", seconds=LONG_SECONDS)
        if lost.heartbeats <= 1:
            break
    assert (lost.ended.status, lost.ended.error) == ("FAILED", "LockLost")
    assert not lost.finished
    assert lost.heartbeats <= 1, "the next heartbeat finds out"
    return {f"lock lost, kept alive every {INTERVAL_SECONDS} s: until work stops": lost.seconds}


@together
def test_without_keep_alive_the_work_goes_on_without_the_lock(deployment: Deployment) -> None:
    lost = force_released(deployment, "Plain", seconds=UNGUARDED_SECONDS)
    assert (lost.ended.status, lost.finished) == ("SUCCEEDED", True)


def stopped_and_redriven(lock: ContestedLock, *, seconds: int, taken: bool) -> tuple[str, float]:
    """A workflow that is stopped in its work, reaped, and redriven; tells when that was."""
    deployment = lock.deployment
    with CALLING:
        execution = lock.start_inside("StaysKeptAlive", seconds=seconds)
        # A workflow that was stopped between its grant and its work acquires again when redriven.
        wait_until(
            lambda: any(name.startswith("Stay") for name in deployment.states_entered(execution))
        )
        lock.stop(execution)
        wait_until(lambda: lock.holders() == [])
        if taken:
            lock.ask(owner_name="another", lease_seconds=600)
        redriven_at = time.time()
        deployment.redrive(execution)
    return execution, redriven_at


@together
def test_a_redriven_workflow_takes_its_lock_again_if_it_is_free_and_keeps_it(
    deployment: Deployment,
) -> Figures:
    """Past the second pass of the reaper for its first run."""
    lock = ContestedLock(deployment)
    execution, redriven_at = stopped_and_redriven(lock, seconds=40, taken=False)
    lock.await_holder(execution)
    again_seconds = time.time() - redriven_at
    assert lock.ended(execution).status == "SUCCEEDED"
    assert "Stay: End" in deployment.states_entered(execution)
    assert lock.holders() == []
    return {"redriven, lock free: until it is taken again": again_seconds}


@together
def test_a_redriven_workflow_whose_lock_is_taken_ends_with_lock_lost(
    deployment: Deployment,
) -> Figures:
    lock = ContestedLock(deployment)
    execution, redriven_at = stopped_and_redriven(lock, seconds=LONG_SECONDS, taken=True)
    ended = lock.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "LockLost")
    assert "Stay: End" not in deployment.states_entered(execution)
    assert lock.holders() == ["another"]
    seconds = deployment.stopped_at(execution) - redriven_at
    return {f"redriven, lock taken, interval {LONG_INTERVAL_SECONDS} s: until it stops": seconds}
