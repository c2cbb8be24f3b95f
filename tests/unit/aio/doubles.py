"""A DynamoDB in memory, far away: a request that was sent arrives, even if no caller waits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.manual_clock import VirtualTimeLoop, run_in_virtual_time
from tests.support.faulty_table import lost_reply
from tests.unit.client.support.doubles import READS, WRITES

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
