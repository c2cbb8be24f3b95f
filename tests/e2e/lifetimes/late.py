"""Acquires that land when the reaper has had its first look at their workflow."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Final

from tests.e2e.deployment import Deployment, Ended, Json, wait_until
from tests.e2e.lifetimes.deaths import FOR_EVER_SECONDS
from tests.e2e.lifetimes.scene import (
    QUICK_SECONDS,
    SLOW_SECONDS,
    GatedScene,
    at_work,
    back_at_work,
)
from tests.e2e.looks import SECOND_PASS_SECONDS

BEFORE_ITS_CLAIM: Final = 0
BEFORE_THE_LOCK: Final = 1
STILL_HELD_SECONDS: Final = SECOND_PASS_SECONDS + 7


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
    """An acquire that landed late, on a lock that somebody else had taken meanwhile.

    Attributes:
        queued: who was in the queue then.
        renewals: what the newer holder was told when its beats came, before and after the second
            look.
        released: what it was told at last.
        waiters: for the lock, after the second look.
        holders: of the lock, at the end.
    """

    execution: str
    queued: list[str]
    renewals: list[Json]
    released: Json
    waiters: list[str]
    holders: list[str]


@dataclass(frozen=True)
class LateUnlooked:
    """An acquire that landed late, and no second look came.

    Attributes:
        held_seconds: for how long after the first look the lock was watched.
        refusal: what a direct caller was told then.
    """

    execution: str
    held_seconds: float
    refusal: Json


def on_a_free_lock(deployment: Deployment, requests: int, *, used: bool) -> Late:
    scene = GatedScene(deployment, requests=requests)
    with at_work():
        victim, died_at = _die_at_the_gate(scene, "DiesNested")
        if used:
            _use(scene)
        scene.open()
        leaked = scene.holders() == [victim]
        follow = scene.start_behind if leaked else scene.start
        follower = follow("Dies", seconds=0)
    ended = scene.ended(follower)
    return Late(
        execution=victim,
        leaked=leaked,
        next_ended=ended,
        freed_seconds=ended.output["began_ms"] / 1000 - died_at,
        holders=scene.holders(),
        waiters=scene.waiters(),
    )


def on_a_taken_lock(deployment: Deployment, requests: int) -> LateBehind:
    scene = GatedScene(deployment, requests=requests)
    owner = {"lock_name": scene.lock, "owner_id": str(uuid.uuid4())}
    with at_work():
        victim, _ = _die_at_the_gate(scene, "DiesNested")
        _use(scene)
        deployment.invoke("Acquire", **owner, owner_name="newer", lease_seconds=600)
        scene.open()
        queued = scene.waiters()
        renewals = [deployment.invoke("Heartbeat", **owner)]
    wait_until(lambda: scene.waiters() == [], pause_seconds=SLOW_SECONDS)
    with back_at_work():
        renewals.append(deployment.invoke("Heartbeat", **owner))
        released = deployment.invoke("Release", **owner)
    return LateBehind(victim, queued, renewals, released, scene.waiters(), scene.holders())


def without_second_look(deployment: Deployment, requests: int) -> LateUnlooked:
    scene = GatedScene(deployment.of("Unreaped"), stack="Unreaped", requests=requests)
    with at_work():
        victim, _ = _die_at_the_gate(scene, "WatchedNested")
        passed_at = time.time()
        _use(scene)
        scene.open()
    over_at = passed_at + STILL_HELD_SECONDS
    wait_until(
        lambda: time.time() > over_at or scene.holders() != [victim],
        pause_seconds=SLOW_SECONDS,
    )
    with back_at_work():
        return LateUnlooked(victim, time.time() - passed_at, scene.ask())


def _die_at_the_gate(scene: GatedScene, machine: str) -> tuple[str, float]:
    """Stops a workflow whose acquire is under way; tells when, after the reaper's first pass.

    It holds another lock, and a look frees a lock only when it has seen all claims.
    """
    outer = f"outer/{scene.lock}"
    victim = scene.start(machine, seconds=FOR_EVER_SECONDS)
    scene.await_arrival()
    assert scene.holders(outer) == [victim]
    died_at = scene.stop(victim)
    wait_until(lambda: scene.holders(outer) == [], pause_seconds=QUICK_SECONDS)
    return victim, died_at


def _use(scene: GatedScene) -> None:
    """Somebody else takes the lock and gives it back.

    Else the first look's release on behalf of the execution is the last one, and an acquire of the
    same owner is refused for that alone.
    """
    owner = {"lock_name": scene.lock, "owner_id": str(uuid.uuid4())}
    scene.deployment.invoke("Acquire", **owner)
    scene.deployment.invoke("Release", **owner)
