"""A workflow is stopped in each state of its guard, and redriven."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.e2e.attacks.stack import MAX_WAIT_SECONDS
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.contested_lock import QUICK_SECONDS, ContestedLock, GatedLock, calling
from tests.e2e.scenario_runs import Scenario

WORK_SECONDS: Final = 3
OTHER: Final = "another"


@dataclass(frozen=True)
class Redriven:
    """What became of the workflow and of its lock.

    Attributes:
        beside_seconds: for how long it was at work after the redrive while another owner held.
        other_kept: whether that owner still held the lock when the workflow had ended; None if
            it had released by then, or there was none.
        holders: at the end.
        waiters: at the end.
    """

    ended: Ended
    beside_seconds: float
    other_kept: bool | None
    holders: list[str]
    waiters: list[str]


def _stop(contested: ContestedLock, execution: str, *, reaped: bool) -> None:
    contested.stop(execution)
    if reaped:
        left = lambda: execution not in (*contested.holders(), *contested.waiters())  # noqa: E731 - a word
        wait_until(left, pause_seconds=QUICK_SECONDS)
        wait_until(lambda: _is_fenced(contested, execution), pause_seconds=QUICK_SECONDS)


def _is_fenced(contested: ContestedLock, execution: str) -> bool:
    claims = contested.deployment.claims(execution)
    return all(claim.stage > 0 or claim.ended for claim in claims)


def _seen(contested: ContestedLock, execution: str, **told: Any) -> Redriven:  # noqa: ANN401 - fields
    ended = contested.ended(execution, pause_seconds=QUICK_SECONDS)
    fields = {"beside_seconds": 0.0, "other_kept": None, **told}
    left = contested.holders()
    return Redriven(ended=ended, holders=left, waiters=contested.waiters(), **fields)


def in_the_wait(
    deployment: Deployment, machine: str, *, free: bool, reaped: bool, times: int
) -> Redriven:
    """While another owner holds, who leaves before the last redrive, or some seconds later."""
    contested = ContestedLock(deployment)
    with calling():
        other = contested.ask(owner_name=OTHER, lease_seconds=600)["owner_id"]
        execution = contested.start(machine, seconds=WORK_SECONDS)
        _await_wait(contested, execution)
        for number in range(times):
            _stop(contested, execution, reaped=reaped)
            if free and number == times - 1:
                deployment.invoke("Release", lock_name=contested.lock, owner_id=other)
            deployment.redrive(execution)
            time.sleep(WORK_SECONDS)  # Long enough to work beside the other, if it could.
        released_at = time.time()
        if not free:
            deployment.invoke("Release", lock_name=contested.lock, owner_id=other)
    ended = contested.ended(execution, pause_seconds=QUICK_SECONDS)
    began = ended.output["began_ms"] / 1000 if ended.output else released_at
    return _seen(contested, execution, beside_seconds=0 if free else max(0, released_at - began))


def _await_wait(contested: ContestedLock, execution: str) -> None:
    """In the queue, or in the pause between two polls."""
    wait_until(
        lambda: (
            execution in contested.waiters()
            or "Guard: Wait" in contested.deployment.states_entered(execution)
        ),
        pause_seconds=QUICK_SECONDS,
    )


def in_the_work(deployment: Deployment, machine: str) -> Redriven:
    """Another owner takes the lock before the redrive, and keeps it."""
    contested = ContestedLock(deployment)
    with calling():
        execution = contested.start_inside(machine, seconds=WORK_SECONDS + 5)
        wait_until(
            lambda: "Stay" in deployment.states_entered(execution), pause_seconds=QUICK_SECONDS
        )
        _stop(contested, execution, reaped=True)
        other = contested.ask(owner_name=OTHER, lease_seconds=600)["owner_id"]
        taken_at = time.time()
        deployment.redrive(execution)
    ended = contested.ended(execution, pause_seconds=QUICK_SECONDS)
    kept = contested.holders() == [OTHER]
    deployment.invoke("Release", lock_name=contested.lock, owner_id=other)
    beside = ended.output["ended_ms"] / 1000 - taken_at
    return _seen(contested, execution, other_kept=kept, beside_seconds=beside)


def in_a_call(deployment: Deployment, *, operation: str, requests: int, reaped: bool) -> Redriven:
    """Between two requests of acquire or release, which goes on when the redrive has begun."""
    contested = GatedLock(deployment, stack="Attacks", operation=operation, requests=requests)
    with calling():
        execution = contested.start("AtGate", seconds=WORK_SECONDS)
        contested.await_arrival()
        _stop(contested, execution, reaped=reaped)
        deployment.redrive(execution)
        contested.open()
    return _seen(contested, execution)


def after_its_time(deployment: Deployment) -> Redriven:
    """Its `max_wait` is over since it began to wait, and not since the redrive."""
    contested = ContestedLock(deployment)
    with calling():
        other = contested.ask(owner_name=OTHER, lease_seconds=600)["owner_id"]
        execution = contested.start_behind("Impatient", seconds=0)
        began = time.time()
        _stop(contested, execution, reaped=True)
    wait_until(lambda: time.time() > began + MAX_WAIT_SECONDS + 2)
    with calling():
        deployment.redrive(execution)
        wait_until(lambda: execution in contested.waiters(), pause_seconds=QUICK_SECONDS)
        deployment.invoke("Release", lock_name=contested.lock, owner_id=other)
    return _seen(contested, execution)


_MACHINES: Final = ("Stays", "StaysPolling")
_WAITS: Final[dict[str, dict[str, Any]]] = {
    "at once, lock taken": {"free": False, "reaped": False, "times": 1},
    "when reaped, lock free": {"free": True, "reaped": True, "times": 1},
    "twice, lock taken": {"free": False, "reaped": True, "times": 2},
}
_CALLS: Final = (("acquire", 0), ("acquire", 1), ("acquire", 2), ("release", 0), ("release", 1))
GUARDED: Final[dict[str, Callable[[Deployment], Redriven]]] = {
    **{
        f"{machine} in the wait, {how}": partial(in_the_wait, machine=machine, **terms)
        for machine in _MACHINES
        for how, terms in _WAITS.items()
    },
    **{
        f"in {operation} after {requests} requests, {'reaped' if reaped else 'at once'}": partial(
            in_a_call, operation=operation, requests=requests, reaped=reaped
        )
        for operation, requests in _CALLS
        for reaped in (True, False)
    },
    "after its max_wait": after_its_time,
}
UNGUARDED: Final[dict[str, Callable[[Deployment], Redriven]]] = {
    f"{machine} in the work": partial(in_the_work, machine=machine) for machine in _MACHINES
}
SCENARIOS: Final[dict[str, list[Scenario]]] = {
    name: [play] for name, play in {**GUARDED, **UNGUARDED}.items()
}
