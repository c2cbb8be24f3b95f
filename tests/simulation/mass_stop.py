"""Scenario 4: 100,000 executions that hold a lock each time out within one minute.

A smaller world has smaller quotas in the same share, so it takes as long: fewer functions of the
reaper, fewer units a second, smaller buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from fairlock.store import reap
from fairlock.testing.fake_table import Key
from fairlock.testing.interpreter import Item
from tests.simulation.engine import START
from tests.simulation.faults import Faults
from tests.simulation.functions import LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.machines import LEASE_SECONDS, recorded
from tests.simulation.quotas import QUOTAS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.states import Execution
from tests.simulation.workload import figures_of, wait_until_idle
from tests.simulation.world import World

_EXECUTIONS: Final = 100_000
_WITHIN_SECONDS: Final = 60.0
_WAITED_FOR: Final = 0.1
_BOUND_SECONDS: Final = LEASE_SECONDS + 300.0
_PROMISE: Final = "free within lease + 5 minutes"


def scaled_account(world: World, **faults: Any) -> Account:  # noqa: ANN401 - of AccountFaults
    """An account whose quotas are as small as the world."""
    scale = world.scale
    world.database.scale(scale)
    standard = LambdaFaults()
    return Account(
        world,
        AccountFaults(
            functions=LambdaFaults(
                account=max(10, round(standard.account * scale)),
                growth=max(10, round(standard.growth * scale)),
            ),
            concurrency=max(1, round(recorded()["reaper"]["concurrency"] * scale)),
            quotas={name: quota.scaled(scale) for name, quota in QUOTAS.items()},
            **faults,
        ),
    )


@dataclass
class Drain:
    """Which locks of ended executions are not free yet.

    Attributes:
        world: where they are.
        ended_at: when the holder of a lock ended.
        freed_after: seconds from the end of the holder until its lock was free.
        freed_at: when that was, in the run's time.
    """

    world: World
    tokens: dict[str, int] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    freed_after: list[float] = field(default_factory=list)
    freed_at: list[float] = field(default_factory=list)

    def ended(self, lock: str, execution: Execution, _status: str) -> None:
        """The holder of a lock has ended."""
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
        self.freed_after.append(seconds)
        self.freed_at.append(self.world.seconds)
        what = f"{lock}: taken for {seconds:.0f} s after its execution had ended"
        self.world.judge.require(_PROMISE, seconds <= _BOUND_SECONDS, what)


def _play(world: World) -> None:
    account, drain = scaled_account(world), Drain(world)
    world.database.table.sees.append(drain.saw)
    random, count = world.random, world.scaled(_EXECUTIONS)
    begins = _EXECUTIONS / QUOTAS["StartExecution"].refill + 60
    stops = begins + 60
    for number in range(count):
        lock = f"job/{number}"
        execution = account.start(
            f"job-{number}",
            {"lock": lock, "work": 7_200.0},
            form="long queue",
            ended=partial(drain.ended, lock),
        )
        at = stops + random.random() * _WITHIN_SECONDS
        world.engine.at(START + at, execution.end, "TIMED_OUT")
        if random.random() < _WAITED_FOR:
            asks = begins + random.random() * (stops - begins)
            given = {"lock": lock, "work": 1.0}
            # Counted now: the run is over when all have ended.
            world.actors += 1
            world.engine.at(START + asks, _follow, account, f"next-{number}", given)
    wait_until_idle(account, from_seconds=stops + _WITHIN_SECONDS + 10)
    world.run(at_most=stops + 20_000)
    queue, judge = account.queue, world.judge
    judge.require("no dead letter", not queue.dead, f"{len(queue.dead)} dead letters")
    judge.require(_PROMISE, len(drain.freed_after) == count, f"{len(drain.freed_after)} of {count}")
    world.figures.update(
        slowest_seconds=max(drain.freed_after, default=0.0),
        drained_after_seconds=max(drain.freed_at, default=0.0) - stops,
        all_done_after_seconds=world.seconds - stops,
        drain=[at - stops for at in drain.freed_at],
        **figures_of(account),
    )


def _follow(account: Account, name: str, given: dict[str, Any]) -> None:
    account.start(name, given, form="long queue")
    account.world.actors -= 1


MASS_STOP: Final = Scenario(
    number=4,
    title="100,000 executions end within a minute",
    load="100,000 guarded executions, a lock each; others wait for a tenth of the locks",
    promise=(
        "the locks of 100,000 executions that time out within a minute are free within lease + 5 "
        "minutes, at default quotas, without a dead letter (docs/costs.md, Many ends at once)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=_BOUND_SECONDS,
    # Smaller partitions would be emptied by a single transaction.
    scale=0.02,
    seeds=4,
    scale_of_tests=0.005,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="the reaper asks Step Functions about each execution",
            breaks=_PROMISE,
            sabotage=lambda: patched((reap, "_is_over", lambda *_: False)),
            scale=0.005,
        ),
    ),
)
