"""Processes whose clocks are wrong, over one table, in virtual time: real clients, real Dates."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock import FairlockError, Lock, LockClient
from fairlock.testing.fake_table import MemoryTable, dated
from tests.support.clocks import DriftingClock

AWS: Final = "https://dynamodb.us-east-1.amazonaws.com"
ELSEWHERE: Final = "http://127.0.0.1:8000"
_START: Final = 1_900_000_000.0
_SHARE_FROZEN: Final = 0.3
_OPERATIONS: Final = frozenset({"update_item", "transact_write_items", "get_item", "query"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What is wrong in a world; spans in seconds.

    Attributes:
        wall: how far the wall clocks are off, either way.
        jumps: how far they are set again at any moment, either way.
        drift: by which share monotonic clocks run too fast or too slowly.
        front_ends: how far the front ends of DynamoDB are off, either way.
        late: how long a request, and an answer, may be under way.
        frozen: how long the holder's machine stands still before its writes arrive.
        sleeps: how long it sleeps after its writes arrive; its monotonic clock counts that.
        stale: how old a Date may be that came through a cache, which says so.
        has_dates: whether there are Dates.
        endpoint_url: where the table is.
        longest_lease: of the holders.
    """

    wall: float = 0.0
    jumps: float = 0.0
    drift: float = 0.0
    front_ends: float = 0.0
    late: float = 0.02
    frozen: float = 0.0
    sleeps: float = 0.0
    stale: float = 0.0
    has_dates: bool = True
    endpoint_url: str = AWS
    longest_lease: float = 30.0


@dataclass
class World:
    """The true time, the table, and when that was asked last."""

    weather: Weather
    rng: random.Random
    now: float = field(init=False)
    asked_at: float = -math.inf
    memory: MemoryTable = field(default_factory=MemoryTable)

    def __post_init__(self) -> None:
        self.now = _START + self.rng.random() * 10

    def either_way(self, most: float) -> float:
        return self.rng.uniform(-most, most)


class NodeClock(DriftingClock):
    """The clocks of one process."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(
            lambda: world.now,
            drift=1 + world.either_way(world.weather.drift),
            offset=world.either_way(world.weather.wall),
            origin=world.now - world.rng.random() * 1_000,
        )
        self.notices_sleep = True

    def jump(self) -> None:
        self.offset += self._world.either_way(self._world.weather.jumps)

    def stand_still(self, seconds: float) -> None:
        """The machine is frozen, and none of its clocks notices."""
        self._world.now += seconds
        self.offset -= seconds
        self.origin += seconds

    def sleep(self, seconds: float) -> None:
        """The machine is suspended, and its clocks run on."""
        if self.notices_sleep:
            self._world.now += seconds
        else:
            self.stand_still(seconds)

    def wait(self, seconds: float) -> None:
        self._world.now += max(0.0, seconds)

    def alarm(self) -> NodeClock:
        return self

    def ring(self) -> None:
        """No one rings: no one waits."""


class Endpoint:
    """DynamoDB as one process sees it."""

    def __init__(self, world: World, clock: NodeClock, *, freezes: bool) -> None:
        self._world, self._clock, self._freezes = world, clock, freezes
        self.meta = SimpleNamespace(
            region_name="us-east-1", endpoint_url=world.weather.endpoint_url
        )
        self.exceptions = world.memory.exceptions

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as boto3 has it
        if name not in _OPERATIONS:
            raise AttributeError(name)
        return lambda **request: self._send(name, request)

    def _send(self, name: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        world, weather = self._world, self._world.weather
        if self._freezes and weather.frozen and world.rng.random() < _SHARE_FROZEN:
            self._clock.stand_still(weather.frozen)
        world.now += world.rng.uniform(0.001, weather.late)
        world.asked_at = world.now
        made = (
            world.now + world.either_way(weather.front_ends) - world.rng.uniform(0, weather.stale)
        )
        try:
            answer = dated(lambda: getattr(world.memory, name)(**request), int(made * 1000))
        except ClientError as refused:
            self._arrive(refused.response)
            raise
        return self._arrive(answer)

    def _arrive(self, answer: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        world, weather = self._world, self._world.weather
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        if not weather.has_dates:
            del headers["date"]
        if weather.stale:
            headers["age"] = "1"
        if self._freezes and world.rng.random() < _SHARE_FROZEN:
            self._clock.sleep(weather.sleeps)
        world.now += world.rng.uniform(0.001, weather.late)
        return answer


class Node:
    """One process with a client."""

    def __init__(self, world: World, *, freezes: bool = False, lease: float = 60) -> None:
        self.clock = NodeClock(world)
        endpoint: Any = Endpoint(world, self.clock, freezes=freezes)
        self.locks = LockClient(
            "locks",
            client=endpoint,
            clock=self.clock,
            owner_name="node",
            lease=lease,
            heartbeat_every=math.inf,
            safe_period=0.05,
        )

    def has_worked_before(self, world: World, most: int) -> None:
        """It has held other locks, or none yet."""
        for _ in range(world.rng.randint(0, most)):
            with suppress(FairlockError):
                lock = self.locks.try_acquire("another")
                if lock is not None:
                    lock.release()
            self.clock.wait(world.rng.uniform(0.05, 3))
            self.clock.jump()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a holder and a contender.

    Attributes:
        overlap: for how many seconds both held; at most 0 if they never did.
        takeover: seconds from the holder's own end to the contender's grant; None if not looked at.
        share: how much of its lease the holder could rely on; None if it got none.
    """

    overlap: float
    takeover: float | None = None
    share: float | None = None


Sabotage = Callable[[Node, Node], object]


def contend(
    weather: Weather, seed: int, *, sabotage: Sabotage = lambda _h, _c: None, patient: bool = False
) -> Outcome:
    """A holder renews a few times and dies; a contender tries at the worst moments before its end.

    Args:
        weather: what is wrong.
        seed: of all chance.
        sabotage: takes a protection away.
        patient: whether the contender then tries until it is granted the lock.
    """
    rng = random.Random(seed)  # noqa: S311 - chance, not secrets
    world = World(weather, rng)
    lease = rng.uniform(2.0, weather.longest_lease)
    holder, contender = Node(world, freezes=True, lease=lease), Node(world)
    sabotage(holder, contender)
    holder.has_worked_before(world, 2)
    contender.has_worked_before(world, 4)
    lock = _granted(holder)
    if lock is None:
        return Outcome(-math.inf)
    share = lock.remaining / lease
    for _ in range(rng.randint(0, 2)):
        holder.clock.wait(rng.random() * lock.remaining)
        holder.clock.jump()
        with suppress(FairlockError):
            lock.heartbeat()
    ends_at = holder.clock.true_time(lock._handle.lease.ends_at)  # noqa: SLF001 - its own end
    overlap, moments = -math.inf, [rng.random() * spread for spread in (0.05, 0.5, 0.5, 2)]
    for before in sorted(moments, reverse=True):
        world.now = max(world.now, ends_at - before - weather.late)
        contender.clock.jump()
        if _granted(contender):
            overlap = ends_at - world.asked_at
            break
    if not patient or overlap > 0:
        return Outcome(overlap, share=share)
    while not _granted(contender):
        world.now += rng.uniform(0.02, 0.2)
    return Outcome(overlap, takeover=world.asked_at - ends_at, share=share)


def _granted(node: Node) -> Lock | None:
    with suppress(FairlockError):
        return node.locks.try_acquire("a")
    return None
