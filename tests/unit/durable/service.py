"""A lock service in this process, and durable functions on AWS's local runner beside it."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.exceptions import CheckpointError
from aws_durable_execution_sdk_python_testing.executor import Executor
from aws_durable_execution_sdk_python_testing.runner import (
    DurableFunctionTestResult,
    DurableFunctionTestRunner,
)
from aws_durable_execution_sdk_python_testing.scheduler import Scheduler

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.lock_table import LockTable
from fairlock.clock import Clock, SystemClock
from fairlock.durable import hold
from fairlock.durable.holding import options_of
from fairlock.errors import LockLost
from fairlock.protocol.model import Grant, LockState
from fairlock.protocol.outcomes import NotHeld, Refusal, Released
from fairlock.store.context import LockContext
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import acquire_answer, release_answer
from fairlock.wire.requests import parse_acquire, parse_release
from fairlock.wire.rules import callback_id_in
from tests.support import TABLE, Operations, acquire, moved_clock, release

Json = dict[str, Any]
LOCK = "customer/42"
MINUTE = timedelta(minutes=1)
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:billing:1/durable-execution"


def arn_of(local_arn: str) -> str:
    """The local runner's executions have no real ARN."""
    return local_arn if local_arn.startswith("arn:") else f"{FUNCTION}/{local_arn}"


@dataclass
class Service:
    """The functions acquire and release, over a table in memory.

    Attributes:
        push: completes a callback with a text; None loses all pushes.
        calls: the names of the functions that were called, with their requests.
        before: called before each call, and after it with its answer; may raise.
    """

    push: Callable[[str, str], None] | None = None
    table: MemoryTable = field(default_factory=MemoryTable)
    clock: Clock = field(default_factory=SystemClock)
    calls: list[tuple[str, Json]] = field(default_factory=list)
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

    def take(self, name: str, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
        """Another owner acquires the lock, and does not wait."""
        self.store().acquire(acquire(name, lock_name=LOCK, **fields))

    def free(self, name: str) -> None:
        """Another owner releases it."""
        self.store().release(release(name, lock_name=LOCK))

    def called(self) -> list[str]:
        """The names of the functions that were called."""
        return [name for name, _ in self.calls]

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

    def describe(self, _execution_arn: str) -> Execution:
        return Execution(Liveness.RUNNING)

    def _serve(self, name: str, request: Json, serve: Callable[[Json], Json]) -> Json:
        self.before(name, request)
        # What goes over the wire is JSON.
        request = json.loads(json.dumps(request))
        with self._mutex:
            self.calls.append((name, request))
            answer: Json = json.loads(json.dumps(serve(request)))
        self.after(name, request, answer)
        return answer

    def _acquire(self, request: Json) -> Json:
        return acquire_answer(self.store().acquire(parse_acquire(request)))

    def _release(self, request: Json) -> Json:
        return release_answer(self.store().release(parse_release(request)))


def fails(operation: str, error: Exception, at: Container[int] = range(99)) -> Callable[..., None]:
    """Raises an error at these calls of an operation, counted from 0."""
    numbers = itertools.count()

    def fail(name: str, *_: object) -> None:
        if name == operation and next(numbers) in at:
            raise error

    return fail


UNASKED = Service()


def options(**given: Any) -> Any:  # noqa: ANN401 - of `hold`
    """What `hold` makes of its arguments."""
    good = {"name": "a", "limit": 1, "lease": MINUTE, "max_wait": MINUTE, "max_hold": 60 * MINUTE}
    others = {"data": None, "fallback": None, "shared": False, "service": UNASKED}
    return options_of(**{**good, **others, **given})


# AWS's local runner, with a hand that kills functions.

Body = Callable[[Any, DurableContext], Any]
LONGEST_SECONDS = 60
QUICK = 0.01
"""The time scale of tests in which nothing takes long on purpose."""


@dataclass
class Killer:
    """Kills the function at one of its checkpoints, as Lambda does when a sandbox dies.

    Attributes:
        at: the number of the checkpoint, counted from 0; None kills no one.
        is_written: whether the checkpoint was written before.
        seen: what each checkpoint wrote, as `name action`.
    """

    at: int | None = None
    is_written: bool = False
    seen: list[str] = field(default_factory=list)

    def checkpoint(self, write: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the runner's
        updates = named.get("updates") or arguments[2]
        texts = [f"{update.name} {update.action.value}" for update in updates]
        is_victim = self.at == len(self.seen)
        self.seen.append(", ".join(texts))
        if is_victim and not self.is_written:
            message = "killed"
            raise CheckpointError(message)
        answer = write(*arguments, **named)
        if is_victim:
            message = "killed"
            raise CheckpointError(message)
        return answer


@dataclass
class Executions:
    """Durable executions of one function, and the service that they use."""

    runner: DurableFunctionTestRunner
    service: Service
    killer: Killer
    invocations: list[Any]
    time_scale: float

    def start(self, event: Any) -> str:  # noqa: ANN401 - JSON
        timeout = round(LONGEST_SECONDS / self.time_scale)
        arn: str = self.runner.run_async(
            input=json.dumps(event), timeout=timeout, execution_name=f"run-{event}"
        )
        return arn

    def end(self, arn: str) -> DurableFunctionTestResult:
        return self.runner.wait_for_result(arn, timeout=LONGEST_SECONDS)

    def run(self, event: Any) -> DurableFunctionTestResult:  # noqa: ANN401 - same
        return self.end(self.start(event))


@contextmanager
def executions_of(
    body: Body,
    service: Service | None = None,
    killer: Killer | None = None,
    *,
    time_scale: float = 1.0,
) -> Iterator[Executions]:
    """Runs the body as a durable function.

    Args:
        body: the function.
        service: whom it asks for locks.
        killer: what dies when.
        time_scale: how long the runner takes for a second of waits, timeouts and pauses.
    """
    service, killer = service or Service(), killer or Killer()
    invocations: list[Any] = []

    def handle(event: Any, context: DurableContext) -> Any:  # noqa: ANN401 - same
        invocations.append(event)
        return body(event, context)

    with (
        pytest.MonkeyPatch.context() as patch,
        DurableFunctionTestRunner(durable_execution(handle)) as runner,
    ):
        patch.setattr(Executor, "RETRY_BACKOFF_SECONDS", 0.01 / time_scale)
        call_later = Scheduler.call_later

        def call_soon(self: Scheduler, call: Any, delay: float = 0, **more: Any) -> Any:  # noqa: ANN401 - the runner's
            return call_later(self, call, delay * time_scale, **more)

        patch.setattr(Scheduler, "call_later", call_soon)
        client = runner._service_client  # noqa: SLF001 - same
        write = client.checkpoint
        patch.setattr(client, "checkpoint", lambda *a, **n: killer.checkpoint(write, *a, **n))
        if service.push is None:
            service.push = lambda callback, text: runner.send_callback_success(
                callback, text.encode()
            )
        try:
            yield Executions(runner, service, killer, invocations, time_scale)
        finally:
            runner.close()
            _close(runner._scheduler._loop)  # noqa: SLF001 - the runner leaves it open


def nothing(_context: DurableContext, _lock: object) -> None:
    """What a durable function does under its lock."""


def holding(service: Service, work: Callable[..., Any] = nothing, **options: Any) -> Body:  # noqa: ANN401 - of `hold`
    """A durable function that holds the lock; its work is called with the context and the lock."""

    def body(_event: object, context: DurableContext) -> Any:  # noqa: ANN401 - of the work
        with hold(context, LOCK, service=service, **options) as lock:
            return work(context, lock)

    return body


def result_of(body: Body, service: Service | None = None) -> DurableFunctionTestResult:
    """What one execution of the body ends with."""
    with executions_of(body, service, time_scale=QUICK) as executions:
        return executions.run("a")


def error_of(body: Body, service: Service | None = None) -> tuple[str, str]:
    """Class and text of the error by which the execution failed."""
    error = result_of(body, service).error
    assert error is not None
    return str(error.type), str(error.message)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Lets what the runner has cancelled end, and frees the sockets of its loop."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
