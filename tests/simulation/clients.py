"""Actors: processes that use `LockClient` as users do, and what they believe meanwhile."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from greenlet import getcurrent

from fairlock import Lock, LockClient, LockStoreUnavailable, LockWaitTimeout, Superseded
from fairlock.errors import LockLost
from tests.simulation.engine import Killed, Process
from tests.simulation.faults import NodeClock
from tests.simulation.functions import Json, Outcome
from tests.simulation.guard import Account
from tests.simulation.judge import Belief
from tests.simulation.recovery import FAULT_SECONDS, Acquisition, Stage
from tests.simulation.world import World

_LOST: Final = 0.02
_LATE: Final = 0.05
_LATEST_SECONDS: Final = 120.0
_LEASE_SECONDS: Final = 12


@dataclass
class DirectCaller:
    """One program that invokes the functions.

    Attributes:
        queues: whether it joins the queue, or polls outside of it.
    """

    account: Account
    process: Process
    queues: bool

    @property
    def clock(self) -> NodeClock:
        clock: NodeClock = self.process.clock
        return clock

    def take(self, lock: str, work: float, max_wait: float) -> None:
        """Takes a lock, works under it, and releases it."""
        judge, engine = self.account.judge, self.account.engine
        owner = {"lock_name": lock, "owner_id": str(uuid.uuid4())}
        began = judge.begins_to_wait(lock)
        belief = self._acquire(owner, began, max_wait)
        judge.ends_waiting(lock)
        if belief is not None:
            judge.waits.append(engine.now - began)
            judge.outcomes["granted"] += 1
            self._work(owner, belief, work)
            judge.left(belief)
        self._release(owner)

    def _acquire(self, owner: Json, began: float, max_wait: float) -> Belief | None:
        request: Json = {**owner, "lease_seconds": _LEASE_SECONDS, "owner_name": "direct"}
        request |= {"queue": True} if self.queues else {"waiting_since_ms": self.clock.wall_ms()}
        off_ms = 0
        while self.account.engine.now < began + max_wait:
            sent, request["entered_at_ms"] = self.clock.monotonic(), self.clock.wall_ms() + off_ms
            answer = self._call("acquire", request)
            if answer is None:
                self.clock.wait(1.0)  # An error is no answer: it asks again.
                continue
            if answer["acquired"]:
                return self._believe(owner["lock_name"], answer, sent)
            if answer["reason"] == "ASK_AGAIN":
                off_ms = answer["entered_at_ms"] - self.clock.wall_ms()
            if "ticket" in answer:
                request["ticket"] = answer["ticket"]
            self.clock.wait(answer["retry_after_seconds"])
        self.account.judge.outcomes["timed out"] += 1
        return None

    def _believe(self, lock: str, answer: Json, sent: float) -> Belief:
        """It counts the lease from the moment before it sent the request."""
        self.ends_at = sent + answer["expires_in_seconds"]
        token = answer["fencing_token"]
        self.account.engine.trace(self.process.name, f"{lock}: holds, token {token}")
        return self.account.judge.granted(
            self.process.name,
            lock,
            limit=1,
            token=token,
            own_end=lambda: self.clock.true_time(self.ends_at),
        )

    def _work(self, owner: Json, belief: Belief, work: float) -> None:
        judge, until = self.account.judge, self.clock.monotonic() + work
        while (left := until - self.clock.monotonic()) > 0:
            self.clock.wait(min(left, _LEASE_SECONDS / 3))
            if self.clock.monotonic() >= self.ends_at:
                judge.outcomes["lost"] += 1
                return
            if not belief.is_forced:
                judge.wrote(self.process.name, belief.lock, belief.token)
            sent = self.clock.monotonic()
            answer = self._call("heartbeat", {**owner, "lease_seconds": _LEASE_SECONDS})
            if answer is None:
                continue
            if not answer["renewed"]:
                judge.outcomes["lost"] += 1
                return
            self.ends_at = max(self.ends_at, sent + answer["expires_in_seconds"])

    def _release(self, owner: Json) -> None:
        """Always, even if it gave up: the answer that granted the lock may have been lost."""
        for _ in range(20):
            if self._call("release", {**owner, "queue": True}) is not None:
                self.account.judge.gone.add(owner["owner_id"])
                return
            self.clock.wait(1.0)

    def _call(self, function: str, request: Json) -> Json | None:
        """Invokes a function, and waits for the answer; None if there is none, or an error."""
        engine, functions = self.account.engine, self.account.functions
        chance, task = engine.random.random(), getcurrent()
        waits, payload = task.waits + 1, json.loads(json.dumps(request))

        def done(outcome: Outcome) -> None:
            if chance >= _LOST:
                engine.wake(task, waits, outcome)

        late = engine.random.random() * _LATEST_SECONDS if chance > 1 - _LATE else 0.0
        engine.after(late, functions.invoke, function, payload, done)
        outcome: Any = engine.wait(15.0)
        if outcome is None or outcome.error:
            error = "no answer" if outcome is None else outcome.error
            self.account.judge.outcomes[f"direct: {error}"] += 1
            return None
        answer: Json = json.loads(json.dumps(outcome.answer))
        return answer


_STEPS_OF_A_LEASE: Final = 20
_LEAVING_SECONDS: Final = 16.0
"""After its wait a client leaves the queue: two requests, and 7.5 s for each if it gets no answer
(docs/client.md: "the time-outs of one or two requests")."""
_READERS: Final = 20


class ClientActor:
    """One process with one client, which takes locks and works under them."""

    def __init__(self, world: World, name: str, *, lease: float = 30, **settings: Any) -> None:  # noqa: ANN401 - as LockClient takes them
        self.world, self.process = world, world.process(name)
        self.clock: NodeClock = self.process.clock
        sdk: Any = world.sdk()
        self.locks = LockClient(
            "locks", client=sdk, clock=self.clock, owner_name=name, lease=lease, **settings
        )
        self._numbers = itertools.count(1)

    def take(
        self,
        name: str,
        work: float,
        *,
        max_wait: float,
        writes: bool = False,
        is_last_write: bool = False,
        **options: Any,  # noqa: ANN401 - as `acquire` takes them
    ) -> bool:
        """Takes a lock, works for so long, and releases it. Returns whether it got it.

        Args:
            name: the lock.
            work: seconds.
            max_wait: same.
            writes: whether it makes a guarded write in the middle of the work.
            is_last_write: whether it is released in the transaction of a write.
            options: `limit`, `shared` and so on.
        """
        world, judge, recovery = self.world, self.world.judge, self.world.recovery
        limit = options.get("limit", _READERS if options.get("shared") else 1)
        label = f"{self.process.name}/{next(self._numbers)}"
        began = judge.begins_to_wait(name)
        version = options.get("only_newest")
        asked = recovery.begins(name, label, limit, self.process, version)
        lock = None
        try:
            lock = self.locks.acquire(name, max_wait=max_wait, owner_name=label, **options)
        except (LockWaitTimeout, LockStoreUnavailable, Superseded) as error:
            outcome = _OUTCOMES[type(error)] if max_wait else "skipped"
            judge.outcomes[outcome] += 1
            world.engine.trace(self.process.name, f"{name}: {outcome}")
            return False
        finally:
            judge.ends_waiting(name)
            if lock is None:
                recovery.becomes(asked, Stage.ENDED)
            if self.process.is_alive:
                self._require_end_of_wait(name, world.engine.now - began, max_wait)
        judge.waits.append(world.engine.now - began)
        judge.outcomes["granted"] += 1
        self._work(lock, asked, work, writes=writes, is_last_write=is_last_write)
        return True

    def have_turns(self, turns: int, think: float, turn: Callable[[], object]) -> None:
        """So many, with a pause at random before each; then the client is closed."""
        for _ in range(turns):
            self.clock.wait(self.world.random.expovariate(1 / think))
            turn()
        self.locks.close()

    def take_all(self, names: list[str], work: float, max_wait: float) -> None:
        """Takes several locks at once, and works under all of them."""
        world, judge, recovery = self.world, self.world.judge, self.world.recovery
        label = f"{self.process.name}/{next(self._numbers)}"
        asked = [recovery.begins(name, label, 1, self.process) for name in names]
        for each in asked:
            # While the second one is waited for, the first is held, which only the client knows.
            recovery.becomes(each, Stage.UNSEEN)
        beliefs: list[Belief] = []
        try:
            with self.locks.hold_all(names, max_wait=max_wait, owner_name=label) as held:
                beliefs += [self.believe(*each) for each in zip(held, asked, strict=True)]
                self._stay(held[0], world.engine.now + work)
                for each, belief in zip(asked, beliefs, strict=True):
                    judge.left(belief)
                    recovery.becomes(each, Stage.LEAVES, belief)
            judge.outcomes["took all"] += 1
        except LockLost:
            judge.outcomes["lost"] += 1
        except (LockWaitTimeout, LockStoreUnavailable) as error:
            is_circle = isinstance(error, LockWaitTimeout)
            judge.require("no wait in a circle", not is_circle, f"{self.process.name}: {names}")
        finally:
            for belief in beliefs:
                judge.left(belief)
            for each in asked:
                recovery.becomes(each, Stage.ENDED)

    def _require_end_of_wait(self, name: str, waited: float, max_wait: float) -> None:
        """A wait ends after `max_wait`, and the requests that leave the queue."""
        world, suspended = self.world, self.process.suspended_seconds
        since = world.engine.now - _LEAVING_SECONDS
        spoilt = FAULT_SECONDS * world.recovery.hits_of(self.process, since)
        world.judge.require(
            "no waiter forgotten",
            waited <= max_wait + 1 + suspended + min(spoilt, _LEAVING_SECONDS),
            f"{name}: {self.process.name} waited {waited:.1f} s of {max_wait:g}",
        )

    def _work(
        self, lock: Lock, asked: Acquisition, work: float, *, writes: bool, is_last_write: bool
    ) -> None:
        judge, engine, recovery = self.world.judge, self.world.engine, self.world.recovery
        belief = self.believe(lock, asked)
        try:
            until = engine.now + work / 2
            self._stay(lock, until)
            if writes:
                self._write(lock)
            self._stay(lock, until + work / 2)
        except Killed:
            judge.outcomes["killed"] += 1
            judge.left(belief)
            raise
        judge.left(belief)
        self._require_notice(lock, belief)
        recovery.becomes(asked, Stage.LEAVES, belief)
        try:
            if is_last_write:
                self._write(lock, is_last=True)
            self._release(lock)
        finally:
            recovery.becomes(asked, Stage.ENDED, belief)

    def believe(self, lock: Lock, asked: Acquisition) -> Belief:
        """From now on this client relies on a lock."""
        world = self.world
        belief = world.judge.granted(
            self.process.name,
            lock.name,
            limit=asked.limit,
            token=lock.fencing_token,
            own_end=lambda: self._own_end(lock),
        )
        world.recovery.becomes(asked, Stage.HOLDS, belief)
        world.engine.trace(self.process.name, f"{lock.name}: holds, token {lock.fencing_token}")
        return belief

    def _require_notice(self, lock: Lock, belief: Belief) -> None:
        """A holder learns at its next heartbeat that it was released by force."""
        if not belief.is_forced:
            return
        world, since = self.world, belief.forced_at
        spoilt = FAULT_SECONDS * world.recovery.hits_of(self.process, since - FAULT_SECONDS)
        most = lock.lease / 3 + 1 + spoilt + self.process.suspended_seconds
        seconds = world.engine.now - since
        what = f"{lock.name}: {belief.who} went on for {seconds:.1f} s of {most:.1f}"
        world.judge.require("a release by force is noticed", seconds <= most, what)

    def _release(self, lock: Lock) -> None:
        outcomes, engine = self.world.judge.outcomes, self.world.engine
        try:
            was_held = lock.release()
        except LockStoreUnavailable:
            outcomes["release unknown"] += 1
            engine.trace(self.process.name, f"{lock.name}: release unknown")
            return
        outcomes["released" if was_held else "lost"] += 1
        engine.trace(self.process.name, f"{lock.name}: {'released' if was_held else 'was lost'}")

    def _stay(self, lock: Lock, until: float) -> None:
        """Works step by step, as long as `check` allows."""
        engine, step = self.world.engine, lock.lease / _STEPS_OF_A_LEASE
        while engine.now < until:
            try:
                lock.check()
            except LockLost:
                return
            engine.wait(min(step, until - engine.now))

    def _write(self, lock: Lock, *, is_last: bool = False) -> None:
        """Writes what is guarded by the lock, in a transaction that may release it, too."""
        item: Any = {
            "pk": {"S": f"DATA#{lock.name}"},
            "sk": {"S": "1"},
            "token": {"N": str(lock.fencing_token)},
            **({"is_last": {"BOOL": True}} if is_last else {}),
        }
        outcomes = self.world.judge.outcomes
        try:
            lock.transact_write([{"Put": {"TableName": "data", "Item": item}}], release=is_last)
        except LockLost:
            outcomes["write refused"] += 1
        except LockStoreUnavailable:
            outcomes["write unknown"] += 1
        else:
            outcomes["written"] += 1

    def _own_end(self, lock: Lock) -> float:
        lease = lock._handle.lease  # noqa: SLF001 - its own knowledge
        return float("-inf") if lease.taken else self.clock.true_time(lease.ends_at)


def send(
    world: World,
    kind: str,
    count: int,
    turn: Callable[[ClientActor, int], object],
    *,
    turns: int,
    think: float,
    **settings: Any,  # noqa: ANN401 - as LockClient takes them
) -> None:
    """Sends so many clients, who have turns; each turn is told its client and that one's number."""
    for number in range(count):
        actor = ClientActor(world, f"{kind} {number}", **settings)
        run = partial(actor.have_turns, turns, think, partial(turn, actor, number))
        world.begin(world.random.random() * 5, actor.process, run)


_OUTCOMES: Final = {
    LockWaitTimeout: "timed out",
    LockStoreUnavailable: "unknown",
    Superseded: "superseded",
}
