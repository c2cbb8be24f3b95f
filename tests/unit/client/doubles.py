"""Stand-ins for clients: clocks on which things happen, tables near and far, and interrupts."""

from __future__ import annotations

import _weakrefset
import asyncio
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace
from typing import Any, Final, ParamSpec

from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing.fake_table import MemoryTable, dated
from fairlock.testing.manual_clock import VirtualTimeLoop, run_in_virtual_time
from testbed.localaws import LocalAws
from tests.support import FakeAlarm, FakeClock
from tests.support.faulty_table import READS, WRITES, lost_reply


@dataclass
class EventfulClock(FakeClock):
    """Time passes when another caller waits; what was planned happens on the way."""

    plans: list[tuple[int, Callable[[], object]]] = field(default_factory=list)

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Plans something for so many seconds from now."""
        self.plans.append((self.now_ms + round(seconds * 1000), action))

    def alarm(self) -> EventfulAlarm:
        return EventfulAlarm(self)

    def wait(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        self.waits.append(seconds)
        ends_ms = self.now_ms + round(seconds * 1000)
        while due := sorted(
            (plan for plan in self.plans if plan[0] <= ends_ms), key=lambda p: p[0]
        ):
            self.plans.remove(due[0])
            self.now_ms = max(self.now_ms, due[0][0])
            due[0][1]()
            if until():
                return
        self.now_ms = max(self.now_ms, ends_ms)


@dataclass
class EventfulAlarm(FakeAlarm):
    """Ends the wait as soon as something that happened on the way has rung it."""

    clock: EventfulClock

    def wait(self, seconds: float) -> None:
        if not self.rung:
            self.clock.wait(seconds, until=lambda: self.rung)
        self.rung = False


@dataclass(frozen=True)
class SkewedClock:
    """A process whose wall clock is wrong; its monotonic clock is everybody's."""

    true: FakeClock
    skew_seconds: float

    def wall_ms(self) -> int:
        return self.true.wall_ms() + round(self.skew_seconds * 1000)

    def monotonic(self) -> float:
        return self.true.monotonic()

    def wait(self, seconds: float) -> None:
        self.true.wait(seconds)

    def alarm(self) -> FakeAlarm:
        return self.true.alarm()


@dataclass
class Table:
    """A DynamoDB in memory that does one request at a time, and tells what was asked of it.

    Attributes:
        latency_seconds: how long each request takes; many may be under way at a time.
        outage: what requests raise while it is set, without being done.
        loses_replies: whether requests are done, and then raise.
        clock: AWS's: its time is the Date of the answers, if there is one.
        meta: where the table is; at none of AWS's addresses.
        fails_after: how many requests are done before all others raise as in an outage.
        log: the name of each request that was done, in order.
    """

    memory: MemoryTable = field(default_factory=MemoryTable)
    latency_seconds: float = 0.0
    outage: Exception | None = None
    loses_replies: bool = False
    clock: FakeClock | None = None
    meta: Any = field(
        default_factory=lambda: SimpleNamespace(region_name="us-east-1", endpoint_url=None)
    )
    fails_after: int | None = None
    log: list[str] = field(default_factory=list)
    before: Callable[[str, dict[str, Any]], None] | None = None
    _one: threading.Condition = field(default_factory=threading.Condition)

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - as boto3 has it
        return self.memory.exceptions

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        if name not in READS + WRITES:
            raise AttributeError(name)
        return lambda **arguments: self._send(name, arguments)

    def close(self) -> None:
        """Nothing is open."""

    def state(self, lock_name: str) -> LockState:
        """The lock as it is, without a request."""
        return read_state(self.memory.state(lock_name))

    def waiters(self, lock_name: str) -> list[str]:
        """Owner names in the queue, the oldest first."""
        return [item["owner_name"]["S"] for item in self.memory.waiters(lock_name)]

    def reads(self) -> int:
        return sum(name in READS for name in self.log)

    def writes(self) -> int:
        return sum(name in WRITES for name in self.log)

    def does_more(self, requests: int, *, seconds: float = 30) -> bool:
        """Waits for so many more requests; returns whether they came within so many seconds."""
        with self._one:
            before = len(self.log)
            return self._one.wait_for(lambda: len(self.log) >= before + requests, seconds)

    def _answer(self, answer: Callable[[], Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        return answer() if self.clock is None else dated(answer, self.clock.now_ms)

    def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        if self.before is not None:
            self.before(name, arguments)
        if self.latency_seconds:
            time.sleep(self.latency_seconds)
        if self.outage is not None:
            raise self.outage
        if self.fails_after is not None and len(self.log) >= self.fails_after:
            raise lost_reply()
        with self._one:
            self.log.append(name)
            answer = self._answer(lambda: getattr(self.memory, name)(**arguments))
            self._one.notify_all()
        if self.loses_replies:
            raise lost_reply()
        return answer


# Clients at the embedded AWS, and what they send over the wire, retries included.

_TARGET = "X-Amz-Target"


@dataclass
class Wire:
    """Every request of a client, by the name of its operation."""

    sent: list[str] = field(default_factory=list)

    def tap(self, client: Any) -> Any:  # noqa: ANN401 - a boto3 client
        """Remembers what this client sends from now on."""
        client.meta.events.register("before-send.dynamodb.*", self._remember)
        return client

    def _remember(self, request: Any, **_: Any) -> None:  # noqa: ANN401 - botocore's
        target = request.headers[_TARGET]
        text = target.decode() if isinstance(target, bytes) else target
        self.sent.append(text.rpartition(".")[2])


def dynamodb_of(aws: LocalAws, wire: Wire | None = None) -> Any:  # noqa: ANN401 - a boto3 client
    """A DynamoDB client of its own, with room for heartbeats; its requests are remembered."""
    client = aws.client("dynamodb", max_pool_connections=40)
    return client if wire is None else wire.tap(client)


@dataclass
class Together:
    """Runs something in several threads that begin at the same moment."""

    errors: list[BaseException] = field(default_factory=list)

    def run(self, *actions: Any) -> None:  # noqa: ANN401 - functions without arguments
        barrier = threading.Barrier(len(actions))
        threads = [threading.Thread(target=self._call, args=(barrier, act)) for act in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        if self.errors:
            raise self.errors[0]

    def _call(self, barrier: threading.Barrier, action: Any) -> None:  # noqa: ANN401 - same
        try:
            barrier.wait(30)
            action()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self.errors.append(error)


# Interrupts at moments of the test's choosing, as by Ctrl-C or by a signal handler that raises.


class TimeLimitError(Exception):
    """Raised by a signal handler of the program's; Celery's `SoftTimeLimitExceeded` is one."""


_WEAK: Final = {weakref.__file__, _weakrefset.__file__}


def _is_in_a_finalizer(frame: FrameType | None) -> bool:
    """Whether Python runs a `__del__`, or the callback by which a weak collection drops an item."""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "__del__" or (file in _WEAK and name in {"remove", "_remove"}):
            return True
        frame = frame.f_back
    return False


def interrupt(action: Callable[[], object], *, at: int, within: str = "") -> bool:
    """Runs the action, and raises KeyboardInterrupt in it; returns whether it came to that.

    Python runs signal handlers when a function written in Python begins, and when a call has
    returned; so an interrupt comes at one of these moments.

    Args:
        action: what is interrupted.
        at: how many such moments pass before.
        within: counts only moments in files whose path contains this.
    """
    passed = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - as `sys.settrace` has it
        nonlocal passed
        if _is_in_a_finalizer(frame):
            return None  # Python drops what is raised there.
        if within not in frame.f_code.co_filename:
            return None  # Not traced: it has no such moment.
        frame.f_trace_lines = False
        if event in {"call", "return"}:
            passed += 1
            if passed > at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


# A DynamoDB in memory, far away: a request that was sent arrives, even if no caller waits.

LATENCY_SECONDS = 0.01


@dataclass(frozen=True)
class Request:
    """One that was done: when it was sent, when it arrived."""

    name: str
    sent: float
    arrived: float


@dataclass
class AsyncTable:
    """Replaces an aiobotocore client.

    Attributes:
        ways: seconds that the next requests take to arrive, one each; then half the latency.
        outage: what requests raise while it is set, without being done.
        loses_replies: whether requests are done, and then raise.
        log: what was done, in order.
        on_answer: called whenever an answer arrives.
    """

    memory: MemoryTable = field(default_factory=MemoryTable)
    latency_seconds: float = LATENCY_SECONDS
    ways: list[float] = field(default_factory=list)
    outage: Exception | None = None
    loses_replies: bool = False
    log: list[Request] = field(default_factory=list)
    on_answer: Callable[[], object] = lambda: None

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - as boto3 has it
        return self.memory.exceptions

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        if name not in READS + WRITES:
            raise AttributeError(name)
        return lambda **arguments: self._send(name, arguments)

    async def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        way = self.ways.pop(0) if self.ways else self.latency_seconds / 2
        loop.call_later(way, self._arrive, name, arguments, loop.time(), answer)
        return await answer

    def _arrive(
        self, name: str, arguments: dict[str, Any], sent: float, answer: asyncio.Future[Any]
    ) -> None:
        loop = asyncio.get_running_loop()
        error, result = self.outage, None
        if error is None:
            self.log.append(Request(name, sent, loop.time()))
            try:
                result = getattr(self.memory, name)(**arguments)
            except Exception as refused:  # noqa: BLE001 - it is the answer
                error = refused
            if self.loses_replies:
                error = lost_reply()
        loop.call_later(self.latency_seconds / 2, self._return, answer, result, error)

    def _return(self, answer: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        self.on_answer()
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def state(self, lock_name: str) -> LockState:
        """The lock as it is, without a request."""
        return read_state(self.memory.state(lock_name))

    def traces(self, lock_name: str) -> list[str]:
        """Owner names of all who hold it, or wait for it."""
        holders = [holder.owner_name for holder in self.state(lock_name).holders]
        return holders + [item["owner_name"]["S"] for item in self.memory.waiters(lock_name)]

    def names(self) -> list[str]:
        return [request.name for request in self.log]


# Tests in virtual time: what waits, waits no longer than it must.

_P = ParamSpec("_P")


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def in_virtual_time(scene: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(scene)
    def test(*args: _P.args, **kwargs: _P.kwargs) -> None:
        run_in_virtual_time(scene(*args, **kwargs))

    return test
