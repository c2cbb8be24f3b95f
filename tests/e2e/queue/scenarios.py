"""What takes long, so that it is run at the same time: each scenario looks, the tests judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.queue.line import Line
from tests.e2e.queue.stack import (
    GIVES_UP_SECONDS,
    TURNS,
    TURNS_LEASE_SECONDS,
)

LEASE_SECONDS: Final = 3
TOLERANCE_SECONDS: Final = 2
POLL_SECONDS: Final = TURNS.seconds + TURNS.pause_seconds
"""From one question of a waiter to its next."""
WAITS_SECONDS: Final = (10, 60)
QUEUE: Final = "QueuePatient"
POLLING: Final = "Waits"
KILLED_AFTER: Final = (0, 1, 2, 3)
SLACK_SECONDS: Final = 6
"""For cold starts of two functions on a busy machine."""


@dataclass(frozen=True)
class GaveUp:
    ended: Ended
    seconds: float
    waiters: list[str]
    holders: list[str]


@dataclass(frozen=True)
class LateGrant:
    granted_to_waiter: bool
    ended: Ended
    holders: list[str]
    waiters: list[str]


@dataclass(frozen=True)
class Advanced:
    """How long it took until the next one worked, or whether it still waits."""

    seconds: float | None
    holders_meanwhile: list[str]
    waiters_meanwhile: int


@dataclass(frozen=True)
class Waited:
    transitions: int
    calls: int
    tries: int
    seconds: float


def gives_up(deployment: Deployment, *, seconds: int) -> GaveUp:
    line = Line(deployment)
    execution = line.join(f"QueueGivesUp{seconds}")
    ended = deployment.ended(execution, pause_seconds=0.5)
    return GaveUp(ended, deployment.seconds(execution), line.waiters(), line.holders())


def gives_up_elsewhere(deployment: Deployment) -> GaveUp:
    line = Line(deployment)
    execution = line.join("QueueGivesUpElsewhere")
    ended = deployment.ended(execution, pause_seconds=0.5)
    return GaveUp(ended, deployment.seconds(execution), line.waiters(), line.holders())


def granted_while_giving_up(deployment: Deployment) -> LateGrant:
    """The lock is handed over, but the waiter does not hear of it before its time is over."""
    line = Line(deployment)
    execution = line.join(f"QueueGivesUp{GIVES_UP_SECONDS[0]}")
    line.release_untold()
    granted_to_waiter = line.holders() == [execution]
    ended = deployment.ended(execution, pause_seconds=0.5)
    return LateGrant(granted_to_waiter, ended, line.holders(), line.waiters())


def push_lost(deployment: Deployment, *, machine: str) -> Advanced:
    line = Line(deployment)
    execution = line.join(machine)
    return _watch(line, execution, line.release_untold(), within=POLL_SECONDS)


def releaser_killed(deployment: Deployment, *, after_requests: int, machine: str) -> Advanced:
    line = Line(deployment)
    execution = line.join(machine)
    line.shorten(lease_seconds=LEASE_SECONDS)
    assert line.release_killed(after_requests=after_requests)
    killed_at = time.time()
    bound = LEASE_SECONDS + TOLERANCE_SECONDS + POLL_SECONDS
    return _watch(line, execution, killed_at, within=bound)


def dead_waiter_untold(deployment: Deployment) -> Advanced:
    """The oldest waiter is stopped; the lock goes to it, and nobody notices that it is dead.

    Over the service without a reaper, which would notice.
    """
    line = Line(deployment.of("Unreaped"))
    first, second = line.join("UnreapedPlain"), line.join("UnreapedPlain")
    deployment.stop(first)
    bound = TURNS_LEASE_SECONDS + TOLERANCE_SECONDS + POLL_SECONDS
    return _watch(line, second, line.release_untold(), within=bound)


def waited(deployment: Deployment, *, machine: str, seconds: int) -> Waited:
    line = Line(deployment)
    execution = line.join(machine) if machine == QUEUE else line.join_polling(machine)
    time.sleep(seconds)  # this time is what is looked at
    line.release()
    ended = deployment.ended(execution, pause_seconds=0.5)
    assert ended.status == "SUCCEEDED", ended
    return Waited(
        transitions=deployment.transitions(execution),
        calls=deployment.calls(execution),
        tries=deployment.states_entered(execution).count("Guard: Acquire"),
        seconds=deployment.seconds(execution),
    )


def _watch(line: Line, execution: str, since: float, *, within: float) -> Advanced:
    """Waits for a workflow's work, or for the end of the time in which it has to begin."""
    holders, waiters = line.holders(), len(line.waiters())
    deadline = since + within + SLACK_SECONDS
    wait_until(
        lambda: time.time() > deadline or not line.deployment.is_running(execution),
        pause_seconds=0.5,
    )
    if line.deployment.is_running(execution):
        line.deployment.stop(execution)
        return Advanced(None, holders, waiters)
    return Advanced(line.began(execution) - since, holders, waiters)


SCENARIOS: Final[dict[str, Callable[[Deployment], Any]]] = {
    **{
        f"{machine} waits {seconds} s": partial(waited, machine=machine, seconds=seconds)
        for seconds in sorted(WAITS_SECONDS, reverse=True)
        for machine in (QUEUE, POLLING)
    },
    **{f"gives up {s}": partial(gives_up, seconds=s) for s in GIVES_UP_SECONDS},
    "gives up elsewhere": gives_up_elsewhere,
    "granted while giving up": granted_while_giving_up,
    "push lost": partial(push_lost, machine="QueueTurns"),
    "push lost, no fallback": partial(push_lost, machine=QUEUE),
    "dead waiter, untold": dead_waiter_untold,
    **{
        f"killed after {n}": partial(releaser_killed, after_requests=n, machine="QueueTurns")
        for n in KILLED_AFTER
    },
    "killed, no fallback": partial(releaser_killed, after_requests=2, machine=QUEUE),
}
