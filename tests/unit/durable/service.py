"""A lock service in this process, for durable functions on AWS's local runner."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.lock_table import LockTable
from fairlock.clock import Clock, SystemClock
from fairlock.errors import LockLost, LockStoreUnavailable
from fairlock.protocol.model import Grant, LockState
from fairlock.protocol.outcomes import NotHeld, Reaped, Refusal, Released
from fairlock.store.context import LockContext
from fairlock.store.reap import ExecutionEnded
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import acquire_answer, release_answer
from fairlock.wire.requests import parse_acquire, parse_release
from fairlock.wire.rules import callback_id_in
from tests.support import TABLE, Operations, moved_clock

Json = dict[str, Any]
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:billing:1/durable-execution"


def arn_of(local_arn: str) -> str:
    """The local runner's executions have no real ARN."""
    return local_arn if local_arn.startswith("arn:") else f"{FUNCTION}/{local_arn}"


@dataclass
class Service:
    """The functions acquire and release, over a table in memory.

    Attributes:
        push: completes a callback with a text; None loses all pushes.
        over: the executions that Lambda says are over.
        calls: the names of the functions that were called, with the owner ids.
        before: called before each call, and after it with its answer; may raise.
    """

    push: Callable[[str, str], None] | None = None
    table: MemoryTable = field(default_factory=MemoryTable)
    clock: Clock = field(default_factory=SystemClock)
    over: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    requests: list[Json] = field(default_factory=list)
    before: Callable[[str, Json], None] = lambda _name, _request: None
    after: Callable[[str, Json, Json], None] = lambda _name, _request, _answer: None
    pushed: list[str] = field(default_factory=list)
    _mutex: Any = field(default_factory=threading.RLock)

    def acquire(self, request: Json) -> Json:
        request = {**request, "execution_arn": arn_of(request["execution_arn"])}
        return self._serve("acquire", request, self._acquire)

    def release(self, request: Json) -> Json:
        request = {**request, "execution_arn": arn_of(request["execution_arn"])}
        return self._serve("release", request, self._release)

    def state(self, lock_name: str) -> LockState:
        with self._mutex:
            return self.store().read_state(lock_name)

    def reap(self, local_arn: str, *, second_pass: bool = False) -> Reaped:
        with self._mutex:
            ended = ExecutionEnded(execution_arn=arn_of(local_arn), second_pass=second_pass)
            return self.store().reap(ended)

    def store(self) -> Operations:
        table: Any = self.table
        lock_table = LockTable(table, TABLE, aws_clock=moved_clock(self.clock))
        return Operations(LockContext(table=lock_table, workflows=self))

    def wake_waiter(self, task_token: str, grant: Grant | Refusal) -> Delivery:
        callback_id = callback_id_in(task_token)
        assert callback_id is not None
        self.pushed.append(callback_id)
        if self.push is None:
            return Delivery.UNKNOWN
        try:
            self.push(callback_id, json.dumps(acquire_answer(grant)))
        except Exception:  # noqa: BLE001 - the runner's own, of a callback that is over
            return Delivery.GONE
        return Delivery.DELIVERED

    def end_heartbeat(self, _task_token: str, _end: Released | NotHeld | LockLost) -> Delivery:
        raise NotImplementedError

    def describe(self, execution_arn: str) -> Execution:
        is_over = execution_arn in {arn_of(arn) for arn in self.over}
        return Execution(Liveness.OVER if is_over else Liveness.RUNNING)

    def _serve(self, name: str, request: Json, serve: Callable[[Json], Json]) -> Json:
        self.before(name, request)
        # What goes over the wire is JSON.
        request = json.loads(json.dumps(request))
        with self._mutex:
            self.calls.append((name, request["owner_id"]))
            self.requests.append(request)
            answer: Json = json.loads(json.dumps(serve(request)))
        self.after(name, request, answer)
        return answer

    def _acquire(self, request: Json) -> Json:
        return acquire_answer(self.store().acquire(parse_acquire(request)))

    def _release(self, request: Json) -> Json:
        return release_answer(self.store().release(parse_release(request)))


def unavailable(*_: object) -> None:
    """A service that does not answer."""
    message = "as a test wants it"
    raise LockStoreUnavailable(message)
