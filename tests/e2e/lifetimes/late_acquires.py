"""Acquires that land when the reaper has had its first reap pass at their workflow."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from fairlock.protocol.admission import SLACK_MS
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment, Ended, Json, wait_until
from tests.e2e.lifetimes.contested_lock import (
    QUICK_SECONDS,
    SLOW_SECONDS,
    ContestedLock,
    GatedLock,
    calling,
    calling_again,
)
from tests.e2e.lifetimes.workflow_deaths import FOR_EVER_SECONDS
from tests.e2e.scenario_runs import SECOND_PASS_SECONDS

BEFORE_ITS_CLAIM: Final = 0
BEFORE_THE_LOCK: Final = 1
STILL_HELD_SECONDS: Final = SECOND_PASS_SECONDS + 7
STALLED_SECONDS: Final = 2 * SLACK_MS / 1000
"""For so long the acquire stands at the gate before any other caller leaves its lock."""


@dataclass(frozen=True)
class Late:
    """An acquire that landed late, on a lock that was free.

    Attributes:
        leaked: whether the dead workflow held the lock then.
        next_ended: how the workflow ended that waited behind it.
        freed_seconds: from the death until that one's work began.
        holders: of the lock, at the end.
        waiters: for the lock, at the end.
    """

    execution: str
    leaked: bool
    next_ended: Ended
    freed_seconds: float
    holders: list[str]
    waiters: list[str]


@dataclass(frozen=True)
class LateBehind:
    """An acquire that landed late, on a lock that another caller had taken meanwhile.

    Attributes:
        queued: who was in the queue then.
        renewals: the answers to the newer holder's heartbeats, before and after the second pass.
        released: what it was told at last.
        waiters: for the lock, after the second pass.
        holders: of the lock, at the end.
    """

    execution: str
    queued: list[str]
    renewals: list[Json]
    released: Json
    waiters: list[str]
    holders: list[str]


@dataclass(frozen=True)
class LateWithoutSecondPass:
    """An acquire that landed late, and no second pass came.

    Attributes:
        held_seconds: for how long after the first reap pass the lock was watched.
        answer: what a direct caller was told then.
    """

    execution: str
    held_seconds: float
    answer: Json


def on_a_free_lock(deployment: Deployment, requests: int, *, used: bool) -> Late:
    contested = GatedLock(deployment, requests=requests)
    with calling():
        victim, died_at = _die_at_the_gate(contested, "DiesNested")
        if used:
            _use(contested)
        contested.open()
        leaked = contested.holders() == [victim]
        follow = contested.start_behind if leaked else contested.start
        follower = follow("Dies", seconds=0)
    ended = contested.ended(follower)
    return Late(
        execution=victim,
        leaked=leaked,
        next_ended=ended,
        freed_seconds=ended.output["began_ms"] / 1000 - died_at,
        holders=contested.holders(),
        waiters=contested.waiters(),
    )


def on_a_taken_lock(deployment: Deployment, requests: int) -> LateBehind:
    contested = GatedLock(deployment, requests=requests)
    owner = {"lock_name": contested.lock, "owner_id": str(uuid.uuid4())}
    with calling():
        victim, _ = _die_at_the_gate(contested, "DiesNested")
        _use(contested)
        deployment.invoke("Acquire", **owner, owner_name="newer", lease_seconds=600)
        contested.open()
        queued = contested.waiters()
        renewals = [deployment.invoke("Heartbeat", **owner)]
    wait_until(lambda: contested.waiters() == [], pause_seconds=SLOW_SECONDS)
    with calling_again():
        renewals.append(deployment.invoke("Heartbeat", **owner))
        released = deployment.invoke("Release", **owner)
    return LateBehind(victim, queued, renewals, released, contested.waiters(), contested.holders())


def without_second_pass(deployment: Deployment, requests: int) -> LateWithoutSecondPass:
    contested = GatedLock(deployment.of("Unreaped"), stack="Unreaped", requests=requests)
    with calling():
        victim, _ = _die_at_the_gate(contested, "WatchedNested")
        passed_at = time.time()
        _use(contested)
        contested.open()
    over_at = passed_at + STILL_HELD_SECONDS
    wait_until(
        lambda: time.time() > over_at or contested.holders() != [victim],
        pause_seconds=SLOW_SECONDS,
    )
    with calling_again():
        return LateWithoutSecondPass(victim, time.time() - passed_at, contested.ask())


def _die_at_the_gate(contested: GatedLock, machine: str) -> tuple[str, float]:
    """Stops a workflow whose acquire is under way; tells when, after the reaper's first pass.

    It holds another lock, and a reap pass frees locks only when it has read all claims.
    """
    outer = f"outer/{contested.lock}"
    victim = contested.start(machine, seconds=FOR_EVER_SECONDS)
    contested.await_arrival()
    stalled_until = time.monotonic() + STALLED_SECONDS
    assert contested.holders(outer) == [victim]
    died_at = contested.stop(victim)
    wait_until(
        lambda: contested.holders(outer) == [] and time.monotonic() > stalled_until,
        pause_seconds=QUICK_SECONDS,
    )
    return victim, died_at


def _use(contested: GatedLock) -> None:
    """Another caller else takes the lock and gives it back.

    Else the release by the first reap pass is the last one, and an acquire of the same owner is
    refused for that alone.
    """
    owner = {"lock_name": contested.lock, "owner_id": str(uuid.uuid4())}
    contested.deployment.invoke("Acquire", **owner)
    contested.deployment.invoke("Release", **owner)


# Events of dead workflows that come twice, late and in reverse order.

OUTLASTS_SECOND_PASSES_SECONDS: Final = SECOND_PASS_SECONDS + 10


@dataclass(frozen=True)
class Replayed:
    """Two dead workflows, and two living ones that came after them.

    Attributes:
        dead: the executions, in the order of their deaths.
        third: how the third one ended, which held the lock when the events came again.
        fourth: how the fourth one ended, which was in the queue.
        overlap_seconds: for how long both were at work.
    """

    dead: tuple[str, str]
    third: Ended
    fourth: Ended

    @property
    def overlap_seconds(self) -> float:
        overlap_ms: float = self.third.output["ended_ms"] - self.fourth.output["began_ms"]
        return max(0.0, overlap_ms / 1000)


def event(execution_arn: str) -> dict[str, Any]:
    """What the rule puts into the queue."""
    return {"detail": {"executionArn": execution_arn, "redriveCount": "0"}}


def second_pass(execution_arn: str) -> dict[str, Any]:
    """What the reaper sends to itself."""
    return {"execution_arn": execution_arn, "redrives": 0, "second_pass": True}


def send(deployment: Deployment, *messages: dict[str, Any]) -> None:
    for message in messages:
        _queues(deployment.aws).send_message(
            QueueUrl=deployment.outputs["Fairlock"]["ReapQueueUrl"],
            MessageBody=json.dumps(message),
        )


@cache
def _queues(aws: LocalAws) -> Any:  # noqa: ANN401 - a boto3 client
    return aws.client("sqs")


def twice_in_reverse_order(deployment: Deployment) -> Replayed:
    """Events of two dead workflows, each of them twice more, when others hold and wait."""
    contested = ContestedLock(deployment)
    with calling():
        first = contested.start_inside("DiesKeptAlive", seconds=FOR_EVER_SECONDS)
        second = contested.start_behind("Dies", seconds=FOR_EVER_SECONDS)
        third = contested.start_behind("Dies", seconds=OUTLASTS_SECOND_PASSES_SECONDS)
        fourth = contested.start_behind("Dies", seconds=0)
        for dead, heir in ((first, second), (second, third)):
            contested.stop(dead)
            contested.await_holder(heir)
        messages = (event, event, second_pass)
        send(deployment, *(message(dead) for message in messages for dead in (second, first)))
    return Replayed((first, second), contested.ended(third), contested.ended(fourth))


def of_the_living(deployment: Deployment) -> Replayed:
    """Forged messages about the one that holds the lock, and runs."""
    contested = ContestedLock(deployment)
    with calling():
        third = contested.start_inside("Dies", seconds=20)
        fourth = contested.start_behind("Dies", seconds=0)
        later_run = {**second_pass(third), "redrives": 7}
        send(deployment, event(third), second_pass(third), later_run)
    return Replayed((third, third), contested.ended(third), contested.ended(fourth))
