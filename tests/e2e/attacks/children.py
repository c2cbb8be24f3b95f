"""Child executions of a distributed Map that hold, or wait, while others fail; and redrives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.e2e.attacks.siblings import LONG_SECONDS, Siblings, count, failing, item, new_locks, play
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.contested_lock import QUICK_SECONDS, ContestedLock, calling
from tests.e2e.scenario_runs import Scenario

WORK_SECONDS: Final = 12


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


FAILING: Final = {"that fails": that_fails, "that is stopped": that_is_stopped}
REDRIVEN: Final = ("Each", "Both", "EachChild")
SCENARIOS: Final[dict[str, list[Scenario]]] = {
    **{name: [play] for name, play in FAILING.items()},
    "that tolerates": [that_tolerates],
    "that no event tells of": [that_no_event_tells_of],
    "nested, the inner one is stopped": [partial(nested, stops_inner=True)],
    "nested, the outer one is stopped": [partial(nested, stops_inner=False)],
    **{f"redriven {machine}": [partial(redriven, machine=machine)] for machine in REDRIVEN},
}
