"""Scenario 3: one lock with 100 permits and work of a second: how many guards a second it carries.

One lock is one item, and each write pays for the records of all its holders; a partition gives
1,000 units a second. The documents state the rates that follow. They do not shrink with the scale:
a smaller run is a shorter one, and fewer come at once.
"""

from __future__ import annotations

from typing import Final

from fairlock.protocol.model import LockState
from tests.simulation.faults import Database, Faults
from tests.simulation.functions import lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.lost_events import BOUND_SECONDS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import (
    figures_of,
    require_all_free,
    start_all,
    wait_until_idle,
)
from tests.simulation.world import World

_EXECUTIONS: Final = 40_000
_RATE_WITHOUT_WAITERS: Final = 35.0
_RATE_OF_A_BURST: Final = 6.0
_MOST_AT_ONCE: Final = 400
"""More than these ask for so many units at once that some guards give up (docs/costs.md)."""
_SHARE_AT_ONCE: Final = 0.5
_PAUSE_SECONDS: Final = 60.0
_WORK_SECONDS: Final = 1.0
_UNNOTICED_SECONDS: Final = 1.0
_PROMISE: Final = "the rate of one lock"


def _play(world: World) -> None:
    account, count = Account(world, AccountFaults()), world.scaled(_EXECUTIONS)
    at_once = min(_MOST_AT_ONCE, round(count * _SHARE_AT_ONCE))
    steady = [number / _RATE_WITHOUT_WAITERS for number in range(count - at_once)]
    begins = steady[-1] + _PAUSE_SECONDS
    moments = [*steady, *(begins + world.random.random() for _ in range(at_once))]
    given = {"lock": "export", "work": _WORK_SECONDS}
    ends: list[float] = []
    judge = world.judge
    start_all(account, moments, lambda _number: dict(given), form="permits", ended=ends)
    wait_until_idle(account, from_seconds=begins)
    world.run(at_most=begins + 7_200)
    slow = sum(wait > _UNNOTICED_SECONDS for wait in judge.waits[: len(steady)])
    what = f"{slow} of {len(steady)} guards have waited that came at {_RATE_WITHOUT_WAITERS}/s"
    judge.require(_PROMISE, slow <= len(steady) / 20, what)
    rate = at_once / (max(ends) - begins)
    what = f"{at_once} guards at once: {rate:.1f} a second"
    judge.require(_PROMISE, rate >= _RATE_OF_A_BURST, what)
    judge.require(_PROMISE, judge.outcomes["succeeded"] == count, f"{judge.outcomes}")
    require_all_free(account)
    world.figures.update(figures_of(account), guards_a_second_of_the_burst=round(rate, 1))


PERMITS: Final = Scenario(
    number=3,
    title="100 permits, work of a second",
    load="40,000 guards at 35 a second, the last 400 of them at once, on a lock with 100 permits",
    promise=(
        "a lock with 100 permits carries 35 guards a second as long as no one waits, and a burst "
        "of 400 at 6 a second (docs/costs.md, Permits against rate)"
    ),
    faults=Faults(database=Database(partitions=1)),
    play=_play,
    idle_bound=BOUND_SECONDS,
    scale=0.02,
    scale_of_tests=0.01,
    seeds=4,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="the limit counts for no one",
            breaks="no more holders than the limit",
            sabotage=lambda: patched((LockState, "has_room", lambda _state, _limit: True)),
            scale=0.006,
        ),
    ),
)
