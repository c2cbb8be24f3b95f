"""The engine: processes that run real code in virtual time, one seed for all chance.

Fairlock's code is synchronous: it sends a request, waits for the answer, and waits on its clock. So
each thread of a simulated process is a greenlet, a `Task`. When it has to wait, it stands still,
and the engine goes on with whatever is due next. Virtual time jumps from one event to the next, and
two events at the same moment come in the order in which they were planned. Nothing else decides the
order: no thread of the system, no real clock, no hash. So a seed tells a run completely.
"""

from __future__ import annotations

import gc
import hashlib
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from greenlet import getcurrent, greenlet

START: Final = 1_900_000_000.0
"""The first moment, in seconds of AWS's time."""
_REMEMBERED_LINES: Final = 400
_TICK: Final = 1e-6
"""The shortest wait. A float of this size has steps of 0.24 µs: a shorter wait would pass no time,
and a loop that waits for the rest of a moment would never end."""
_STEPS_BETWEEN_COLLECTIONS: Final = 200_000


class Killed(BaseException):
    """The process was killed: no code of it runs on, and what it sends goes nowhere."""


class Task(greenlet):  # type: ignore[misc]  # greenlet ships no types
    """One thread of a process.

    Attributes:
        waits: how often it has waited: tells a wake-up that comes too late from a current one.
    """

    def __init__(self, process: Process, run: Callable[[], object], hub: greenlet) -> None:
        super().__init__(run, hub)
        self.process = process
        self.waits = 0

    def is_alive(self) -> bool:
        return not self.dead


class Process:
    """A process of the simulated world: it can be killed, and suspended with its machine.

    Attributes:
        suspended_until: the moment at which it goes on.
        suspended_seconds: for how long it was suspended in all.
        hits: when a fault has delayed or spoilt a request of it.
        tasks: its threads.
        clock: a `NodeClock`, once it has one.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.is_alive = True
        self.suspended_until = self.suspended_seconds = 0.0
        self.hits: list[float] = []
        self.tasks: dict[Task, None] = {}
        self.clock: Any = None

    def start(self, run: Callable[[], object]) -> Task:
        """Runs something in a thread of its own, soon."""
        task = Task(self, lambda: self._run(run), self.engine.hub)
        self.tasks[task] = None
        self.engine.at(self.engine.now, self.engine.resume, task, task.waits, None)
        return task

    def _run(self, run: Callable[[], object]) -> None:
        try:
            run()
        except Killed:
            pass
        finally:
            self.tasks.pop(getcurrent(), None)

    def kill(self) -> None:
        """Ends it at once, as SIGKILL does: no code of it runs any more.

        Its threads are unwound, so that Python frees them; whatever they try to send or to wait for
        meanwhile raises `Killed`.
        """
        if not self.is_alive:
            return
        self.is_alive = False
        self.engine.at(self.engine.now, self._unwind)
        if isinstance(getcurrent(), Task) and getcurrent().process is self:
            raise Killed

    def _unwind(self) -> None:
        for task in list(self.tasks):
            if not task.dead:
                task.throw(Killed)
        self.tasks.clear()

    def suspend(self, seconds: float) -> None:
        """Stops it for so long, as the suspension of its machine does: its clocks go on."""
        self.suspended_until = max(self.suspended_until, self.engine.now + seconds)
        self.suspended_seconds += seconds


class Engine:
    """Virtual time, the agenda, chance and the trace.

    Attributes:
        now: the true time in seconds, which is AWS's.
        random: chance of the world; the chance of Fairlock's own code is seeded beside it.
        steps: how many events have happened.
        has_ended: whether the world is no more: what is left of its threads is unwound.
        faults: what went wrong, and how often.
        lines: the trace; without `keeps_trace` only the last ones.
    """

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.now = START
        self.random = Random(seed)  # noqa: S311 - chance, not secrets
        self.hub: greenlet = getcurrent()
        self.steps = 0
        self.has_ended = False
        self.faults = Counter[str]()
        self.lines: deque[str] = deque(maxlen=None if keeps_trace else _REMEMBERED_LINES)
        self._agenda: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._digest = hashlib.blake2b(digest_size=16)

    def at(self, moment: float, happens: Callable[..., object], *args: object) -> None:
        """Plans an event; in the past means now."""
        entry = (max(moment, self.now), next(self._order), happens, args)
        heapq.heappush(self._agenda, entry)

    def after(self, seconds: float, happens: Callable[..., object], *args: object) -> None:
        """Plans an event for so many seconds from now."""
        self.at(self.now + seconds, happens, *args)

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Lets events happen, in order, until a moment, or until it is all over."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= until and not is_over():
            self.now, _, happens, args = heapq.heappop(agenda)
            self.steps += 1
            if self.steps % _STEPS_BETWEEN_COLLECTIONS == 0:
                gc.collect()  # At the same step in each run: finalizers run code of ours.
            happens(*args)

    def wait(self, seconds: float | None = None) -> object:
        """Lets the calling thread stand still until it is woken, at most for so long.

        Returns:
            What `wake` was given; None if the time is over.
        """
        task: Task = getcurrent()
        if not task.process.is_alive or self.has_ended:
            raise Killed
        task.waits += 1
        if seconds is not None:
            self.at(self.now + max(_TICK, seconds), self.resume, task, task.waits, None)
        found: object = self.hub.switch()
        return found

    def wake(self, task: Task, waits: int, value: object = True) -> None:  # noqa: FBT002 - any value
        """Ends the wait of a thread with this number, if it still waits."""
        self.at(self.now, self.resume, task, waits, value)

    def resume(self, task: Task, waits: int, value: object) -> None:
        """Lets a thread go on, once its process runs."""
        process = task.process
        if task.dead or waits != task.waits or not process.is_alive:
            return
        if process.suspended_until > self.now:
            self.at(process.suspended_until, self.resume, task, waits, value)
            return
        if task:
            task.switch(value)
        else:  # It has not begun.
            task.switch()

    def trace(self, who: str, what: str) -> None:
        """Notes what happened: in the digest, and for people."""
        line = f"{self.now - START:13.6f}  {who:24}  {what}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.lines.append(line)

    def digest(self) -> str:
        """Names the whole run so far: two runs with one digest are the same, byte for byte."""
        return self._digest.hexdigest()


class Sleepers:
    """Threads that stand still until another one wakes them, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Task, int]] = deque()

    def wait(self, seconds: float | None = None) -> None:
        """Lets the calling thread stand still, at most for so long."""
        me: Task = getcurrent()
        self._waiting.append((me, me.waits + 1))
        try:
            me.process.engine.wait(seconds)
        finally:
            with suppress(ValueError):  # It was woken.
                self._waiting.remove((me, me.waits))

    def wake(self) -> None:
        """Wakes the first, if there is one."""
        if self._waiting:
            task, waits = self._waiting.popleft()
            task.process.engine.wake(task, waits)


# Token buckets, by which AWS's services limit how often they are asked.


@dataclass(frozen=True, slots=True)
class Quota:
    """A bucket of so many tokens, refilled by so many a second."""

    size: float
    refill: float

    def scaled(self, scale: float) -> Quota:
        return Quota(max(1.0, self.size * scale), self.refill * scale)


QUOTAS: Final = {
    "StartExecution": Quota(1_300, 300),
    "RedriveExecution": Quota(1_300, 300),
    "DescribeExecution": Quota(300, 15),
    "SendTask": Quota(3_000, 500),
    "StateTransition": Quota(5_000, 5_000),
    "PutEvents": Quota(18_750, 18_750),
}
"""Defaults in us-east-1, us-west-2 and eu-west-1: "Service quotas" of the Step Functions developer
guide, and "Amazon EventBridge quotas" (deliveries to targets) of its user guide. Other regions have
less."""


class Bucket:
    """One such bucket."""

    def __init__(self, engine: Engine, quota: Quota) -> None:
        self._engine, self._quota = engine, quota
        self._left, self._at = quota.size, engine.now

    def take(self) -> bool:
        """Takes a token, if there is one."""
        self._refill()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def overdraw(self, tokens: float) -> bool:
        """Takes so many, if there is any: what that takes too much, later ones wait for."""
        self._refill()
        if self._left <= 0:
            return False
        self._left -= tokens
        return True

    def reserve(self) -> float:
        """Takes the next token that there will be; the seconds until then."""
        self._refill()
        self._left -= 1
        return max(0.0, -self._left / self._quota.refill)

    def _refill(self) -> None:
        now = self._engine.now
        self._left = min(self._quota.size, self._left + (now - self._at) * self._quota.refill)
        self._at = now
