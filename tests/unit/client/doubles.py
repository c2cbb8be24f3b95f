"""Doubles of AWS's clients, near and far, what a hook is told, and interrupts."""

from __future__ import annotations

import _weakrefset
import asyncio
import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from fairlock import LockClient, LockEvent
from fairlock.clock import Clock
from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing import FakeTable
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.manual_clock import VirtualTimeLoop, run_in_virtual_time
from tests.support.faulty_table import WRITES, Faulty


class Table(Faulty, FakeTable):
    """A DynamoDB in memory that fails as a test plans, and shows what it was sent.

    Args:
        clock: AWS's, which dates the answers; without one they have no Date.

    Attributes:
        answers: called with the headers of each answer, and of each refusal.
        sent: each write, as it was sent.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        Faulty.__init__(self)
        FakeTable.__init__(self)
        self.clock = self.clock if clock is None else clock
        self.answers: Callable[[dict[str, str]], object] = unchanged if clock else without_date
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self._came = threading.Condition()

    @property
    def memory(self) -> MemoryTable:
        """Its items."""
        return self._memory

    def state(self, lock_name: str) -> LockState:
        """The lock as it is, without a request."""
        return read_state(self.memory.state(lock_name))

    def waiters(self, lock_name: str) -> list[str]:
        """Owner names in the queue, the oldest first."""
        return [item["owner_name"]["S"] for item in self.memory.waiters(lock_name)]

    def traces(self, lock_name: str) -> list[str]:
        """Owner names of all who hold it, or wait for it."""
        holders = [holder.owner_name for holder in self.state(lock_name).holders]
        return holders + self.waiters(lock_name)

    def does_more(self, requests: int, *, seconds: float = 30) -> bool:
        """Waits for so many more requests; returns whether they came within so many seconds."""
        with self._came:
            enough = len(self.requests) + requests
            return self._came.wait_for(lambda: len(self.requests) >= enough, seconds)

    def _send(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        request = dict(request)
        if name in WRITES:
            self.sent.append((name, request))
        return self._pass_on(partial(self._do, name), name, request)

    def _do(self, name: str, /, **request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        try:
            answer = super()._send(name, request)
        except ClientError as refused:
            self.answers(refused.response["ResponseMetadata"]["HTTPHeaders"])
            raise
        finally:
            with self._came:
                self._came.notify_all()
        self.answers(answer["ResponseMetadata"]["HTTPHeaders"])
        return answer


def often_renewed(table: Table) -> LockClient:
    """A client with threads: its locks are renewed ten times a second, for a minute each."""
    return LockClient("locks", client=table, lease=60, heartbeat_every=0.1)


def unchanged(_headers: dict[str, str]) -> None:
    """Of an answer as it is."""


def without_date(headers: dict[str, str]) -> None:
    """Of an answer that does not tell the time."""
    del headers["date"]


class Hook:
    """Remembers what a hook is told."""

    def __init__(self) -> None:
        self.events: list[LockEvent] = []

    def __call__(self, event: LockEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events]


def descriptors() -> int:
    """How many files and sockets this process has open."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


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
    gc.disable()  # Python drops what is raised in its callbacks; Hypothesis has one.
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


# A DynamoDB in memory, far away: a request that was sent arrives, even if no caller waits.

LATENCY_SECONDS = 0.01


class AsyncTable(Table):
    """Replaces an aiobotocore client.

    Attributes:
        latency_seconds: from a request to its answer.
        ways: seconds that the next requests take to arrive, one each; then half the latency.
        on_answer: called whenever an answer arrives.
        under_way: how many requests were sent and did not arrive yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latency_seconds = LATENCY_SECONDS
        self.ways: list[float] = []
        self.on_answer: Callable[[], object] = lambda: None
        self.under_way = 0

    async def _send(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        way = self.ways.pop(0) if self.ways else self.latency_seconds / 2
        self.under_way += 1
        loop.call_later(way, self._arrive, name, request, answer)
        return await answer

    def _arrive(self, name: str, request: Mapping[str, Any], answer: asyncio.Future[Any]) -> None:
        result: Any = None
        try:
            result = super()._send(name, request)
        except Exception as error:  # noqa: BLE001 - it is the answer
            result = error
        self.under_way -= 1
        later = asyncio.get_running_loop().call_later
        later(self.latency_seconds / 2, self._return, answer, result)

    def _return(self, answer: asyncio.Future[Any], result: object) -> None:
        self.on_answer()
        if answer.cancelled():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)


# Tests that are coroutine functions: in virtual time what waits, waits no longer than it must.


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine function, in its `world` if it has one; for the `conftest.py` of a suite."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    world: Any = arguments.get("world")
    run = run_in_virtual_time if world is None else world.play
    run(pyfuncitem.obj(**arguments))
    return True


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop
