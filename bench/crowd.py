"""A crowd of workflows on one lock: how the lock goes through it."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass

from bench.bed import spread
from bench.workflows import QUEUE
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.locks import QueuedLock

_MOST_STARTING = 4
_SETTLE_SECONDS = 1
_LONGEST_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Passage:
    """How locks went through their crowds.

    Attributes:
        gaps_ms: from the end of each task to the next task's first instruction.
        transitions: of each execution, the task's own included.
    """

    gaps_ms: list[float]
    transitions: list[int]

    def figures(self) -> dict[str, float]:
        """Median, 95th percentile and the longest hand-off; transitions per execution."""
        gaps = spread(self.gaps_ms, digits=1)
        return {
            "hand_offs": gaps["number"],
            "median_ms": gaps["median"],
            "p95_ms": gaps["p95"],
            "max_ms": gaps["max"],
            "median_transitions": statistics.median(self.transitions),
            "max_transitions": max(self.transitions),
        }


def pass_through(deployment: Deployment, machine: str, *, number: int, locks: int = 1) -> Passage:
    """Lets so many workflows wait for each lock, and then take turns, lock after lock."""
    lines = [QueuedLock(deployment) for _ in range(locks)]
    crowds = [_crowd(line, machine, number) for line in lines]
    for line in lines:
        time.sleep(_SETTLE_SECONDS)  # what the ones before are busy with is not what is measured
        line.release()
    gaps_ms: list[float] = []
    for crowd in crowds:
        spans = [
            deployment.ended(execution, seconds=_LONGEST_SECONDS, pause_seconds=0.5).output
            for execution in crowd
        ]
        spans.sort(key=lambda span: span["began_ms"])
        gaps_ms += [b["began_ms"] - a["ended_ms"] for a, b in itertools.pairwise(spans)]
    executions = itertools.chain.from_iterable(crowds)
    return Passage(gaps_ms, [deployment.transitions(execution) for execution in executions])


def waits(deployment: Deployment, machine: str, *, seconds: int) -> dict[str, int]:
    """What one execution costs that waits so long."""
    line = QueuedLock(deployment)
    if seconds == 0:
        line.release()
    execution = line.start(machine)
    if seconds > 0:
        time.sleep(seconds)
        line.release()
    deployment.ended(execution, seconds=_LONGEST_SECONDS, pause_seconds=0.5)
    return {
        "transitions": deployment.transitions(execution),
        "function_calls": deployment.calls(execution),
    }


def _crowd(line: QueuedLock, machine: str, number: int) -> list[str]:
    """Starts them a few at a time: what starts at once has to wait for cold starts."""
    waiting: list[str] = []
    starting: list[str] = []

    def wait_for_most(most: int) -> None:
        wait_until(lambda: _settled(line, machine, starting, waiting) <= most, pause_seconds=0.1)

    for _ in range(number):
        starting.append(line.start(machine))
        wait_for_most(_MOST_STARTING - 1)
    wait_for_most(0)
    return waiting


def _settled(line: QueuedLock, machine: str, starting: list[str], waiting: list[str]) -> int:
    """Moves those that wait by now from one list to the other; answers how many are left."""
    queued = set(line.waiters()) if machine == QUEUE else set()
    for execution in list(starting):
        polls = machine != QUEUE and ("Guard: Wait" in line.deployment.states_entered(execution))
        if polls or execution in queued:
            starting.remove(execution)
            waiting.append(execution)
    return len(starting)
