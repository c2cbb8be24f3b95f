"""When an iteration or a child execution fails, its siblings' locks end with the workflow."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.lifetimes.stack import LONG_LEASE_SECONDS
from tests.e2e.locks import CALLING, ContestedLock
from tests.e2e.together import together

LONG_SECONDS: Final = 600
WORK_SECONDS: Final = 12
FAILS_AFTER_SECONDS: Final = 15
"""All are in their places by then, on a busy machine as well."""
ERROR: Final = "SiblingFails"
TOO_MANY: Final = "States.ExceedToleratedFailureThreshold"
SOON_SECONDS: Final = LONG_LEASE_SECONDS / 2
"""Whatever frees the locks by then, it is not the end of a lease."""


def item(lock: ContestedLock, seconds: float = LONG_SECONDS, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of the input
    """An item of the input: which lock, and for how long."""
    return {"lock": lock.lock, "seconds": seconds, **more}


def failing(lock: ContestedLock) -> dict[str, Any]:
    """An item whose work fails after some seconds."""
    return item(lock, FAILS_AFTER_SECONDS, **{"raise": ERROR})


def await_count(*locks: ContestedLock, held: int, waiting: int) -> None:
    """Until so many hold these locks, and so many wait."""

    def is_so() -> bool:
        holders = sum(len(lock.holders()) for lock in locks)
        return (holders, sum(len(lock.waiters()) for lock in locks)) == (held, waiting)

    wait_until(is_so)


@together
@pytest.mark.parametrize(("machine", "error"), [("Each", ERROR), ("EachChild", TOO_MANY)])
def test_what_its_siblings_held_and_waited_for_is_free_long_before_their_leases_end(
    deployment: Deployment, machine: str, error: str
) -> None:
    """Two hold, one waits behind one of them, and the fourth fails."""
    locks = [ContestedLock(deployment) for _ in range(3)]
    items = [item(locks[0]), item(locks[0]), item(locks[1]), failing(locks[2])]
    with CALLING:
        execution = deployment.start(machine, {"items": items})
        await_count(*locks, held=3, waiting=1)
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", error)
    await_count(*locks, held=0, waiting=0)
    assert time.time() - deployment.stopped_at(execution) < SOON_SECONDS


@together
def test_a_lock_that_is_handed_to_a_sibling_that_just_ended_goes_on_to_the_next_one(
    deployment: Deployment,
) -> None:
    lock, own = ContestedLock(deployment), ContestedLock(deployment)
    items = [item(lock), item(lock), failing(own)]
    with CALLING:
        owner_id = lock.ask(lease_seconds=LONG_SECONDS)["owner_id"]
        execution = deployment.start("Each", {"items": items})
        await_count(lock, own, held=2, waiting=2)
    assert deployment.ended(execution).error == ERROR
    failed_at = deployment.stopped_at(execution)
    lock.release(owner_id)
    lock.ask_until_granted()
    assert time.time() - failed_at < SOON_SECONDS


@together
def test_a_tolerated_failure_releases_its_lock_and_leaves_the_other_child_alone(
    deployment: Deployment,
) -> None:
    """Each child of a distributed Map holds under the ARN of its own execution."""
    first, second = ContestedLock(deployment), ContestedLock(deployment)
    items = [failing(first), item(second, FAILS_AFTER_SECONDS + 5)]
    with CALLING:
        execution = deployment.start("EachChildTolerated", {"items": items})
        await_count(first, second, held=2, waiting=0)
        [failed], [other] = first.holders(), second.holders()
        behind = first.start_behind("Stays", seconds=0)
    assert "/Each:" in failed != other
    assert deployment.ended(behind).status == "SUCCEEDED"
    assert deployment.stopped_at(behind) - deployment.stopped_at(failed) < SOON_SECONDS
    assert deployment.ended(execution).status == "SUCCEEDED"
    await_count(first, second, held=0, waiting=0)


@together
@pytest.mark.parametrize("machine", ["Each", "EachChild"])
def test_iterations_and_children_that_are_redriven_wait_and_work_again(
    deployment: Deployment, machine: str
) -> None:
    """One works, and one waits for it; both are stopped with their workflow."""
    lock = ContestedLock(deployment)
    with CALLING:
        execution = deployment.start(machine, {"items": [item(lock, WORK_SECONDS)] * 2})
        await_count(lock, held=1, waiting=1)
        deployment.stop(execution)
        await_count(lock, held=0, waiting=0)
        deployment.redrive(execution)
    assert deployment.ended(execution).status == "SUCCEEDED"
    await_count(lock, held=0, waiting=0)
