"""Actors: processes that use `LockClient` as users do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairlock import Lock, LockClient, LockStoreUnavailable, LockWaitTimeout
from fairlock.errors import LockLost
from tests.simulation.clocks import NodeClock
from tests.simulation.engine import Killed, Process
from tests.simulation.judge import Belief
from tests.simulation.world import World

_STEP_SECONDS = 0.5


@dataclass
class ClientActor:
    """One process with one client, which takes locks and works under them.

    Attributes:
        world: where it lives.
        process: of its own.
        clock: same.
        locks: the real client.
    """

    world: World
    process: Process
    clock: NodeClock
    locks: LockClient

    @classmethod
    def of(cls, world: World, name: str, **settings: object) -> ClientActor:
        process, clock = world.process(name), world.clock()
        settings.setdefault("lease", 30)
        return cls(world, process, clock, world.client(process, clock, **settings))

    def take(
        self,
        name: str,
        work: float,
        *,
        max_wait: float,
        limit: int = 1,
        during: Callable[[Belief], None] | None = None,
    ) -> bool:
        """Takes a lock, works for so long, and releases it. Returns whether it got it.

        Args:
            name: the lock.
            work: seconds.
            max_wait: same.
            limit: permits.
            during: called in the middle of the work.
        """
        world, judge = self.world, self.world.judge
        began = judge.begins_to_wait(name)
        try:
            lock = self.locks.acquire(name, max_wait=max_wait, limit=limit)
        except LockWaitTimeout:
            judge.outcomes["timed out"] += 1
            world.engine.trace(self.process.name, f"{name}: timed out")
            return False
        except LockStoreUnavailable:
            judge.outcomes["unknown"] += 1
            world.engine.trace(self.process.name, f"{name}: outcome unknown")
            return False
        finally:
            judge.ends_waiting(name)
            waited = world.engine.now - began
            judge.require(
                "no waiter forgotten",
                waited <= max_wait + 20,
                f"{name}: {self.process.name} waited {waited:.1f} s of {max_wait:g}",
            )
        judge.waits.append(waited)
        judge.outcomes["granted"] += 1
        self._work(lock, work, limit, during)
        return True

    def _work(
        self, lock: Lock, work: float, limit: int, during: Callable[[Belief], None] | None
    ) -> None:
        world, judge, engine = self.world, self.world.judge, self.world.engine
        belief = judge.granted(
            self.process.name,
            lock.name,
            limit=limit,
            token=lock.fencing_token,
            own_end=lambda: self._own_end(lock),
        )
        engine.trace(self.process.name, f"{lock.name}: holds, token {lock.fencing_token}")
        try:
            until = engine.now + work / 2
            self._stay(lock, until)
            if during is not None:
                during(belief)
            self._stay(lock, until + work / 2)
        except Killed:
            engine.trace(self.process.name, f"{lock.name}: killed")
            judge.outcomes["killed"] += 1
            judge.left(belief)
            raise
        judge.left(belief)
        try:
            was_held = lock.release()
        except LockStoreUnavailable:
            judge.outcomes["release unknown"] += 1
            engine.trace(self.process.name, f"{lock.name}: release unknown")
            return
        if not was_held:
            judge.outcomes["lost"] += 1
        engine.trace(self.process.name, f"{lock.name}: {'released' if was_held else 'was lost'}")
        world.judge.outcomes["released"] += was_held

    def _stay(self, lock: Lock, until: float) -> None:
        """Works step by step, as long as `check` allows."""
        engine = self.world.engine
        while engine.now < until:
            try:
                lock.check()
            except LockLost:
                return
            engine.wait(min(_STEP_SECONDS, until - engine.now))

    def _own_end(self, lock: Lock) -> float:
        lease = lock._handle.lease  # noqa: SLF001 - its own knowledge
        return float("-inf") if lease.has_ended else self.clock.true_time(lease.ends_at)
