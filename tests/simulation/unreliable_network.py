"""Scenario 9: replies that are lost or late, requests that never arrive, and copies that land late.

Its holders hold for about a lease, and renew meanwhile. Some are killed, so that takeovers happen
beside writes that come late.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from fairlock.client import local_waiters
from fairlock.protocol import grants, outcomes
from fairlock.store import keep_alive
from tests.model.mutant import without
from tests.simulation.clients import ClientActor
from tests.simulation.engine import Process
from tests.simulation.faults import Faults, Network
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.world import World

_CLIENTS: Final = 1_500
_CLIENTS_OF_A_NAME: Final = 5
_LEASE_SECONDS: Final = 10
_TURNS: Final = 8
_KILLED: Final = 0.05
_MAX_WAIT_SECONDS: Final = 240


_NOT_LATER: Final = "#mine.#h_expires_at_ms <= :expires_at_ms"


def _is_over_early(expires_at_ms: int, *, date_ms: int) -> bool:
    return date_ms >= expires_at_ms - 8_000


def _play(world: World) -> None:
    count = max(_CLIENTS_OF_A_NAME, world.scaled(_CLIENTS))
    for number in range(count):
        actor = ClientActor.of(world, f"client {number}", lease=_LEASE_SECONDS)
        name = f"orders/{number // _CLIENTS_OF_A_NAME}"
        world.begin(world.random.random() * 5, actor.process, partial(_turns, actor, name))
        if world.random.random() < _KILLED:
            world.engine.after(world.random.uniform(10, 120), _kill, world, actor.process)
    world.run(at_most=_TURNS * (_MAX_WAIT_SECONDS + 60))


def _turns(actor: ClientActor, name: str) -> None:
    random = actor.world.random
    for _ in range(_TURNS):
        actor.clock.wait(random.expovariate(1 / 5))
        work = random.expovariate(1 / 6)
        actor.take(name, work, max_wait=_MAX_WAIT_SECONDS)


def _kill(world: World, process: Process) -> None:
    if process.tasks:
        world.engine.trace(process.name, "killed")
        process.kill()


UNRELIABLE_NETWORK: Final = Scenario(
    number=9,
    title="5 % of replies lost, 1 % late by up to 10 s, 1 % of requests land once more",
    load=f"{_CLIENTS} clients take turns at {_CLIENTS // _CLIENTS_OF_A_NAME} locks; 5 % are killed",
    promise=(
        "as long as `check` does not raise, no other owner has been granted this permit (fairlock/"
        "client/lock.py); a holder that crashed is replaced its lease + 5 s after its last renewal"
    ),
    faults=Faults(
        network=Network(lost_requests=0.01, lost_replies=0.05, late_replies=0.01, copies=0.01)
    ),
    play=_play,
    controls=(
        Control(
            name="the lease of another counts as over too early",
            breaks="no more holders than the limit",
            sabotage=lambda: patched(
                (outcomes, "is_over", _is_over_early), (local_waiters, "is_over", _is_over_early)
            ),
        ),
        Control(
            name="a late heartbeat may move the end back",
            breaks="no more holders than the limit",
            sabotage=lambda: patched(
                (
                    keep_alive,
                    "renew",
                    without(_NOT_LATER, grants.renew, instead="attribute_exists(#mine)"),
                )
            ),
            faults=Faults(network=Network(copies=0.3)),
            seed=3,
        ),
    ),
)
