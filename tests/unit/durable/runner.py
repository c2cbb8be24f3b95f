"""AWS's local runner with a lock service beside it, and a hand that kills functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.exceptions import CheckpointError
from aws_durable_execution_sdk_python.lambda_service import ErrorObject
from aws_durable_execution_sdk_python_testing.executor import Executor
from aws_durable_execution_sdk_python_testing.runner import (
    DurableFunctionTestResult,
    DurableFunctionTestRunner,
)
from aws_durable_execution_sdk_python_testing.scheduler import Scheduler

from tests.unit.durable.service import Service

Body = Callable[[Any, DurableContext], Any]
LONGEST_SECONDS = 60
LOCK = "customer/42"
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

    def stop(self, arn: str) -> None:
        self.runner._executor.stop_execution(arn, ErrorObject.from_message("stopped"))  # noqa: SLF001 - the runner has no public way


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
