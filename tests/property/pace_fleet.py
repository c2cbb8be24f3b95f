"""Processes that take turns in virtual time: real clients, wrong clocks, and a network that fails.

Each process has a wall clock, a drift and an endpoint of its own. Requests and replies get lost,
come late, and come twice, long after their senders have given them up.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

from botocore.exceptions import ClientError, ReadTimeoutError

from fairlock import SlotTooLate
from fairlock.aio import AsyncLockClient
from fairlock.aio.bridge import BridgedClock, wait_for
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.pace import LEAST_SLOT_US, MICROSECONDS, interval_us
from fairlock.testing.fake_table import MemoryTable, dated
from fairlock.testing.manual_clock import START_MS, run_in_virtual_time
from tests.support.clocks import DriftingClock

AWS: Final = "https://dynamodb.us-east-1.amazonaws.com"
_START: Final = START_MS / 1000
_TIMEOUT: Final = 1.5
_CERTAIN: Final = 1e-3
"""Clocks tell milliseconds."""
_EDGES: Final = 3.5
"""How far a caller may think that it is later than it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What runs, and what goes wrong; spans in seconds, shares of requests.

    Attributes:
        waits: the longest waits, of which each call takes one.
        calls: how many calls each process makes.
        pause: the longest pause before a call.
        wall: how far wall clocks are off, either way.
        drift: by which share monotonic clocks are wrong, either way.
        front_ends: how far the front ends of DynamoDB are off, either way.
        slow: the longest time that a request, or a reply, is under way.
        lost_requests: are never written, or long after they were given up.
        lost_replies: are written.
        copies: are written once more, up to `copy_after` seconds later.
        frozen: the longest time for which a process stands still before it reads a reply.
    """

    rate: tuple[int, float] = (10, 60)
    burst: int = 1
    waits: tuple[float, ...] = (0.0, 30.0)
    processes: int = 4
    calls: int = 8
    pause: float = 20.0
    wall: float = 0.0
    drift: float = 0.0
    front_ends: float = 0.0
    slow: float = 0.05
    lost_requests: float = 0.0
    lost_replies: float = 0.0
    copies: float = 0.0
    copy_after: float = 20.0
    frozen: float = 0.0

    @property
    def interval(self) -> float:
        return interval_us(*self.rate) / MICROSECONDS

    @property
    def lateness(self) -> float:
        """How late after its slot a caller may begin."""
        return max(self.interval, LEAST_SLOT_US / MICROSECONDS)

    def most_in(self, window: float) -> int:
        """How many may begin in a window."""
        return self.burst - 1 + math.ceil((window + self.lateness) / self.interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedSlot:
    """What a write has reserved, whenever it landed; times are AWS's, in seconds.

    Attributes:
        sent_at: when the write was sent.
        landed_at: when it was written.
        idle: whether it found no later slot taken.
    """

    begins: float
    due: float
    sent_at: float
    landed_at: float
    idle: bool


@dataclass
class Call:
    """One call of `pace`.

    Attributes:
        slots: those that its writes have reserved.
        began_at: when it returned; None if it raised.
        refused_at: when it was told that nothing was reserved.
    """

    max_wait: float
    called_at: float
    slots: list[ReservedSlot] = field(default_factory=list)
    began_at: float | None = None
    refused_at: float | None = None

    def own_slots(self) -> Iterator[ReservedSlot]:
        """Those that its writes have reserved when they landed first.

        A copy that lands after that, and after others, takes a slot that no caller asks for.
        """
        written = set[float]()
        for slot in self.slots:
            if slot.sent_at not in written:
                yield slot
            written.add(slot.sent_at)

    def slot(self, fleet: Fleet) -> ReservedSlot | None:
        """The last that it may have begun in. A copy may have reserved another one for no one."""
        at, ahead = self.began_at, (fleet.burst - 1) * fleet.interval
        if at is None:
            return None
        fitting = (
            slot
            for slot in reversed(self.slots)
            if slot.landed_at <= at
            and slot.begins - ahead - _CERTAIN <= at <= slot.due + fleet.lateness + _CERTAIN
        )
        return next(fitting, None)


@dataclass
class Run:
    """What has happened.

    Attributes:
        slots: all that were reserved, in this order, and by whom.
    """

    fleet: Fleet
    rng: random.Random
    memory: MemoryTable = field(default_factory=MemoryTable)
    calls: dict[str, Call] = field(default_factory=dict)
    slots: list[tuple[Call, ReservedSlot]] = field(default_factory=list)

    def begun(self) -> list[float]:
        return sorted(call.began_at for call in self.calls.values() if call.began_at is not None)


def aws_now() -> float:
    return _START + asyncio.get_running_loop().time()


class ProcessClock(DriftingClock, BridgedClock):
    """The clocks of one process."""

    def __init__(self, run: Run) -> None:
        wall, drift = (run.rng.uniform(-most, most) for most in (run.fleet.wall, run.fleet.drift))
        super().__init__(aws_now, drift=1 + drift, offset=wall, origin=_START)

    def wait(self, seconds: float) -> None:
        wait_for(asyncio.sleep(seconds / self.drift))


class Endpoint:
    """DynamoDB as one process sees it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._copies: set[asyncio.Task[None]] = set()
        self._skew = run.rng.uniform(-run.fleet.front_ends, run.fleet.front_ends)
        self.meta = SimpleNamespace(region_name="us-east-1", endpoint_url=AWS)
        self.exceptions = run.memory.exceptions
        self.call: Call | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as aiobotocore has it
        if name not in {"update_item", "get_item"}:
            raise AttributeError(name)

        async def send(**request: Any) -> Any:  # noqa: ANN401 - as aiobotocore answers
            return await self._send(name, request)

        return send

    async def _send(self, name: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - same
        run, fleet, chance = self._run, self._run.fleet, self._run.rng.random
        call = self.call
        assert call is not None
        if name == "update_item":
            request = {**request, "sent_at": aws_now()}
            run.calls.setdefault(request["ExpressionAttributeValues"][":id"]["S"], call)
            if chance() < fleet.copies:
                self._later(request)
        if chance() < fleet.lost_requests:
            if name == "update_item" and chance() < 0.5:
                self._later(request)
            await asyncio.sleep(_TIMEOUT)
            raise ReadTimeoutError(endpoint_url=AWS)
        await asyncio.sleep(run.rng.uniform(0.001, fleet.slow))
        told_ms = round((aws_now() + self._skew) * 1000)
        try:
            answer = dated(lambda: self._done(name, request), told_ms)
        except ClientError as refused:
            await self._replied()
            raise refused from None
        await self._replied()
        return answer

    async def _replied(self) -> None:
        run, fleet = self._run, self._run.fleet
        if run.rng.random() < fleet.lost_replies:
            await asyncio.sleep(_TIMEOUT)
            raise ReadTimeoutError(endpoint_url=AWS)
        await asyncio.sleep(run.rng.uniform(0.001, fleet.slow))
        await asyncio.sleep(run.rng.uniform(0, fleet.frozen))

    def _later(self, request: dict[str, Any]) -> None:
        """A copy of the write lands, and no one waits for its answer."""

        async def land() -> None:
            await asyncio.sleep(self._run.rng.uniform(0, self._run.fleet.copy_after))
            with suppress(ClientError):
                self._done("update_item", request)

        task = asyncio.ensure_future(land())
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)

    def _done(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        run = self._run
        answer: dict[str, Any] = getattr(run.memory, name)(**request)
        if name == "update_item":
            [item] = run.memory.items.values()
            call = run.calls[item["reservation_id"]["S"]]
            slot = ReservedSlot(
                begins=int(item["slot_us"]["N"]) / MICROSECONDS,
                due=int(item["next_slot_us"]["N"]) / MICROSECONDS - run.fleet.interval,
                sent_at=request["sent_at"],
                landed_at=aws_now(),
                idle=":early" in request["ExpressionAttributeValues"],
            )
            call.slots.append(slot)
            run.slots.append((call, slot))
        return answer

    async def landed(self) -> None:
        await asyncio.gather(*self._copies)


def played(fleet: Fleet, seed: int) -> Run:
    """Lets a fleet take turns until all calls have ended and all copies have landed."""
    random.seed(seed)  # The clients' own: of their pauses.
    run = Run(fleet, random.Random(seed))  # noqa: S311 - chance, not secrets

    async def main() -> None:
        await asyncio.sleep(run.rng.random())
        await asyncio.gather(*(_process(run) for _ in range(fleet.processes)))

    run_in_virtual_time(main())
    return run


async def _process(run: Run) -> None:
    fleet, endpoint = run.fleet, Endpoint(run)
    clock = ProcessClock(run)
    async with AsyncLockClient("locks", client=endpoint, clock=clock) as locks:
        for _ in range(fleet.calls):
            await asyncio.sleep(run.rng.uniform(0, fleet.pause))
            max_wait = run.rng.choice(fleet.waits)
            call = endpoint.call = Call(max_wait=max_wait, called_at=aws_now())
            try:
                await locks.pace("vendor", rate=fleet.rate, max_wait=max_wait, burst=fleet.burst)
            except SlotTooLate:
                call.refused_at = aws_now()
            except LockStoreUnavailable:
                pass
            else:
                call.began_at = aws_now()
        await endpoint.landed()


def faults(run: Run) -> Iterator[str]:
    """Every promise that was broken."""
    fleet, begun = run.fleet, run.begun()
    period = float(fleet.rate[1])
    for window in (period, fleet.interval, 3 * fleet.interval):
        for first in range(len(begun)):
            inside = [at for at in begun[first:] if at < begun[first] + window]
            if len(inside) > fleet.most_in(window):
                yield f"{len(inside)} callers begin within {window:g} s"
                break
    yield from _faults_of_calls(run)
    for (call, slot), (next_call, next_slot) in pairwise(run.slots):
        if call is next_call and next_slot.sent_at < slot.due + fleet.lateness - _EDGES:
            yield "a repeat, or a copy, reserves another slot although its own is the last one"
    yield from _faults_of_order(run)


def _faults_of_calls(run: Run) -> Iterator[str]:
    """Each begins in a slot of its own, in time; or none was reserved for it."""
    fleet = run.fleet
    for call in run.calls.values():
        if call.refused_at is not None and any(
            slot.due + fleet.lateness - _EDGES > call.refused_at for slot in call.own_slots()
        ):
            yield "a caller that was refused has reserved a slot"
        if call.began_at is None:
            continue
        if call.slot(fleet) is None:
            yield "a caller begins without a slot, before it or when it is over"
        longest = call.max_wait + _slack(fleet)
        if call.began_at - call.called_at > longest:
            yield f"a caller waits for {call.began_at - call.called_at:.1f} s of {longest:g} s"


def _slack(fleet: Fleet) -> float:
    """What a call may take besides its longest wait: its requests, and the edges of AWS's time."""
    trouble = 20.0 if fleet.lost_replies or fleet.lost_requests else 0.0
    return 3.5 + trouble + 20 * fleet.slow + 4 * fleet.frozen


def _faults_of_order(run: Run) -> Iterator[str]:
    """Callers begin in the order of their slots; one follows an idle one by a whole interval."""
    fleet = run.fleet
    used = [(call.slot(fleet), call.began_at) for call in run.calls.values()]
    in_order = sorted(
        ((slot, at) for slot, at in used if slot is not None and at is not None),
        key=lambda one: one[0].due,
    )
    for (slot, at), (next_slot, next_at) in pairwise(in_order):
        apart = next_slot.due - slot.due
        if at > next_at + _CERTAIN and apart >= fleet.lateness + (fleet.burst - 1) * fleet.interval:
            yield "a later slot begins first"
        is_followed = slot.idle and fleet.burst == 1
        if is_followed and next_at < slot.sent_at + fleet.interval - _CERTAIN:
            yield "a caller begins within an interval of one that found no other"
