"""Long scenarios, run at the same time: each records what it sees, and the tests judge."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fairlock.protocol.lease_time import DATE_RESOLUTION_MS, FRONT_END_MS
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.queue.queued_lock import HOLDER, QueuedLock
from tests.e2e.queue.stack import GIVES_UP_SECONDS, TURNS

LEASE_SECONDS: Final = 3
OVER_SECONDS: Final = (FRONT_END_MS + DATE_RESOLUTION_MS) / 1000
"""From the stored end of a lease until every Date, cut to the second, says that it is over."""
POLL_SECONDS: Final = TURNS.seconds + TURNS.pause_seconds
"""From one question of a waiter to its next."""
WAITS_SECONDS: Final = (10, 60)
QUEUE: Final = "QueuePatient"
POLLING: Final = "Waits"
KILLED_AFTER: Final = (0, 1, 2, math.inf)
"""Requests to the table: the third hands the lock over, and the next one would wake the waiter."""
SLACK_SECONDS: Final = 60
"""For what is to happen: a busy machine is slow, and the number of questions says the rest."""
WATCHED_SECONDS: Final = 6
"""How much longer than that time one is watched who is not to get the lock."""


@dataclass(frozen=True)
class GaveUp:
    """A wait in vain.

    Attributes:
        waited_seconds: from its entry until it gave up, as its history has it.
        failed_calls: what it met on the way.
        seconds: how long all of it took.
    """

    ended: Ended
    waited_seconds: float
    failed_calls: list[str]
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
    """How the queue went on.

    Attributes:
        seconds: until the next one worked; None if it still waits.
        questions: how often that one asked since the lock could be had.
        holders_meanwhile: right after the fault.
        waiters_meanwhile: how many there were then.
    """

    seconds: float | None
    questions: int
    holders_meanwhile: list[str]
    waiters_meanwhile: int


@dataclass(frozen=True)
class Waited:
    transitions: int
    calls: int
    tries: int
    seconds: float


def gives_up(deployment: Deployment, *, machine: str) -> GaveUp:
    line = QueuedLock(deployment)
    execution = line.join(machine)
    ended = deployment.ended(execution, pause_seconds=0.5)
    timeline = deployment.timeline(execution)
    return GaveUp(
        ended=ended,
        waited_seconds=timeline.entered("Guard: Give up") - timeline.entered("Guard: Enter"),
        failed_calls=deployment.failed_calls(execution),
        seconds=deployment.seconds(execution),
        waiters=line.waiters(),
        holders=line.holders(),
    )


def granted_while_giving_up(deployment: Deployment) -> LateGrant:
    """The lock is handed over, but the waiter does not hear of it before its time is over."""
    line = QueuedLock(deployment)
    execution = line.join(f"QueueGivesUp{GIVES_UP_SECONDS[0]}")
    line.release_untold()
    granted_to_waiter = line.holders() == [execution]
    ended = deployment.ended(execution, pause_seconds=0.5)
    return LateGrant(granted_to_waiter, ended, line.holders(), line.waiters())


def push_lost(deployment: Deployment, *, machine: str) -> Advanced:
    line = QueuedLock(deployment)
    execution = line.join(machine)
    return _watch(line, execution, line.release_untold(), watched=machine == QUEUE)


def releaser_killed(deployment: Deployment, *, after_requests: float, machine: str) -> Advanced:
    line = QueuedLock(deployment)
    execution = line.join(machine)
    line.shorten(lease_seconds=LEASE_SECONDS)
    released_at = time.time()  # Before: the waiter may ask right after the hand-over.
    assert line.release_killed(after_requests=after_requests)
    handed_over = HOLDER not in line.holders()
    free_at = released_at if handed_over else line.lease_ends_at() + OVER_SECONDS
    return _watch(line, execution, free_at, watched=machine == QUEUE)


def dead_waiter_untold(deployment: Deployment) -> Advanced:
    """The oldest waiter is stopped; the lock goes to it, and no one notices that it is dead.

    Over the service without a reaper, which would notice.
    """
    line = QueuedLock(deployment.of("Unreaped"))
    first, second = line.join("UnreapedPlain"), line.join("UnreapedPlain")
    deployment.stop(first)
    line.release_untold()
    return _watch(line, second, line.lease_ends_at() + OVER_SECONDS)


def waited(deployment: Deployment, *, machine: str, seconds: int) -> Waited:
    line = QueuedLock(deployment)
    execution = line.join(machine) if machine == QUEUE else line.join_polling(machine)
    time.sleep(seconds)  # the length of this wait is what is tested
    line.release()
    ended = deployment.ended(execution, pause_seconds=0.5)
    assert ended.status == "SUCCEEDED", ended
    return Waited(
        transitions=deployment.transitions(execution),
        calls=deployment.calls(execution),
        tries=deployment.states_entered(execution).count("Guard: Acquire"),
        seconds=deployment.seconds(execution),
    )


def _watch(line: QueuedLock, execution: str, free_at: float, *, watched: bool = False) -> Advanced:
    """Waits for the work of the next one; or watches one that is not to get the lock.

    Args:
        line: the queue.
        execution: the next one.
        free_at: when the lock can be had by who asks, or is its already.
        watched: whether it asks too late to be waited for.
    """
    holders, waiters = line.holders(), len(line.waiters())
    deadline = free_at + POLL_SECONDS + (WATCHED_SECONDS if watched else SLACK_SECONDS)
    wait_until(
        lambda: time.time() > deadline or not line.deployment.is_running(execution),
        seconds=LEASE_SECONDS + POLL_SECONDS + 2 * SLACK_SECONDS,
        pause_seconds=0.5,
    )
    questions = len(line.deployment.timeline(execution).calls("Guard: Acquire", after=free_at))
    if line.deployment.is_running(execution):
        line.deployment.stop(execution)
        return Advanced(None, questions, holders, waiters)
    return Advanced(line.began(execution) - free_at, questions, holders, waiters)


SCENARIOS: Final[dict[str, Callable[[Deployment], Any]]] = {
    **{
        f"{machine} waits {seconds} s": partial(waited, machine=machine, seconds=seconds)
        for seconds in sorted(WAITS_SECONDS, reverse=True)
        for machine in (QUEUE, POLLING)
    },
    **{f"gives up {s}": partial(gives_up, machine=f"QueueGivesUp{s}") for s in GIVES_UP_SECONDS},
    "gives up elsewhere": partial(gives_up, machine="QueueGivesUpElsewhere"),
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
