"""Scenario 19: all ways to take turns: readers and writers, newest only, limits, leaders, paces."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

from fairlock import Lock, SlotTooLate
from tests.model.contention.mutants import MUTANTS
from tests.simulation.clients import ClientActor
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet
from tests.simulation.recovery import Stage
from tests.simulation.scenario import Control, Scenario
from tests.simulation.world import World

_KINDS: Final = 4
_READERS: Final = 0.7
_PACE_SECONDS: Final = 6.0
_LEADERS: Final = 100
_LEADING_SECONDS: Final = 400.0
_CALLERS: Final = 200
_CALLS: Final = 20


def options_of_a_kind(world: World, lock: int) -> dict[str, Any]:
    """A quarter of the locks is shared, has versions, lets three in, or is plain."""
    kind = lock % _KINDS
    if kind == 0:
        return {"shared": True} if world.random.random() < _READERS else {}
    if kind == 1:
        world.figures["version"] = world.figures.get("version", 0) + 1
        return {"only_newest": world.figures["version"]}
    return {"limit": 3} if kind == 2 else {}


def _send_others(world: World, _fleet: Fleet) -> None:
    for number in range(max(3, world.scaled(_LEADERS))):
        actor = ClientActor.of(world, f"candidate {number}", lease=10)
        world.begin(world.random.random() * 5, actor.process, partial(_lead, actor, number))
        if number % 3 == 0:
            seconds = world.random.uniform(20, _LEADING_SECONDS)
            world.engine.after(seconds, world.kill, actor.process)
    for number in range(max(4, world.scaled(_CALLERS))):
        actor = ClientActor.of(world, f"caller {number}")
        world.begin(world.random.random() * 5, actor.process, partial(_call, actor, number))


def _lead(actor: ClientActor, number: int) -> None:
    """Leads, or waits to, until the time of this scenario is over."""
    world, engine = actor.world, actor.world.engine
    name, label = f"leader/{number // 3}", f"{actor.process.name}/1"
    asked = world.recovery.begins(name, label, 1, actor.process)

    def work(lock: Lock, stop: threading.Event) -> None:
        belief = actor.believe(lock, asked)
        while not stop.wait(1.0) and world.seconds < _LEADING_SECONDS:
            pass
        world.judge.left(belief)
        next_stage = Stage.LEAVES if world.seconds >= _LEADING_SECONDS else Stage.WAITS
        world.recovery.becomes(asked, next_stage, belief)
        engine.trace(actor.process.name, f"{name}: leads no more")

    actor.locks.lead(name, work, owner_name=label)
    world.recovery.becomes(asked, Stage.ENDED)
    world.judge.outcomes["led"] += 1


def _call(actor: ClientActor, number: int) -> None:
    """Calls at a pace."""
    random, judge, name = actor.world.random, actor.world.judge, f"vendor/{number // 20}"
    for _ in range(_CALLS):
        actor.clock.wait(random.expovariate(1 / 10))
        try:
            actor.locks.pace(name, rate=(1, _PACE_SECONDS), max_wait=60)
        except SlotTooLate:
            judge.outcomes["too late for a slot"] += 1
        else:
            judge.began_in_slot(name, _PACE_SECONDS)
            judge.outcomes["slots"] += 1


def _of_the_model(name: str, breaks: str, *, seed: int = 1) -> Control:
    return Control(name=name, breaks=breaks, sabotage=MUTANTS[name].applied, seed=seed)


WAYS: Final = Scenario(
    number=19,
    title="readers and writers, newest only, three permits, leaders and paces, side by side",
    load="1,000 clients at 200 locks of four kinds, 100 candidates at 33 leaders, 10 paces",
    promise=(
        "readers never beside a writer; after a version was granted, no lower one is; one leader; "
        "no more than the rate (docs/turns.md)"
    ),
    faults=Faults(
        network=Network(lost_replies=0.01, copies=0.02, front_ends=0.5), machines=Machines(killed=2)
    ),
    play=Fleet(
        clients=1_000,
        of_a_lock=5,
        turns=12,
        lease=10,
        think=4,
        options=options_of_a_kind,
        others=_send_others,
    ).play,
    controls=(
        _of_the_model(
            "a reader comes in beside a writer", "no more holders than the limit", seed=3
        ),
        _of_the_model("a reader overtakes a writer that waits", "first come, first served"),
        _of_the_model("a grant goes below a version that was granted", "newest only"),
    ),
)
