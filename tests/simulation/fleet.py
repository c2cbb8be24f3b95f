"""A fleet of client processes that take turns at locks, and what is around it: 6, 7, 9, 12 and 13.

Most scenarios of clients are this load under different weather. A process that dies is replaced by
a fresh one, which goes on with the turns that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fairlock.aws.retry import RetryBudget
from fairlock.client import acquisition, local_waiters
from fairlock.clock import AwsClock
from fairlock.guarded import conditions, guarded_writes
from fairlock.protocol import outcomes
from fairlock.store import keep_alive
from fairlock.store.context import LockContext
from tests.simulation.clients import ClientActor
from tests.simulation.engine import Process
from tests.simulation.faults import ClockErrors, Database, Faults, Machines, Network, NodeClock
from tests.simulation.scenario import HOUR, Control, Scenario
from tests.simulation.world import World
from tests.support.clocks import DriftingClock
from tests.support.weakened import weak


def one_or_three(_world: World, lock: int) -> dict[str, Any]:
    """A third of the locks lets three in."""
    return {"limit": 3} if lock % 3 == 0 else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The load; spans in seconds.

    Attributes:
        clients: how many processes, at scale 1.
        of_a_lock: how many of them take turns at one lock.
        turns: of each process, and of those that replace it, at scale 1.
        think: between two turns, the mean.
        work: under a lock, the mean.
        options: of `acquire`, by the number of the lock.
        writes: the share of turns in which a guarded write is made.
        at_most: for the whole run; None for as long as the turns may take.
        others: further actors, who begin beside the clients.
    """

    clients: int
    of_a_lock: int
    turns: int
    lease: float = 30.0
    think: float = 5.0
    work: float = 6.0
    max_wait: float = 240.0
    options: Callable[[World, int], dict[str, Any]] = lambda _world, _lock: {}
    writes: float = 0.5
    starts_within: float = 5.0
    at_most: float | None = None
    others: Callable[[World, Fleet], object] = lambda _world, _fleet: None

    def play(self, world: World) -> None:
        """Sends the fleet out, and lets the world run until all have had their turns."""
        for number in range(self.count(world)):
            turns = _Turns(world, self, number)
            world.begin(world.random.random() * self.starts_within, *turns.process())
        self.others(world, self)
        longest = self.turns * (self.max_wait + 10 * (self.think + self.work) + 60)
        world.run(at_most=self.at_most or longest)

    def count(self, world: World) -> int:
        """How many processes there are at this scale; as many as share a lock at least."""
        return max(self.of_a_lock, world.scaled(self.clients))

    def turns_of_each(self, world: World) -> int:
        """How many turns each has: fewer, if the scale asks for less than one lock."""
        return max(1, round(self.turns * min(1.0, self.clients * world.scale / self.of_a_lock)))

    def locks(self, world: World) -> list[str]:
        """All names."""
        return [f"orders/{number}" for number in range(-(-self.count(world) // self.of_a_lock))]


@dataclass
class _Turns:
    """The turns of one client, in one process after the other."""

    world: World
    fleet: Fleet
    number: int
    left: int = 0
    incarnation: int = 0

    def __post_init__(self) -> None:
        self.left = self.fleet.turns_of_each(self.world)

    def process(self) -> tuple[Process, Callable[[], None]]:
        """The next process, and what it does."""
        world, fleet = self.world, self.fleet
        name = f"client {self.number}" + "'" * min(self.incarnation, 3)
        if self.incarnation > 3:
            name = f"client {self.number} (the {self.incarnation}th)"
        self.incarnation += 1
        actor = ClientActor(world, name, lease=fleet.lease)
        machines, random = world.faults.machines, world.random
        if machines.killed:
            # The turns count as one actor of the world until the last of them: see `_die`.
            seconds = random.expovariate(machines.killed / HOUR)
            world.engine.after(seconds, self._die, actor)
        if machines.suspended:
            self._plan_suspension(actor)
        return actor.process, partial(self._take_turns, actor)

    def _take_turns(self, actor: ClientActor) -> None:
        fleet, random = self.fleet, self.world.random
        lock = self.number // fleet.of_a_lock
        while self.left:
            self.left -= 1
            actor.clock.wait(random.expovariate(1 / fleet.think))
            options = fleet.options(self.world, lock)
            # A reader is refused guarded writes.
            writes = random.random() < fleet.writes and "shared" not in options
            actor.take(
                f"orders/{lock}",
                random.expovariate(1 / fleet.work),
                max_wait=fleet.max_wait,
                writes=writes,
                **options,
            )
        actor.locks.close()

    def _die(self, actor: ClientActor) -> None:
        if not actor.process.tasks:
            return
        self.world.kill(actor.process)
        if self.left:
            process, run = self.process()
            after = self.world.seconds + 5
            self.world.begin(after, process, run)

    def _plan_suspension(self, actor: ClientActor) -> None:
        machines, random = self.world.faults.machines, self.world.random
        seconds = random.expovariate(machines.suspended / HOUR)
        self.world.engine.after(seconds, self._suspend, actor)

    def _suspend(self, actor: ClientActor) -> None:
        if actor.process.is_alive and self.left:
            most = self.world.faults.machines.suspended_seconds
            self.world.suspend(actor.process, self.world.random.uniform(0.1, 1) * most)
            self._plan_suspension(actor)


# Scenarios of DynamoDB itself: 6, in which it is down for five minutes; 7, one slow partition.


OUTAGE: Final = Scenario(
    number=6,
    title="DynamoDB answers nothing for 5 minutes under load, and then all ask at once",
    promise=(
        "an error grants nothing; each client asks again within 12 s of the outage's end "
        "(docs/guarantees.md)"
    ),
    faults=Faults(database=Database(outages=((60, 360), (600, 640)))),
    play=Fleet(clients=2_000, of_a_lock=10, turns=8, options=one_or_three, max_wait=900).play,
    controls=(
        Control(
            name="a client pauses for longer and longer while it gets no answer",
            breaks="no lock taken by no one",
            patches=((acquisition, "retry_seconds", lambda attempt, **_: 0.1 * 2.0**attempt),),
        ),
    ),
)
THROTTLED: Final = Scenario(
    number=7,
    title="one partition is throttled",
    promise=(
        "different locks do not affect each other (docs/costs.md); a throttle is no answer, and "
        "costs time only (docs/guarantees.md)"
    ),
    faults=Faults(database=Database(slow_units=300)),
    play=Fleet(
        clients=1_500, of_a_lock=5, turns=15, lease=30, think=2, work=3, options=one_or_three
    ).play,
    controls=(
        Control(
            name="a request that was throttled is repeated after a minute",
            breaks="no lock taken by no one",
            patches=((RetryBudget, "pause", lambda budget, _attempt: budget.clock.wait(60)),),
        ),
    ),
)


# Scenario 9: replies that are lost or late, requests that never arrive, and copies that land late.
#
# Its holders hold for about a lease, and renew meanwhile. Some are killed, so that takeovers happen
# beside writes that come late.

_NOT_LATER: Final = "#mine.#h_expires_at_ms <= :expires_at_ms"


def _is_over_early(expires_at_ms: int, *, date_ms: int) -> bool:
    return date_ms >= expires_at_ms - 8_000


UNRELIABLE_NETWORK: Final = Scenario(
    number=9,
    title="5 % of replies lost, 1 % late by up to 10 s, 1 % of requests land once more",
    promise=(
        "as long as `check` does not raise, no other owner has been granted this permit (fairlock/"
        "client/lock.py); a holder that crashed is replaced its lease + 5 s after its last renewal"
    ),
    faults=Faults(
        network=Network(lost_requests=0.01, lost_replies=0.05, late_replies=0.01, copies=0.01),
        machines=Machines(killed=1),
    ),
    play=Fleet(clients=1_500, of_a_lock=5, turns=8, lease=10).play,
    controls=(
        Control(
            name="the lease of another counts as over too early",
            breaks="no more holders than the limit",
            patches=(
                (outcomes, "is_over", _is_over_early),
                (local_waiters, "is_over", _is_over_early),
            ),
        ),
        Control(
            name="a late heartbeat may move the end back",
            breaks="no more holders than the limit",
            patches=(weak(keep_alive, "renew", _NOT_LATER, instead="attribute_exists(#mine)"),),
            faults=Faults(network=Network(copies=0.3)),
            seed=4,
        ),
    ),
)


# Scenarios of time: 12, clients are suspended; 13, clocks are wrong, and copies land late.

_CHECK: Final = conditions.grant_check


def _of_a_process_that_runs(clock: NodeClock) -> float:
    """As CLOCK_MONOTONIC: it does not count the time for which the machine was suspended."""
    return DriftingClock.monotonic(clock) - clock.process.suspended_seconds * clock.drift


def _true_time(clock: NodeClock, monotonic: float) -> float:
    return DriftingClock.true_time(clock, monotonic) + clock.process.suspended_seconds


def _check_of_anything(*fields: Any) -> Any:  # noqa: ANN401 - as the real one
    check = _CHECK(*fields)["ConditionCheck"]
    of_the_lock = {name: check[name] for name in ("TableName", "Key")}
    return {"ConditionCheck": {**of_the_lock, "ConditionExpression": "attribute_exists(pk)"}}


def _by_my_clock(found: LockContext, _answer: object) -> int:
    return _wall_ms(found.aws_clock)


def _wall_ms(clock: AwsClock) -> int:
    return clock._clock.wall_ms()  # noqa: SLF001 - a weaker product


SUSPENSIONS: Final = Scenario(
    number=12,
    title="clients are suspended for up to three leases",
    promise=(
        "a process that was frozen notices its loss the first time it uses the lock; its guarded "
        "writes are refused (docs/client.md, docs/guarded-writes.md)"
    ),
    faults=Faults(
        machines=Machines(suspended=30, suspended_seconds=30, killed=1),
        network=Network(late_requests=0.01, copies=0.05, late_seconds=30),
    ),
    play=Fleet(clients=1_500, of_a_lock=5, turns=10, lease=10, work=8, options=one_or_three).play,
    controls=(
        Control(
            name="the clock of a lease stands still while the machine is suspended",
            breaks="no more holders than the limit",
            patches=(
                (NodeClock, "monotonic", _of_a_process_that_runs),
                (NodeClock, "true_time", _true_time),
            ),
        ),
        Control(
            name="a guarded write does not ask for the grant",
            breaks="guarded writes",
            patches=((guarded_writes, "grant_check", _check_of_anything),),
            seed=3,
            faults=Faults(
                machines=Machines(suspended=30, suspended_seconds=30),
                network=Network(late_requests=0.15, late_seconds=30),
            ),
        ),
    ),
)
CLOCKS: Final = Scenario(
    number=13,
    title="clocks are wrong by minutes, drift, are set; front ends differ; writes land twice",
    promise=(
        "clocks may be wrong by 5 minutes (docs/costs.md); a copy that lands after everything "
        "else is refused (docs/protocol.md)"
    ),
    faults=Faults(
        clocks=ClockErrors(wall_seconds=280, drift=0.019, set_every=120),
        network=Network(front_ends=0.5, copies=0.5, late_seconds=60),
        machines=Machines(killed=3),
    ),
    play=Fleet(clients=1_500, of_a_lock=5, turns=8, lease=10, work=8, options=one_or_three).play,
    controls=(
        Control(
            # That a holder relies on its whole lease, whatever end is stored, has its control in
            # tests/clocks: callers here meet a holder, and so learn AWS's time before they write.
            name="the lease of another is judged by this machine's clock",
            breaks="no more holders than the limit",
            patches=((LockContext, "date_ms", _by_my_clock),),
        ),
        Control(
            name="a place in the queue is the time of this machine",
            breaks="places by AWS's time",
            patches=((AwsClock, "now_ms", _wall_ms),),
        ),
        Control(
            name="a lease that was over by one Date only is asked for again after 30 s",
            breaks="no lock taken by no one",
            patches=((local_waiters, "_DATES_AGREE_SECONDS", 30.0),),
            seed=2,
            faults=Faults(machines=Machines(killed=20), network=Network(front_ends=0.5)),
        ),
    ),
)
