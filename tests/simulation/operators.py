"""Scenario 18: operators release by force, pause, resume and change limits at random.

That a release by force asks whether anyone waits has no control here: clients that wait poll, and a
caller that finds a free permit of a contended lock grants it to the oldest waiter. Only the push to
a workflow would be missing, which a mutant of the model finds.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from fairlock import HolderChanged, LockStoreUnavailable
from tests.model.contention.mutants import MUTANTS
from tests.simulation.clients import ClientActor
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet, one_or_three
from tests.simulation.scenario import Control, Scenario
from tests.simulation.world import World

_OPERATORS: Final = 50
_ACTIONS: Final = 30
_BETWEEN_SECONDS: Final = 8.0
_REASON: Final = "a simulated incident"


def send_operators(world: World, fleet: Fleet) -> None:
    """Operators, each of whom looks after some of the locks alone."""
    locks = fleet.locks(world)
    count = min(len(locks), world.scaled(_OPERATORS))
    for number in range(count):
        actor = ClientActor.of(world, f"operator {number}")
        mine = locks[number::count]
        run = partial(operate, actor, mine, _ACTIONS, _BETWEEN_SECONDS)
        world.begin(5, actor.process, run)


def operate(actor: ClientActor, locks: list[str], actions: int, every: float) -> None:
    """Releases by force, or limits and resumes, so many times; every so many seconds."""
    random = actor.world.random
    for _ in range(actions):
        actor.clock.wait(random.expovariate(1 / every))
        name = random.choice(locks)
        if random.random() < 0.5:
            _release_by_force(actor, name)
        else:
            _limit(actor, name, random.choice((0, 0, 1, 2)))
            actor.clock.wait(random.expovariate(1 / _BETWEEN_SECONDS))
            _lift(actor, name)
    actor.locks.close()


def _release_by_force(actor: ClientActor, name: str) -> None:
    judge, engine = actor.world.judge, actor.world.engine
    try:
        found = actor.locks.describe(name)
        if found is None or not found.holders:
            return
        holder = actor.world.random.choice(found.holders)
        judge.forced(name, holder.fencing_token)
        engine.trace(actor.process.name, f"{name}: force token {holder.fencing_token}")
        actor.world.faults_seen["releases by force"] += 1
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
    actor.world.faults_seen["pauses and limits"] += 1
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


def _of_the_model(name: str, breaks: str) -> Control:
    return Control(name=name, breaks=breaks, sabotage=MUTANTS[name].applied)


OPERATORS: Final = Scenario(
    number=18,
    title="operators release by force, pause and change limits at random",
    load="1,000 clients take turns at 200 locks; 50 operators act every 8 s",
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
        others=send_operators,
    ).play,
    controls=(
        _of_the_model("a ceiling is set, and the fencing token stays", "no grant above a ceiling"),
        _of_the_model("the first write does not ask for a ceiling", "no grant above a ceiling"),
    ),
)
