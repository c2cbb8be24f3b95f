"""Scenario 1: a day of a large service: a million guarded executions on 100,000 names.

A few names are wanted often and most hardly ever. Now and then something goes wrong: a function is
killed, an event is lost, a push does not arrive, a reply is late, an execution is stopped. A
smaller run is a part of the day, with as many fewer names.
"""

from __future__ import annotations

import heapq
from contextlib import AbstractContextManager
from typing import Any, Final

from fairlock.protocol import leaving
from fairlock.protocol.schema import TTL_ATTRIBUTE
from fairlock.store import hand_off
from fairlock.testing.fake_table import Key
from fairlock.testing.interpreter import Item
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults, Network
from tests.simulation.functions import LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.lost_events import BOUND_SECONDS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import Load, let_happen
from tests.simulation.world import World

_EXECUTIONS: Final = 1_000_000
_NAMES: Final = 100_000
_SECONDS: Final = 86_400.0
_SWEEP_SECONDS: Final = 300.0
_LATE_SECONDS: Final = 7_200.0


class TimeToLive:
    """DynamoDB's TTL: removes items some time after their `expiry_time`.

    Source: "Using time to live (TTL) in DynamoDB" of its developer guide: within a few days, mostly
    far sooner. Late ones make no difference here but to memory.

    Attributes:
        removed: how many items.
    """

    def __init__(self, world: World) -> None:
        self._world, self.removed = world, 0
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
                self.removed += 1
        self._world.engine.after(_SWEEP_SECONDS, self._sweep)


def _play(world: World) -> None:
    faults = AccountFaults(
        functions=LambdaFaults(kills=0.0005),
        events=EventFaults(lost=0.01, late=0.02, late_seconds=600.0, twice=0.01),
        lost_pushes=0.001,
    )
    account, ttl = Account(world, faults), TimeToLive(world)
    seconds = _SECONDS * world.scale
    load = Load(
        executions=world.scaled(_EXECUTIONS),
        names=world.scaled(_NAMES),
        exponent=0.9,
        seconds=seconds,
        work_seconds=0.4,
        forms={"queue": 8, "kept alive": 1, "poll": 1},
        failing=0.02,
        stopped=0.01,
        stopped_within=2.0,
        redriven=0.1,
        redriven_within=30.0,
    )
    let_happen(account, load)
    dead = account.queue.dead
    world.judge.require("no dead letter", not dead, f"{len(dead)} dead letters")
    world.figures.update(expired=ttl.removed)


def _newest_first() -> AbstractContextManager[object]:
    right = leaving.next_step

    def wrong(lock_name: str, state: Any, live: Any, departing: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
        return right(lock_name, state, live[::-1], departing, **fields)

    return patched((hand_off, "next_step", wrong))


DAY: Final = Scenario(
    number=1,
    title="a day of a large service",
    load="a million guarded executions on 100,000 names in a day, the n-th name by n^-0.9",
    promise=(
        "the limit holds, the queue is fair, tokens only grow, and a workflow's lock ends with the "
        "workflow (docs/guarantees.md)"
    ),
    faults=Faults(
        network=Network(lost_requests=0.0002, lost_replies=0.0005, late_replies=0.0005, copies=2e-4)
    ),
    play=_play,
    idle_bound=BOUND_SECONDS,
    scale=0.004,
    seeds=8,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a departing holder serves the newest waiter that it has read",
            breaks="first come, first served",
            sabotage=_newest_first,
            scale=0.0012,
        ),
    ),
)
