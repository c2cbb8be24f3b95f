"""Iterations and child executions that hold, wait, or are handed a lock while a sibling fails."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.contested_lock import QUICK_SECONDS, ContestedLock, calling
from tests.e2e.scenario_runs import Scenario

LONG_SECONDS: Final = 600
WORK_SECONDS: Final = 12
FAILS_AFTER_SECONDS: Final = 8
ERROR: Final = "SiblingFails"
OWNER_ID: Final = "the one that leaves"


@dataclass(frozen=True)
class Siblings:
    """What a Map left behind when one of its iterations had failed.

    Attributes:
        held: how many locks were held, and how many waited, before that.
        ended: how the workflow ended; None if it still runs.
        seconds: from the failure until nothing was held or waited for.
    """

    held: tuple[int, int]
    ended: Ended | None
    seconds: float


def new_locks(number: int) -> list[str]:
    """Names that no other scenario uses."""
    return [f"sibling/{uuid.uuid4()}" for _ in range(number)]


def item(lock: str, seconds: float = LONG_SECONDS, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of the input
    """An item of the input: which lock, and for how long."""
    return {"lock": lock, "seconds": seconds, **more}


def failing(lock: str) -> dict[str, Any]:
    """An item whose work fails after some seconds."""
    return item(lock, FAILS_AFTER_SECONDS, **{"raise": ERROR})


def count(deployment: Deployment, locks: list[str]) -> tuple[int, int]:
    """How many hold these locks, and how many wait."""
    holders = sum(len(deployment.holders(lock)) for lock in locks)
    return holders, sum(len(deployment.waiters(lock)) for lock in locks)


def play(
    deployment: Deployment, machine: str, items: list[Any], locks: list[str], held: tuple[int, int]
) -> Siblings:
    """Starts the machine, sees `held`, and waits for its end and that of the locks."""
    with calling():
        execution = deployment.start(machine, {"items": items})
        wait_until(lambda: count(deployment, locks) == held, pause_seconds=QUICK_SECONDS)
    ended = deployment.ended(execution, pause_seconds=QUICK_SECONDS)
    ended_at = deployment.stopped_at(execution)
    wait_until(lambda: count(deployment, locks) == (0, 0), pause_seconds=QUICK_SECONDS)
    return Siblings(held, ended, time.time() - ended_at)


def of_a_map(deployment: Deployment) -> Siblings:
    """Two hold, one waits behind one of them, and the fourth fails."""
    locks = new_locks(3)
    items = [item(locks[0]), item(locks[0]), item(locks[1]), failing(locks[2])]
    return play(deployment, "Each", items, locks, (3, 1))


def of_a_map_in_a_map(deployment: Deployment) -> Siblings:
    """The one that fails is in another inner Map than two of those that it stops."""
    locks = new_locks(3)
    items = [
        {"items": [item(locks[0]), item(locks[0])]},
        {"items": [item(locks[1]), failing(locks[2])]},
    ]
    return play(deployment, "EachOfEach", items, locks, (3, 1))


def being_handed_the_lock(deployment: Deployment) -> Siblings:
    """Another owner leaves in the moment in which the workflow of two waiters has failed."""
    contested, execution = _two_wait_and_one_fails(deployment, "Each", goes_on=0)
    ended = deployment.ended(execution, pause_seconds=QUICK_SECONDS)
    return Siblings((2, 2), ended, _hand_over(contested, deployment.stopped_at(execution)))


def handed_in_a_workflow_that_goes_on(deployment: Deployment) -> Siblings:
    """The same where the failure is caught: the execution runs, and the lock is not reported."""
    contested, execution = _two_wait_and_one_fails(deployment, "EachCaught", goes_on=240)
    wait_until(
        lambda: "GoesOn" in deployment.states_entered(execution), pause_seconds=QUICK_SECONDS
    )
    seconds = _hand_over(contested, time.time())
    assert deployment.is_running(execution)
    deployment.stop(execution)
    return Siblings((2, 2), None, seconds)


def _two_wait_and_one_fails(
    deployment: Deployment, machine: str, *, goes_on: int
) -> tuple[ContestedLock, str]:
    contested = ContestedLock(deployment)
    own = new_locks(1)[0]
    items = [item(contested.lock), item(contested.lock), failing(own)]
    with calling():
        owner = {"lock_name": contested.lock, "owner_id": OWNER_ID}
        deployment.invoke("Acquire", **owner, lease_seconds=LONG_SECONDS)
        execution = deployment.start(machine, {"items": items, "goes_on": goes_on})
        both = [contested.lock, own]
        wait_until(lambda: count(deployment, both) == (2, 2), pause_seconds=QUICK_SECONDS)
    return contested, execution


def _hand_over(contested: ContestedLock, failed_at: float) -> float:
    """Releases on behalf of the other owner; tells when the lock was free for the next one."""
    deployment = contested.deployment
    deployment.invoke("Release", lock_name=contested.lock, owner_id=OWNER_ID)
    contested.ask_until_granted()
    return time.time() - failed_at


def of_two_services(deployment: Deployment) -> Siblings:
    """A workflow of one waits for one of the other; both reapers hear of each end."""
    contested = ContestedLock(deployment)
    with calling():
        first = contested.start_inside("Stays", seconds=LONG_SECONDS)
        second = contested.start_behind("Second", seconds=LONG_SECONDS)
        held = (len(contested.holders()), len(contested.waiters()))
        contested.stop(first)
        contested.await_holder(second)
        third = contested.start_behind("Stays", seconds=0)
        stopped_at = contested.stop(second)
    ended = contested.ended(third)
    wait_until(lambda: contested.holders() == [], pause_seconds=QUICK_SECONDS)
    return Siblings(held, ended, time.time() - stopped_at)


# Child executions of a distributed Map, and of a workflow that starts another one.


@dataclass(frozen=True)
class Children:
    """What became of a distributed Map, and of its children's locks.

    Attributes:
        owners: who held before, all of them.
        ended: how the workflow ended.
        left: what was held and waited for in the end.
        seconds: from what freed the locks until another owner, or all, had them.
    """

    owners: tuple[str, ...]
    ended: Ended
    left: tuple[int, int] = (0, 0)
    seconds: float = 0.0


def that_fails(deployment: Deployment) -> Siblings:
    """Two hold, one waits behind one of them, and the fourth fails."""
    names = new_locks(3)
    items = [item(names[0]), item(names[0]), item(names[1]), failing(names[2])]
    return play(deployment, "EachChild", items, names, (3, 1))


def that_is_stopped(deployment: Deployment) -> Siblings:
    """The same without a failure, until the parent is stopped."""
    names = new_locks(2)
    items = [item(names[0]), item(names[0]), item(names[1])]
    with calling():
        execution = deployment.start("EachChild", {"items": items})
        wait_until(lambda: count(deployment, names) == (2, 1), pause_seconds=QUICK_SECONDS)
        deployment.stop(execution)
    stopped_at = deployment.stopped_at(execution)
    wait_until(lambda: count(deployment, names) == (0, 0), pause_seconds=QUICK_SECONDS)
    return Siblings((2, 1), deployment.ended(execution), time.time() - stopped_at)


def that_tolerates(deployment: Deployment) -> Children:
    """One fails while another waits for its lock and a third holds its own."""
    names = new_locks(2)
    items: list[Any] = [failing(names[0]), item(names[1], WORK_SECONDS)]
    with calling():
        execution = deployment.start("EachChildTolerated", {"items": items})
        wait_until(lambda: count(deployment, names) == (2, 0), pause_seconds=QUICK_SECONDS)
        owners = _owners(deployment, names)
        behind = ContestedLock(deployment, names[0]).start_behind("Stays", seconds=0)
    assert deployment.ended(behind, pause_seconds=QUICK_SECONDS).status == "SUCCEEDED"
    seconds = deployment.stopped_at(behind) - _failed_at(deployment, owners)
    ended = deployment.ended(execution, pause_seconds=QUICK_SECONDS)
    return Children(owners, ended, left=count(deployment, names), seconds=seconds)


def that_no_event_tells_of(deployment: Deployment) -> Children:
    """No reaper: the next caller finds out by asking for the child's own execution."""
    untold = deployment.of("Untold")
    names = new_locks(2)
    with calling():
        items = [item(names[0]), failing(names[1])]
        execution = untold.start("EachChildUntold", {"items": items})
        wait_until(lambda: count(untold, names) == (2, 0), pause_seconds=QUICK_SECONDS)
        owners = _owners(untold, names)
    ended = untold.ended(execution, pause_seconds=QUICK_SECONDS)
    ended_at = untold.stopped_at(execution)
    with calling():
        ContestedLock(untold, names[0]).ask_until_granted()
    return Children(owners, ended, seconds=time.time() - ended_at)


def redriven(deployment: Deployment, machine: str) -> Children:
    """One works, and one waits for it; both are stopped with their workflow, and go on."""
    names = new_locks(1)
    items = [item(names[0], WORK_SECONDS), item(names[0], WORK_SECONDS)]
    with calling():
        execution = deployment.start(machine, {"items": items, **items[0]})
        wait_until(lambda: count(deployment, names) == (1, 1), pause_seconds=QUICK_SECONDS)
        owners = _owners(deployment, names)
        waiters = tuple(deployment.waiters(names[0]))
        deployment.stop(execution)
        wait_until(lambda: count(deployment, names) == (0, 0), pause_seconds=QUICK_SECONDS)
        redriven_at = time.time()
        deployment.redrive(execution)
        ContestedLock(deployment, names[0]).await_holder(waiters[0])
    seconds = time.time() - redriven_at
    ended = deployment.ended(execution, pause_seconds=QUICK_SECONDS)
    return Children(owners + waiters, ended, left=count(deployment, names), seconds=seconds)


def nested(deployment: Deployment, *, stops_inner: bool) -> Children:
    """A workflow holds a lock while another one, which it has started, holds a second one."""
    names = new_locks(2)
    with calling():
        inputs = {"lock": names[0], "inner": names[1], "seconds": LONG_SECONDS}
        execution = deployment.start("Nests", inputs)
        wait_until(lambda: count(deployment, names) == (2, 0), pause_seconds=QUICK_SECONDS)
        owners = _owners(deployment, names)
        deployment.stop(owners[1] if stops_inner else execution)
    stopped_at = time.time()
    outer = names[:1]
    gone = names if stops_inner else outer
    wait_until(lambda: count(deployment, gone) == (0, 0), pause_seconds=QUICK_SECONDS)
    seconds = time.time() - stopped_at
    left = count(deployment, names)
    if left != (0, 0) and deployment.is_running(owners[1]):
        deployment.stop(owners[1])
    ended = deployment.ended(execution, pause_seconds=QUICK_SECONDS)
    return Children(owners, ended, left=left, seconds=seconds)


def _owners(deployment: Deployment, names: list[str]) -> tuple[str, ...]:
    return tuple(owner for name in names for owner in deployment.holders(name))


def _failed_at(deployment: Deployment, executions: tuple[str, ...]) -> float:
    [failed] = [each for each in executions if deployment.ended(each).status == "FAILED"]
    return deployment.stopped_at(failed)


FAILING_BRANCHES: Final = {
    "of a Map": of_a_map,
    "of a Map in a Map": of_a_map_in_a_map,
    "being handed the lock": being_handed_the_lock,
}
FAILING_CHILDREN: Final = {"that fails": that_fails, "that is stopped": that_is_stopped}
REDRIVEN: Final = ("Each", "Both", "EachChild")
SCENARIOS: Final[dict[str, list[Scenario]]] = {
    **{name: [play] for name, play in {**FAILING_BRANCHES, **FAILING_CHILDREN}.items()},
    "handed, and it goes on": [handed_in_a_workflow_that_goes_on],
    "two services": [of_two_services],
    "that tolerates": [that_tolerates],
    "that no event tells of": [that_no_event_tells_of],
    "nested, the inner one is stopped": [partial(nested, stops_inner=True)],
    "nested, the outer one is stopped": [partial(nested, stops_inner=False)],
    **{f"redriven {machine}": [partial(redriven, machine=machine)] for machine in REDRIVEN},
}
