"""Scenario 20: all faults together, for a simulated month."""

from __future__ import annotations

from functools import partial
from typing import Final

from fairlock.client import heartbeats
from tests.model.contention.mutants import MUTANTS
from tests.simulation.clients import ClientActor
from tests.simulation.clocks import ClockErrors
from tests.simulation.faults import Database, Faults, Machines, Network
from tests.simulation.fleet import Fleet
from tests.simulation.operators import operate
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.ways import options_of_a_kind
from tests.simulation.world import World

_DAY: Final = 86_400.0
_DAYS: Final = 30
_DAYS_BETWEEN_OUTAGES: Final = 3
_LONGEST_OUTAGE_SECONDS: Final = 420.0
_ACTIONS: Final = 60


def _send_others(world: World, fleet: Fleet) -> None:
    """An operator of each lock, and outages until all turns are over."""
    for number, lock in enumerate(fleet.locks(world)):
        actor = ClientActor.of(world, f"operator {number}")
        every = _DAYS * _DAY / _ACTIONS
        world.begin(60, actor.process, partial(operate, actor, [lock], _ACTIONS, every))
    _plan_outage(world)


def _plan_outage(world: World) -> None:
    seconds = world.random.expovariate(1 / (_DAYS_BETWEEN_OUTAGES * _DAY))
    world.engine.after(seconds, _have_outage, world)


def _have_outage(world: World) -> None:
    world.goes_out(world.random.uniform(5, _LONGEST_OUTAGE_SECONDS))
    _plan_outage(world)


MONTH: Final = Scenario(
    number=20,
    title="all faults together for a month",
    load="500 clients take turns at 50 locks of four kinds, once an hour each, work 2 min",
    promise="all of them: docs/guarantees.md",
    faults=Faults(
        clocks=ClockErrors(wall_seconds=200, drift=0.005, set_every=_DAY),
        network=Network(
            lost_requests=0.002,
            lost_replies=0.002,
            late_replies=0.001,
            late_requests=0.001,
            copies=0.005,
            late_seconds=30,
            front_ends=0.5,
        ),
        database=Database(server_errors=0.001, throttles=0.001),
        machines=Machines(killed=0.02, suspended=0.05, suspended_seconds=180),
    ),
    play=Fleet(
        clients=500,
        of_a_lock=10,
        turns=24 * _DAYS,
        lease=60,
        think=3_600 - 120,
        work=60,
        max_wait=900,
        starts_within=3_600,
        options=options_of_a_kind,
        others=_send_others,
        at_most=_DAYS * _DAY * 2,
    ).play,
    seeds=3,
    scale_of_tests=0.0005,
    # Clients that hold nothing for an hour look once in a while whether they are closed.
    conditions=lambda _scale: patched((heartbeats, "LONGEST_NAP_SECONDS", 600.0)),
    controls=(
        Control(
            name="the limit is compared with <>",
            breaks="no more holders than the limit",
            sabotage=MUTANTS["the limit is compared with <>"].applied,
        ),
    ),
)
