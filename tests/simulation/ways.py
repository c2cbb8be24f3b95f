"""Scenarios of all ways to use locks: 17 to 19."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

from fairlock import HolderChanged, Lock, LockStoreUnavailable, SlotTooLate
from fairlock.protocol.outcomes import Reaped
from fairlock.store import reap
from tests.simulation.clients import ClientActor, send
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet, one_or_three
from tests.simulation.functions import Json
from tests.simulation.guard import Account
from tests.simulation.recovery import Stage
from tests.simulation.scenario import Control, Scenario
from tests.simulation.versions import machine
from tests.simulation.workload import require_all_free, run_until_idle, start_all
from tests.simulation.world import World

# Scenario 19: all ways to take turns: readers and writers, newest only, limits, leaders, paces.

_PACE_SECONDS: Final = 6.0
_LEADING_SECONDS: Final = 400.0


def options_of_a_kind(world: World, lock: int) -> dict[str, Any]:
    """A quarter of the locks is shared, has versions, lets three in, or is plain."""
    kind = lock % 4
    if kind == 0:
        return {"shared": True} if world.random.random() < 0.7 else {}
    if kind == 1:
        world.figures["version"] = world.figures.get("version", 0) + 1
        return {"only_newest": world.figures["version"]}
    return {"limit": 3} if kind == 2 else {}


def _send_others(world: World, _fleet: Fleet) -> None:
    for number in range(max(3, world.scaled(100))):
        actor = ClientActor(world, f"candidate {number}", lease=10)
        world.begin(world.random.random() * 5, actor.process, partial(_lead, actor, number))
        if number % 3 == 0:
            seconds = world.random.uniform(20, _LEADING_SECONDS)
            world.engine.after(seconds, world.kill, actor.process)
    send(world, "caller", max(4, world.scaled(200)), _call, turns=20, think=10)


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
    judge, name = actor.world.judge, f"vendor/{number // 20}"
    try:
        actor.locks.pace(name, rate=(1, _PACE_SECONDS), max_wait=60)
    except SlotTooLate:
        judge.outcomes["too late for a slot"] += 1
    else:
        judge.began_in_slot(name, _PACE_SECONDS)
        judge.outcomes["slots"] += 1


WAYS: Final = Scenario(
    number=19,
    title="readers and writers, newest only, three permits, leaders and paces, side by side",
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
        Control(
            name="a reader comes in beside a writer",
            breaks="no more holders than the limit",
            seed=3,
        ),
        Control(name="a reader overtakes a writer that waits", breaks="first come, first served"),
        Control(name="a grant goes below a version that was granted", breaks="newest only"),
    ),
)


# Scenario 17: Maps with 40 guarded iterations; one that fails stops the others.
#
# Step Functions stops the other iterations without any Catch of theirs. The failure is caught
# around the Map, so the execution goes on: what its iterations have left behind is freed when it
# ends. The execution ends with an error, so that there is an event.

_SECONDS: Final = 1_200.0
_GOES_ON_SECONDS: Final = 20
_EVENT_SECONDS: Final = 25.0
"""For the event, the reaper's pass over 40 claims, and iterations that have ended just before."""


def map_of_guards() -> Json:
    return {
        "StartAt": "Each",
        "States": {
            "Each": {
                "Type": "Map",
                "Items": "{% $states.input.items %}",
                "ItemProcessor": machine("queue"),
                "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Goes on"}],
                "Next": "Done",
            },
            "Goes on": {"Type": "Wait", "Seconds": _GOES_ON_SECONDS, "Next": "Fails"},
            "Fails": {"Type": "Fail", "Error": "AnIterationFailed"},
            "Done": {"Type": "Succeed"},
        },
    }


def _play(world: World) -> None:
    account, random, names = Account(world), world.random, world.scaled(4_000)

    def given(_number: int) -> Json:
        items = [
            {
                "lock": f"row/{random.randrange(names)}",
                "work": random.expovariate(1 / 3.0),
                "fails": random.random() < 0.02,
            }
            for _ in range(40)
        ]
        return {"items": items}

    moments = [random.random() * _SECONDS for _ in range(world.scaled(1_000))]
    start_all(account, moments, given, form="map", definition=map_of_guards())
    run_until_idle(account, from_seconds=_SECONDS)
    require_all_free(account)


MAPS: Final = Scenario(
    number=17,
    title="Maps with 40 guarded iterations whose siblings fail",
    promise=(
        "a guard in a stopped branch holds its lock until the execution ends; then the reaper "
        "removes its waiters and frees its locks (docs/guard.md, Stopped branches)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=_GOES_ON_SECONDS + _EVENT_SECONDS,
    controls=(
        Control(
            name="the reaper frees nothing",
            breaks="all is free at the end",
            patches=((reap, "_reap", lambda *_: Reaped()),),
        ),
    ),
)


# Scenario 18: operators release by force, pause, resume and change limits at random.
#
# That a release by force asks whether anyone waits has no control here: clients that wait poll,
# and a caller that finds a free permit of a contended lock grants it to the oldest waiter. Only
# the push to a workflow would be missing, which a mutant of the model finds.

_BETWEEN_SECONDS: Final = 8.0
_REASON: Final = "a simulated incident"


def send_operators(
    world: World,
    locks: list[str],
    count: int,
    *,
    actions: int,
    every: float,
    begin: float = 5,
    **settings: Any,  # noqa: ANN401 - as LockClient takes them
) -> None:
    """Operators, each of whom looks after some of the locks alone."""
    for number in range(count):
        actor = ClientActor(world, f"operator {number}", **settings)
        turn = partial(_operate, actor, locks[number::count])
        world.begin(begin, actor.process, partial(actor.have_turns, actions, every, turn))


def _operate(actor: ClientActor, locks: list[str]) -> None:
    """Releases by force, or limits and resumes."""
    random = actor.world.random
    name = random.choice(locks)
    if random.random() < 0.5:
        _release_by_force(actor, name)
    else:
        _limit(actor, name, random.choice((0, 0, 1, 2)))
        actor.clock.wait(random.expovariate(1 / _BETWEEN_SECONDS))
        _lift(actor, name)


def _send_operators(world: World, fleet: Fleet) -> None:
    locks = fleet.locks(world)
    count = min(len(locks), world.scaled(50))
    send_operators(world, locks, count, actions=30, every=_BETWEEN_SECONDS)


def _release_by_force(actor: ClientActor, name: str) -> None:
    judge, engine = actor.world.judge, actor.world.engine
    try:
        found = actor.locks.describe(name)
        if found is None or not found.holders:
            return
        holder = actor.world.random.choice(found.holders)
        judge.forced(name, holder.fencing_token)
        engine.trace(actor.process.name, f"{name}: force token {holder.fencing_token}")
        engine.faults["releases by force"] += 1
        actor.locks.force_release(name, holder=holder, reason=_REASON)
    except (HolderChanged, LockStoreUnavailable) as error:
        engine.trace(actor.process.name, f"{name}: {type(error).__name__}")
        return
    judge.forced(name, holder.fencing_token)  # It may have landed only now.


def _limit(actor: ClientActor, name: str, most: int) -> None:
    judge, engine = actor.world.judge, actor.world.engine
    try:
        if most:
            actor.locks.set_limit(name, most, reason=_REASON)
        else:
            actor.locks.pause(name, reason=_REASON)
    except LockStoreUnavailable:
        return
    judge.ceilings[name] = most
    engine.faults["pauses and limits"] += 1
    engine.trace(actor.process.name, f"{name}: at most {most}")


def _lift(actor: ClientActor, name: str) -> None:
    """Resumes, and tries until that has an answer: no one else looks after this lock."""
    actor.world.judge.ceilings.pop(name, None)
    while True:
        try:
            actor.locks.resume(name)
        except LockStoreUnavailable:
            continue
        actor.world.engine.trace(actor.process.name, f"{name}: resumed")
        return


OPERATORS: Final = Scenario(
    number=18,
    title="operators release by force, pause and change limits at random",
    promise=(
        "when `pause` or `set_limit` returns, no grant goes above it; a holder that was released "
        "by force learns it at its next heartbeat (docs/turns.md, docs/runbook.md)"
    ),
    faults=Faults(
        network=Network(lost_requests=0.005, lost_replies=0.01, copies=0.01),
        machines=Machines(killed=2),
    ),
    play=Fleet(
        clients=1_000,
        of_a_lock=5,
        turns=15,
        lease=10,
        think=3,
        options=one_or_three,
        others=_send_operators,
    ).play,
    controls=(
        Control(
            name="a ceiling is set, and the fencing token stays", breaks="no grant above a ceiling"
        ),
        Control(
            name="the first write does not ask for a ceiling", breaks="no grant above a ceiling"
        ),
    ),
)
