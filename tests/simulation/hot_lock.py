"""Scenarios of one hot lock: 2, in which 10,000 comers ask within a minute."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from fairlock.protocol import leaving
from fairlock.store import hand_off, queue
from tests.simulation.clients import ClientActor
from tests.simulation.faults import Database, Faults
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.world import World

_COMERS = 10_000
_WITHIN_SECONDS = 60
_MAX_WAIT_SECONDS = 600
_WORK_SECONDS = 0.1


def _hot(world: World) -> None:
    for number in range(world.scaled(_COMERS)):
        actor = ClientActor.of(world, f"comer {number}")
        at = world.random.random() * _WITHIN_SECONDS
        # A smaller world is as crowded: fewer come, and each works for longer.
        work = world.random.uniform(0.5, 1.5) * _WORK_SECONDS / world.scale
        world.begin(
            at,
            actor.process,
            partial(actor.take, "hot", work, max_wait=_MAX_WAIT_SECONDS),
        )
    last_work = 2 * _WORK_SECONDS / world.scale
    world.run(at_most=_WITHIN_SECONDS + _MAX_WAIT_SECONDS + 60 + last_work)


def _smaller_queue(scale: float) -> AbstractContextManager[object]:
    """The bound of a queue shrinks with the number of comers, so that nine in ten find it full."""
    return patched((queue, "MOST_WAITERS", max(1, round(1_000 * scale))))


def _newest_first() -> AbstractContextManager[object]:
    right = leaving.next_step

    def wrong(lock_name: str, state: Any, live: Any, departing: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
        return right(lock_name, state, live[::-1], departing, **fields)

    return patched((hand_off, "next_step", wrong))


HOT_LOCK: Final = Scenario(
    number=2,
    title="one hot lock: 10,000 arrive in a minute",
    load=f"10,000 clients ask for one lock within a minute, work {_WORK_SECONDS} s, wait 10 min",
    promise=(
        "waiters are served in the order of entry, 1,000 of them at most; further ones get "
        "QUEUE_FULL and may ask again (docs/costs.md)"
    ),
    faults=Faults(database=Database(partitions=1)),
    play=_hot,
    scale=0.004,
    scale_of_tests=0.001,
    conditions=_smaller_queue,
    controls=(
        Control(
            name="a departing holder serves the newest waiter that it has read",
            breaks="first come, first served",
            sabotage=_newest_first,
        ),
    ),
)
