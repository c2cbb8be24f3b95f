"""Scenario 16: callers of all kinds at the same names.

At some names all are Python programs: some take a lock and write under it, some take two names at
once, some skip a lock that is taken, some release in the transaction that writes. At the others
they meet guards, in the states that `fairlock asl` prints, programs that invoke the functions by
JSON alone (docs/any-language.md), and operators, whose commands are calls of `LockClient`. Durable
functions have tests of their own.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from fairlock.client.several_locks import LocksInOrder
from tests.model.contention.mutants import MUTANTS
from tests.simulation.clients import ClientActor
from tests.simulation.direct import DirectCaller
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet
from tests.simulation.functions import LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.lost_events import BOUND_SECONDS
from tests.simulation.operators import operate
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import start_all, wait_until_idle
from tests.simulation.world import World

_TRANSFERS: Final = 300
_SKIPPERS: Final = 200
_TURNS: Final = 10
_ACTIONS: Final = 15
_MAX_WAIT_SECONDS: Final = 240.0
_SHARED: Final = "shared/"
_SHARED_NAMES: Final = 60
_GUARDS: Final = 4_000
_DIRECT: Final = 300
_PYTHON: Final = 200
_OPERATORS: Final = 30
_SECONDS: Final = 900.0
_FORMS: Final = ("queue", "long queue", "kept alive", "poll", "skip")


def _send_others(world: World, fleet: Fleet) -> None:
    _send_clients(world, fleet)
    account = Account(world, AccountFaults(functions=LambdaFaults(kills=0.002)))
    world.recovery.judges = lambda lock: not lock.startswith(_SHARED)
    names = [f"{_SHARED}{number}" for number in range(world.scaled(_SHARED_NAMES))]
    _send_guards(account, names)
    for number in range(world.scaled(_DIRECT)):
        process = world.process(f"direct {number}")
        caller = DirectCaller(account, process, world.clock(process), queues=number % 3 > 0)
        world.begin(world.random.random() * 5, process, partial(_direct, caller, names))
    for number in range(world.scaled(_PYTHON)):
        name = f"python {number}"
        actor = ClientActor.of(world, name, lease=10, stepfunctions=account.workflows)
        world.begin(world.random.random() * 5, actor.process, partial(_python, actor, names))
    count = min(len(names), world.scaled(_OPERATORS))
    for number in range(count):
        actor = ClientActor.of(world, f"operator {number}", stepfunctions=account.workflows)
        mine, every = names[number::count], _SECONDS / _ACTIONS
        world.begin(5, actor.process, partial(operate, actor, mine, _ACTIONS, every))


def _send_guards(account: Account, names: list[str]) -> None:
    random, count = account.world.random, account.world.scaled(_GUARDS)
    for form in _FORMS:
        moments = [random.random() * _SECONDS for _ in range(round(count / len(_FORMS)))]
        inputs = [
            {"lock": random.choice(names), "work": random.expovariate(1 / 3)} for _ in moments
        ]
        start_all(account, moments, inputs.__getitem__, form=form)
    wait_until_idle(account, from_seconds=_SECONDS)


def _direct(caller: DirectCaller, names: list[str]) -> None:
    random = caller.account.world.random
    for _ in range(_TURNS):
        caller.clock.wait(random.expovariate(1 / 40))
        caller.take(random.choice(names), random.expovariate(1 / 3), _MAX_WAIT_SECONDS)


def _python(actor: ClientActor, names: list[str]) -> None:
    random = actor.world.random
    for _ in range(_TURNS):
        actor.clock.wait(random.expovariate(1 / 40))
        work = random.expovariate(1 / 3)
        actor.take(random.choice(names), work, max_wait=_MAX_WAIT_SECONDS)
    actor.locks.close()


def _send_clients(world: World, fleet: Fleet) -> None:
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
    load="500 clients at 100 locks, 300 that take two of them at once, 200 that skip taken ones; "
    "at 60 other locks 4,000 guards, 300 JSON callers, 200 clients, 30 operators",
    promise=(
        "no two callers with `hold_all` wait for each other in a circle; a wait of it ends after "
        "`max_wait`, and none is held (docs/turns.md); an invocation that comes after its owner "
        "has left is granted nothing (docs/any-language.md)"
    ),
    faults=Faults(network=Network(lost_replies=0.01, copies=0.01), machines=Machines(killed=2)),
    play=Fleet(
        clients=500, of_a_lock=3, turns=10, lease=10, think=10, work=3, others=_send_others
    ).play,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="several locks are taken in the order in which they are named",
            breaks="no wait in a circle",
            sabotage=lambda: patched((LocksInOrder, "in_order", property(_as_named))),
        ),
        Control(
            name="a call that is late goes again on the state it was shown",
            breaks="no grant to one that has left",
            sabotage=MUTANTS["a call that is late goes again on the state it was shown"].applied,
            scale=0.03,
        ),
    ),
)
