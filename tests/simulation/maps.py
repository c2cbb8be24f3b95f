"""Scenario 17: Maps with 40 guarded iterations; one that fails stops the others.

Step Functions stops the other iterations without any Catch of theirs. The failure is caught around
the Map, so the execution goes on: what its iterations have left behind is freed when it ends. The
execution ends with an error, so that there is an event.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from fairlock.protocol.outcomes import Reaped
from fairlock.store import reap
from tests.simulation.faults import Faults
from tests.simulation.functions import Json, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.machines import machine
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import (
    figures_of,
    require_all_free,
    wait_until_idle,
)
from tests.simulation.world import World

_EXECUTIONS: Final = 1_000
_ITERATIONS: Final = 40
_NAMES: Final = 4_000
_SECONDS: Final = 1_200.0
_GOES_ON_SECONDS: Final = 20
_EVENT_SECONDS: Final = 25.0
"""For the event, the reaper's pass over 40 claims, and iterations that have ended just before."""


def map_of_guards() -> Json:
    """A machine whose Map has a guard in each iteration."""
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
    account, random, definition = Account(world, AccountFaults()), world.random, map_of_guards()
    names = world.scaled(_NAMES)
    count = world.scaled(_EXECUTIONS)
    world.actors += count

    def start(number: int) -> None:
        items = [
            {
                "lock": f"row/{random.randrange(names)}",
                "work": random.expovariate(1 / 3.0),
                "fails": random.random() < 0.02,
            }
            for _ in range(_ITERATIONS)
        ]
        account.start(f"map-{number}", {"items": items}, form="map", definition=definition)
        world.actors -= 1

    for number in range(count):
        world.engine.after(random.random() * _SECONDS, start, number)
    wait_until_idle(account, from_seconds=_SECONDS)
    world.run(at_most=_SECONDS + 7_200)
    require_all_free(account)
    world.figures.update(figures_of(account))


def _no_reaper() -> AbstractContextManager[object]:
    def wrong(*_args: Any) -> Reaped:  # noqa: ANN401 - as the real one
        return Reaped()

    return patched((reap, "_reap", wrong))


MAPS: Final = Scenario(
    number=17,
    title="Maps with 40 guarded iterations whose siblings fail",
    load="1,000 executions with 40 guards each on 4,000 names; 2 % of the iterations fail",
    promise=(
        "a guard in a stopped branch holds its lock until the execution ends; then the reaper "
        "removes its waiters and frees its locks (docs/guard.md, Stopped branches)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=_GOES_ON_SECONDS + _EVENT_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="the reaper frees nothing",
            breaks="all is free at the end",
            sabotage=_no_reaper,
        ),
    ),
)
