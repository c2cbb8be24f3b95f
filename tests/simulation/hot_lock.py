"""Scenarios of one lock or one moment: 2, 3 and 4."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from fairlock.protocol import leaving
from fairlock.protocol.model import LockState
from fairlock.store import hand_off, queue, reap
from fairlock.testing.fake_table import Key
from fairlock.testing.interpreter import Item
from tests.simulation.clients import ClientActor
from tests.simulation.engine import QUOTAS, START
from tests.simulation.faults import Database, Faults
from tests.simulation.guard import Account
from tests.simulation.scenario import Control, Scenario
from tests.simulation.states import Execution
from tests.simulation.versions import LEASE_SECONDS
from tests.simulation.workflows import BOUND_SECONDS
from tests.simulation.workload import (
    require_all_free,
    require_no_dead_letter,
    run_until_idle,
    start_all,
)
from tests.simulation.world import World
from tests.support.weakened import Patch, patched

# Scenarios of one hot lock: 2, in which 10,000 comers ask within a minute.

_WITHIN_SECONDS = 60
_MAX_WAIT_SECONDS = 600
_WORK_SECONDS = 0.1


def _hot(world: World) -> None:
    for number in range(world.scaled(10_000)):
        actor = ClientActor(world, f"comer {number}")
        at = world.random.random() * _WITHIN_SECONDS
        # A smaller world is as crowded: fewer come, and each works for longer.
        work = world.random.uniform(0.5, 1.5) * _WORK_SECONDS / world.scale
        take = partial(actor.take, "hot", work, max_wait=_MAX_WAIT_SECONDS)
        world.begin(at, actor.process, take)
    last_work = 2 * _WORK_SECONDS / world.scale
    # The bound of a queue shrinks with the number of comers, so that nine in ten find it full.
    with patched([(queue, "MOST_WAITERS", max(1, round(1_000 * world.scale)))]):
        world.run(at_most=_WITHIN_SECONDS + _MAX_WAIT_SECONDS + 60 + last_work)


def _serves_newest(lock: str, state: Any, live: Any, *more: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
    return leaving.next_step(lock, state, live[::-1], *more, **fields)


NEWEST_FIRST: Final[Patch] = (hand_off, "next_step", _serves_newest)

HOT_LOCK: Final = Scenario(
    number=2,
    title="one hot lock: 10,000 arrive in a minute",
    promise=(
        "waiters are served in the order of entry, 1,000 of them at most; further ones get "
        "QUEUE_FULL and may ask again (docs/costs.md)"
    ),
    faults=Faults(database=Database(partitions=1)),
    play=_hot,
    scale=0.004,
    scale_of_tests=0.001,
    controls=(
        Control(
            name="a departing holder serves the newest waiter that it has read",
            breaks="first come, first served",
            patches=(NEWEST_FIRST,),
        ),
    ),
)


# Scenario 3: one lock with 100 permits and work of a second: how many guards a second it carries.
#
# One lock is one item, and each write pays for the records of all its holders; a partition gives
# 1,000 units a second. The documents state the rates that follow. They do not shrink with the
# scale: a smaller run is a shorter one, and fewer come at once.

_RATE_WITHOUT_WAITERS: Final = 35.0
_PROMISE: Final = "the rate of one lock"


def _play(world: World) -> None:
    account, count = Account(world), world.scaled(40_000)
    # More of them ask for so many units at once that some guards give up (docs/costs.md).
    at_once = min(400, round(count / 2))
    steady = [number / _RATE_WITHOUT_WAITERS for number in range(count - at_once)]
    begins = steady[-1] + 60.0
    moments = [*steady, *(begins + world.random.random() for _ in range(at_once))]
    given = {"lock": "export", "work": 1.0}
    ends: list[float] = []
    judge = world.judge
    start_all(account, moments, lambda _number: dict(given), form="permits", ended=ends)
    run_until_idle(account, from_seconds=begins)
    slow = sum(wait > 1.0 for wait in judge.waits[: len(steady)])
    what = f"{slow} of {len(steady)} guards have waited that came at {_RATE_WITHOUT_WAITERS}/s"
    judge.require(_PROMISE, slow <= len(steady) / 20, what)
    rate = at_once / (max(ends) - begins)
    what = f"{at_once} guards at once: {rate:.1f} a second"
    judge.require(_PROMISE, rate >= 6.0, what)
    judge.require(_PROMISE, judge.outcomes["succeeded"] == count, f"{judge.outcomes}")
    require_all_free(account)
    world.figures.update(guards_a_second_of_the_burst=round(rate, 1))


PERMITS: Final = Scenario(
    number=3,
    title="100 permits, work of a second",
    promise=(
        "a lock with 100 permits carries 35 guards a second as long as no one waits, and a burst "
        "of 400 at 6 a second (docs/costs.md, Permits against rate)"
    ),
    faults=Faults(database=Database(partitions=1)),
    play=_play,
    idle_bound=BOUND_SECONDS,
    scale_of_tests=0.01,
    seeds=4,
    controls=(
        Control(
            name="the limit counts for no one",
            breaks="no more holders than the limit",
            patches=((LockState, "has_room", lambda _state, _limit: True),),
            scale=0.006,
        ),
    ),
)


# Scenario 4: 100,000 executions that hold a lock each time out within one minute.
#
# A smaller world has smaller quotas in the same share, so it takes as long: fewer functions of the
# reaper, fewer units a second, smaller buckets.

_MASS_STOP_EXECUTIONS: Final = 100_000
_MASS_STOP_WITHIN_SECONDS: Final = 60.0
_BOUND_SECONDS: Final = LEASE_SECONDS + 300.0
_MASS_STOP_PROMISE: Final = "free within lease + 5 minutes"


@dataclass
class Drain:
    """Which locks of ended executions are not free yet.

    Attributes:
        ended_at: when the holder of a lock ended.
        freed_at: when a lock was freed, in the run's time.
    """

    world: World
    tokens: dict[str, int] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    freed_at: list[float] = field(default_factory=list)

    def ended(self, lock: str, execution: Execution, _status: str) -> None:
        assert execution.stopped_at is not None
        self.ended_at[lock] = execution.stopped_at
        if self.world.judge.holders_of(lock):
            self.world.actors += 1
            self.tokens[lock] = max(self.world.judge.holders_of(lock))

    def saw(self, key: Key, _old: Item, _new: Item) -> None:
        """Looks whether a lock has become free."""
        lock = key[0].removeprefix("LOCK#")
        token = self.tokens.get(lock)
        if token is None or token in self.world.judge.holders_of(lock):
            return
        del self.tokens[lock]
        self.world.actors -= 1
        seconds = self.world.engine.now - self.ended_at[lock]
        self.freed_at.append(self.world.seconds)
        what = f"{lock}: taken for {seconds:.0f} s after its execution had ended"
        self.world.judge.require(_MASS_STOP_PROMISE, seconds <= _BOUND_SECONDS, what)


def _play_mass_stop(world: World) -> None:
    account, drain = Account(world, scale=world.scale), Drain(world)
    world.database.table.sees.append(drain.saw)
    random, count = world.random, world.scaled(_MASS_STOP_EXECUTIONS)
    begins = _MASS_STOP_EXECUTIONS / QUOTAS["StartExecution"].refill + 60
    stops = begins + 60
    for number in range(count):
        lock = f"job/{number}"
        execution = account.start(
            f"job-{number}",
            {"lock": lock, "work": 7_200.0},
            form="long queue",
            ended=partial(drain.ended, lock),
        )
        at = stops + random.random() * _MASS_STOP_WITHIN_SECONDS
        world.engine.at(START + at, execution.end, "TIMED_OUT")
        if random.random() < 0.1:
            asks = begins + random.random() * (stops - begins)
            given = {"lock": lock, "work": 1.0}
            # Counted now: the run is over when all have ended.
            world.actors += 1
            world.engine.at(START + asks, _follow, account, f"next-{number}", given)
    ends = stops + _MASS_STOP_WITHIN_SECONDS + 10
    run_until_idle(account, from_seconds=ends, at_most=20_000)
    require_no_dead_letter(account)
    freed = len(drain.freed_at)
    world.judge.require(_MASS_STOP_PROMISE, freed == count, f"{freed} of {count}")
    world.figures.update(drain=[at - stops for at in drain.freed_at])


def _follow(account: Account, name: str, given: dict[str, Any]) -> None:
    account.start(name, given, form="long queue")
    account.world.actors -= 1


MASS_STOP: Final = Scenario(
    number=4,
    title="100,000 executions end within a minute",
    promise=(
        "the locks of 100,000 executions that time out within a minute are free within lease + 5 "
        "minutes, at default quotas, without a dead letter (docs/costs.md, Many ends at once)"
    ),
    faults=Faults(),
    play=_play_mass_stop,
    idle_bound=_BOUND_SECONDS,
    # Smaller partitions would be emptied by a single transaction.
    scale=0.02,
    seeds=4,
    scale_of_tests=0.005,
    controls=(
        Control(
            name="the reaper asks Step Functions about each execution",
            breaks=_MASS_STOP_PROMISE,
            patches=((reap, "_is_over", lambda *_: False),),
            scale=0.005,
        ),
    ),
)
