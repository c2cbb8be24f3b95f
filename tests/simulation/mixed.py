"""Scenario 16: callers of all kinds at the same names, as far as they are Python programs.

Some take a lock and write under it, some take two names at once, some skip a lock that is taken,
some release in the transaction that writes. All compete for the same few names.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from fairlock.client.several_locks import LocksInOrder
from tests.simulation.clients import ClientActor
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.world import World

_TRANSFERS: Final = 300
_SKIPPERS: Final = 200
_TURNS: Final = 10
_MAX_WAIT_SECONDS: Final = 240.0


def _send_others(world: World, fleet: Fleet) -> None:
    names = [*fleet.locks(world), "orders/of others"]
    for number in range(max(2, world.scaled(_TRANSFERS))):
        actor = ClientActor.of(world, f"transfer {number}", lease=10)
        world.begin(world.random.random() * 5, actor.process, partial(_transfer, actor, names))
    for number in range(max(2, world.scaled(_SKIPPERS))):
        actor = ClientActor.of(world, f"skipper {number}", lease=10)
        world.begin(world.random.random() * 5, actor.process, partial(_skip, actor, names))


def _transfer(actor: ClientActor, names: list[str]) -> None:
    """Takes two names at once, in whatever order it happens to name them."""
    random = actor.world.random
    for _ in range(_TURNS):
        actor.clock.wait(random.expovariate(1 / 10))
        actor.take_all(random.sample(names, 2), random.expovariate(1 / 3), _MAX_WAIT_SECONDS)
    actor.locks.close()


def _skip(actor: ClientActor, names: list[str]) -> None:
    """Takes a lock if no one has it, and releases it with its last write."""
    random = actor.world.random
    for _ in range(3 * _TURNS):
        actor.clock.wait(random.expovariate(1 / 5))
        name, work = random.choice(names), random.expovariate(1 / 3)
        actor.take(name, work, max_wait=0, is_last_write=True)
    actor.locks.close()


def _as_named(plan: LocksInOrder) -> list[str]:
    return list(plan.names)


MIXED: Final = Scenario(
    number=16,
    title="callers of all kinds at the same names",
    load="500 clients at 100 locks, 300 that take two of them at once, 200 that skip taken ones",
    promise=(
        "no two callers with `hold_all` wait for each other in a circle; a wait of it ends after "
        "`max_wait`, and none is held (docs/turns.md)"
    ),
    faults=Faults(network=Network(lost_replies=0.01, copies=0.01), machines=Machines(killed=2)),
    play=Fleet(
        clients=500, of_a_lock=3, turns=10, lease=10, think=10, work=3, others=_send_others
    ).play,
    controls=(
        Control(
            name="several locks are taken in the order in which they are named",
            breaks="no wait in a circle",
            sabotage=lambda: patched((LocksInOrder, "in_order", property(_as_named))),
        ),
    ),
)
