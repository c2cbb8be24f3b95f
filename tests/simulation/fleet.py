"""A fleet of client processes that take turns at locks, while machines die and stand still.

Most scenarios of clients are this load under different weather. A process that dies is replaced by
a fresh one, which goes on with the turns that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fairlock import Lock
from tests.simulation.clients import ClientActor
from tests.simulation.engine import Process
from tests.simulation.judge import Belief
from tests.simulation.world import World

_HOUR: Final = 3_600.0
_RESTART_SECONDS: Final = 5.0
Options = Callable[[World, int], dict[str, Any]]
"""What a client asks for, by the number of the lock: options of `acquire`."""


def plain(_world: World, _lock: int) -> dict[str, Any]:
    """A lock for one."""
    return {}


def one_or_three(_world: World, lock: int) -> dict[str, Any]:
    """A third of the locks lets three in."""
    return {"limit": 3} if lock % 3 == 0 else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The load.

    Attributes:
        clients: how many processes, at scale 1.
        of_a_lock: how many of them take turns at one lock.
        turns: of each process, and of those that replace it, at scale 1.
        lease: seconds.
        think: seconds between two turns, the mean.
        work: seconds under a lock, the mean.
        max_wait: seconds.
        options: see above.
        writes: the share of turns in which a guarded write is made.
        starts_within: seconds.
        at_most: seconds of the whole run; None for as long as the turns may take.
        others: further actors, who begin beside the clients.
    """

    clients: int
    of_a_lock: int
    turns: int
    lease: float = 30.0
    think: float = 5.0
    work: float = 6.0
    max_wait: float = 240.0
    options: Options = plain
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
            # The turns count as one actor of the world until the last of them: see `_replace`.
            seconds = random.expovariate(machines.killed / _HOUR)
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
                during=partial(_write, actor) if writes else None,
                **options,
            )
        actor.locks.close()

    def _die(self, actor: ClientActor) -> None:
        if not actor.process.tasks:
            return
        self.world.kill(actor.process)
        if self.left:
            process, run = self.process()
            after = self.world.seconds + _RESTART_SECONDS
            self.world.begin(after, process, run)

    def _plan_suspension(self, actor: ClientActor) -> None:
        machines, random = self.world.faults.machines, self.world.random
        seconds = random.expovariate(machines.suspended / _HOUR)
        self.world.engine.after(seconds, self._suspend, actor)

    def _suspend(self, actor: ClientActor) -> None:
        if actor.process.is_alive and self.left:
            most = self.world.faults.machines.suspended_seconds
            self.world.suspend(actor.process, self.world.random.uniform(0.1, 1) * most)
            self._plan_suspension(actor)


def _write(actor: ClientActor, lock: Lock, belief: Belief) -> None:
    actor.write(lock, belief)
