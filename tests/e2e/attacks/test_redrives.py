"""A redriven workflow waits again for its lock, and takes nothing from those who came since."""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.stack import MAX_WAIT_SECONDS
from tests.e2e.locks import CALLING, ContestedLock, GatedLock
from tests.e2e.together import together

WORK_SECONDS: Final = 3
OTHER: Final = "another"


def stop(lock: ContestedLock, execution: str, *, reaped: bool = True) -> None:
    def is_fenced() -> bool:
        claims = lock.deployment.claims(execution)
        return all(claim.stage > 0 or claim.ended for claim in claims)

    lock.stop(execution)
    if reaped:
        wait_until(lambda: execution not in (*lock.holders(), *lock.waiters()) and is_fenced())


def check_worked(lock: ContestedLock, execution: str) -> Ended:
    """It worked in the end, and leaves nothing."""
    ended = lock.ended(execution)
    assert (ended.status, ended.error) == ("SUCCEEDED", None)
    assert (lock.holders(), lock.waiters()) == ([], [])
    return ended


@together
@pytest.mark.parametrize(
    ("machine", "reaped", "times"),
    [("Stays", False, 1), ("Stays", True, 2), ("StaysPolling", False, 1)],
)
def test_stopped_in_its_wait_it_waits_again_for_who_holds_the_lock(
    deployment: Deployment, machine: str, *, reaped: bool, times: int
) -> None:
    lock = ContestedLock(deployment)
    with CALLING:
        other = lock.ask(owner_name=OTHER, lease_seconds=600)["owner_id"]
        execution = lock.start(machine, seconds=WORK_SECONDS)
        entered = deployment.states_entered
        wait_until(lambda: execution in lock.waiters() or "Guard: Wait" in entered(execution))
        for _ in range(times):
            stop(lock, execution, reaped=reaped)
            deployment.redrive(execution)
            time.sleep(WORK_SECONDS)  # Long enough to work beside the other, if it could.
        released_at = lock.release(other)
    assert check_worked(lock, execution).output["began_ms"] / 1000 >= released_at


@together
@pytest.mark.parametrize(
    ("operation", "requests", "reaped"),
    [("acquire", 1, False), ("acquire", 2, True), ("release", 0, False), ("release", 1, True)],
)
def test_stopped_between_two_requests_of_a_call_it_works_under_its_lock(
    deployment: Deployment, operation: str, requests: int, *, reaped: bool
) -> None:
    """The call goes on when the redrive has begun."""
    lock = GatedLock.of(deployment, operation, requests)
    with CALLING:
        execution = lock.start("StaysAtGate", seconds=WORK_SECONDS)
        lock.await_arrival()
        stop(lock, execution, reaped=reaped)
        deployment.redrive(execution)
        lock.open()
    check_worked(lock, execution)


@together
def test_a_redrive_after_its_max_wait_waits_once_more(deployment: Deployment) -> None:
    """It counts from the redrive, and not from when it began to wait."""
    lock = ContestedLock(deployment)
    with CALLING:
        other = lock.ask(owner_name=OTHER, lease_seconds=600)["owner_id"]
        execution = lock.start_behind("Impatient", seconds=0)
        began = time.time()
        stop(lock, execution)
    wait_until(lambda: time.time() > began + MAX_WAIT_SECONDS + 2)
    with CALLING:
        deployment.redrive(execution)
        wait_until(lambda: execution in lock.waiters())
        lock.release(other)
    check_worked(lock, execution)


@together
def test_control_stopped_in_its_work_it_repeats_that_beside_another_owner_and_leaves_that_its_lock(
    deployment: Deployment,
) -> None:
    """As documented: no guard re-enters its work. So an overlap is found where there is one."""
    lock = ContestedLock(deployment)
    with CALLING:
        execution = lock.start_inside("Stays", seconds=WORK_SECONDS + 5)
        wait_until(lambda: "Stay" in deployment.states_entered(execution))
        stop(lock, execution)
        other = lock.ask(owner_name=OTHER, lease_seconds=600)["owner_id"]
        taken_at = time.time()
        deployment.redrive(execution)
    ended = lock.ended(execution)
    assert ended.output["ended_ms"] / 1000 > taken_at + 1
    assert lock.holders() == [OTHER]
    lock.release(other)
