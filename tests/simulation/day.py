"""Scenarios of long times: 1, 16 and 20."""

from __future__ import annotations

import heapq
from functools import partial
from typing import Any, Final

from fairlock.client import heartbeats
from fairlock.client.blocks import LocksInOrder
from fairlock.protocol.schema import TTL_ATTRIBUTE
from fairlock.testing.fake_table import Key
from fairlock.testing.interpreter import Item
from tests.simulation.clients import ClientActor, DirectCaller, send
from tests.simulation.faults import (
    ClockErrors,
    Database,
    EventFaults,
    Faults,
    LambdaFaults,
    Machines,
    Network,
)
from tests.simulation.fleet import Fleet
from tests.simulation.guard import Account
from tests.simulation.hot_lock import NEWEST_FIRST
from tests.simulation.scenario import Control, Scenario
from tests.simulation.ways import options_of_a_kind, send_operators
from tests.simulation.workflows import BOUND_SECONDS
from tests.simulation.workload import Load, require_no_dead_letter, start_all, wait_until_idle
from tests.simulation.world import World

# Scenario 1: a day of a large service: a million guarded executions on 100,000 names.
#
# A few names are wanted often and most hardly ever. Now and then something goes wrong: a function
# is killed, an event is lost, a push does not arrive, a reply is late, an execution is stopped. A
# smaller run is a part of the day, with as many fewer names.

_DAY: Final = 86_400.0
_SWEEP_SECONDS: Final = 300.0
_LATE_SECONDS: Final = 7_200.0


class TimeToLive:
    """DynamoDB's TTL: removes items some time after their `expiry_time`.

    Source: "Using time to live (TTL) in DynamoDB" of its developer guide: within a few days, mostly
    far sooner. Late ones make no difference here but to memory.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._due: list[tuple[float, Key]] = []
        world.database.table.sees.append(self._saw)
        world.engine.after(_SWEEP_SECONDS, self._sweep)

    def _saw(self, key: Key, _old: Item, new: Item) -> None:
        if TTL_ATTRIBUTE in new and key[1] != "STATE":
            late = self._world.random.random() * _LATE_SECONDS
            heapq.heappush(self._due, (float(new[TTL_ATTRIBUTE]["N"]) + late, key))

    def _sweep(self) -> None:
        now, table = self._world.engine.now, self._world.database.table
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            item = table.items.get(key, {})
            if TTL_ATTRIBUTE in item and float(item[TTL_ATTRIBUTE]["N"]) <= now:
                table.remove(key)
        self._world.engine.after(_SWEEP_SECONDS, self._sweep)


def _play(world: World) -> None:
    account = Account(world)
    TimeToLive(world)
    Load(
        executions=1_000_000,
        names=100_000,
        exponent=0.9,
        seconds=_DAY * world.scale,
        work_seconds=0.4,
        forms={"queue": 8, "kept alive": 1, "poll": 1},
        failing=0.02,
        stopped=0.01,
        stopped_within=2.0,
        redriven=0.1,
        redriven_within=30.0,
        frees_all=False,
    ).happen(account)
    require_no_dead_letter(account)


DAY: Final = Scenario(
    number=1,
    title="a day of a large service",
    promise=(
        "the limit holds, the queue is fair, tokens only grow, and a workflow's lock ends with the "
        "workflow (docs/guarantees.md)"
    ),
    faults=Faults(
        network=Network(
            lost_requests=0.0002, lost_replies=0.0005, late_replies=0.0005, copies=2e-4
        ),
        functions=LambdaFaults(kills=0.0005),
        events=EventFaults(lost=0.01, late=0.02, late_seconds=600.0, twice=0.01, lost_pushes=0.001),
    ),
    play=_play,
    idle_bound=BOUND_SECONDS,
    scale=0.004,
    seeds=8,
    controls=(
        Control(
            name="a departing holder serves the newest waiter that it has read",
            breaks="first come, first served",
            patches=(NEWEST_FIRST,),
            scale=0.0012,
        ),
    ),
)


# Scenario 16: callers of all kinds at the same names.
#
# At some names all are Python programs: some take a lock and write under it, some take two names
# at once, some skip a lock that is taken, some release in the transaction that writes. At the
# others they meet guards, in the states that `fairlock asl` prints, programs that invoke the
# functions by JSON alone (docs/any-language.md), and operators, whose commands are calls of
# `LockClient`. Durable functions have tests of their own.

_TURNS: Final = 10
_ACTIONS: Final = 15
_MAX_WAIT_SECONDS: Final = 240.0
_SHARED: Final = "shared/"
_MIXED_SECONDS: Final = 900.0
_FORMS: Final = ("queue", "long queue", "kept alive", "poll", "skip")


def _send_others(world: World, fleet: Fleet) -> None:
    _send_clients(world, [*fleet.locks(world), "orders/of others"])
    account = Account(world)
    world.recovery.judges = lambda lock: not lock.startswith(_SHARED)
    names = [f"{_SHARED}{number}" for number in range(world.scaled(60))]
    _send_guards(account, names)
    for number in range(world.scaled(300)):
        process = world.process(f"direct {number}")
        caller = DirectCaller(account, process, queues=number % 3 > 0)
        world.begin(world.random.random() * 5, process, partial(_direct, caller, names))

    def take(actor: ClientActor, _number: int) -> None:
        work = world.random.expovariate(1 / 3)
        actor.take(world.random.choice(names), work, max_wait=_MAX_WAIT_SECONDS)

    workflows: dict[str, Any] = {"stepfunctions": account.workflows}
    count = world.scaled(200)
    send(world, "python", count, take, turns=_TURNS, think=40, lease=10, **workflows)
    count, every = min(len(names), world.scaled(30)), _MIXED_SECONDS / _ACTIONS
    send_operators(world, names, count, actions=_ACTIONS, every=every, **workflows)


def _send_guards(account: Account, names: list[str]) -> None:
    random, count = account.world.random, account.world.scaled(4_000)
    for form in _FORMS:
        moments = [random.random() * _MIXED_SECONDS for _ in range(round(count / len(_FORMS)))]
        inputs = [
            {"lock": random.choice(names), "work": random.expovariate(1 / 3)} for _ in moments
        ]
        start_all(account, moments, inputs.__getitem__, form=form)
    wait_until_idle(account, from_seconds=_MIXED_SECONDS)


def _direct(caller: DirectCaller, names: list[str]) -> None:
    random = caller.account.world.random
    for _ in range(_TURNS):
        caller.clock.wait(random.expovariate(1 / 40))
        caller.take(random.choice(names), random.expovariate(1 / 3), _MAX_WAIT_SECONDS)


def _send_clients(world: World, names: list[str]) -> None:
    random = world.random

    def transfer(actor: ClientActor, _number: int) -> None:
        """Takes two names at once, in whatever order it happens to name them."""
        actor.take_all(random.sample(names, 2), random.expovariate(1 / 3), _MAX_WAIT_SECONDS)

    def skip(actor: ClientActor, _number: int) -> None:
        """Takes a lock if no one has it, and releases it with its last write."""
        name, work = random.choice(names), random.expovariate(1 / 3)
        actor.take(name, work, max_wait=0, is_last_write=True)

    count = max(2, world.scaled(300))
    send(world, "transfer", count, transfer, turns=_TURNS, think=10, lease=10)
    count = max(2, world.scaled(200))
    send(world, "skipper", count, skip, turns=3 * _TURNS, think=5, lease=10)


MIXED: Final = Scenario(
    number=16,
    title="callers of all kinds at the same names",
    promise=(
        "no two callers with `hold_all` wait for each other in a circle; a wait of it ends after "
        "`max_wait`, and none is held (docs/turns.md); an invocation that comes after its owner "
        "has left is granted nothing (docs/any-language.md)"
    ),
    faults=Faults(
        network=Network(lost_replies=0.01, copies=0.01),
        machines=Machines(killed=2),
        functions=LambdaFaults(kills=0.002),
    ),
    play=Fleet(
        clients=500, of_a_lock=3, turns=10, lease=10, think=10, work=3, others=_send_others
    ).play,
    idle_bound=BOUND_SECONDS,
    controls=(
        Control(
            name="several locks are taken in the order in which they are named",
            breaks="no wait in a circle",
            patches=((LocksInOrder, "in_order", property(lambda plan: list(plan.names))),),
        ),
        Control(
            name="a call that is late goes again on the state it was shown",
            breaks="no grant to one that has left",
            scale=0.03,
        ),
    ),
)


# Scenario 20: all faults together, for a simulated month.

_DAYS: Final = 30
_MONTH_ACTIONS: Final = 60


def _send_others_in_a_month(world: World, fleet: Fleet) -> None:
    """An operator of each lock, and outages until all turns are over."""
    locks, every = fleet.locks(world), _DAYS * _DAY / _MONTH_ACTIONS
    send_operators(world, locks, len(locks), actions=_MONTH_ACTIONS, every=every, begin=60)
    _plan_outage(world)


def _plan_outage(world: World) -> None:
    seconds = world.random.expovariate(1 / (3 * _DAY))
    world.engine.after(seconds, _have_outage, world)


def _have_outage(world: World) -> None:
    world.goes_out(world.random.uniform(5, 420.0))
    _plan_outage(world)


MONTH: Final = Scenario(
    number=20,
    title="all faults together for a month",
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
        others=_send_others_in_a_month,
        at_most=_DAYS * _DAY * 2,
    ).play,
    seeds=3,
    scale_of_tests=0.0005,
    # Clients that hold nothing for an hour look once in a while whether they are closed.
    patches=((heartbeats, "LONGEST_NAP_SECONDS", 600.0),),
    controls=(
        Control(name="the limit is compared with <>", breaks="no more holders than the limit"),
    ),
)
