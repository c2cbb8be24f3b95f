"""AWS's own local runner, with the calls of boto3's Lambda client in front of it.

One execution at a time: a runner invokes in the thread of its timers. Repaired: release 1.2.1 loses
the details of each InvocationCompleted when it numbers the events, and so every history would
differ, whatever else is in it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aws_durable_execution_sdk_python.lambda_service import ErrorObject
from aws_durable_execution_sdk_python_testing.exceptions import AwsApiException
from aws_durable_execution_sdk_python_testing.executor import Executor
from aws_durable_execution_sdk_python_testing.model import Event
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner
from botocore.exceptions import ClientError

from testbed.conformance.engine import LONGEST_SECONDS, event_of
from testbed.conformance.handlers import handler
from testbed.conformance.handlers.case import ProcessDiedError


class LocalRunner:
    """The `Engine` for one execution."""

    def __init__(self, runner: DurableFunctionTestRunner) -> None:
        self._runner = runner
        self.client = _Client(runner._executor)  # noqa: SLF001 - the runner's histories have no public way

    def start(
        self, requirement: str, value: Any, notes: Path, *, longest: int = LONGEST_SECONDS
    ) -> str:
        """Starts an execution of a requirement's handler, which times out; answers its ARN."""
        arn: str = self._runner.run_async(
            input=json.dumps(event_of(requirement, value, notes)), timeout=longest
        )
        return arn


@contextmanager
def local_runner() -> Iterator[LocalRunner]:
    """A runner that ends with the block."""
    Event.from_event_with_id = _numbered  # type: ignore[method-assign]
    with DurableFunctionTestRunner(_survive) as runner:
        yield LocalRunner(runner)


def _numbered(event: Event, event_id: int) -> Event:
    return dataclasses.replace(event, event_id=event_id)


def _survive(event: Any, context: Any) -> Any:
    """The handler shares the runner's process, so its death is told as an error."""
    try:
        return handler(event, context)
    except ProcessDiedError as death:
        message = "Runtime.ExitError"
        raise RuntimeError(message) from death


class _Client:
    """The calls of boto3's Lambda client that AWS's package and ours use."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def get_durable_execution(self, *, DurableExecutionArn: str) -> Any:  # noqa: N803 - boto3's
        return _answered(lambda: self._executor.get_execution_details(DurableExecutionArn))

    def get_durable_execution_history(
        self,
        *,
        DurableExecutionArn: str,  # noqa: N803 - same
        IncludeExecutionData: bool,  # noqa: N803 - same
    ) -> Any:
        return _answered(
            lambda: self._executor.get_execution_history(
                DurableExecutionArn, include_execution_data=IncludeExecutionData
            )
        )

    def stop_durable_execution(self, *, DurableExecutionArn: str) -> Any:  # noqa: N803 - same
        return _answered(lambda: self._executor.stop_execution(DurableExecutionArn))

    def send_durable_execution_callback_success(
        self,
        *,
        CallbackId: str,  # noqa: N803 - same
        Result: bytes | None = None,  # noqa: N803 - same
    ) -> Any:
        return _answered(lambda: self._executor.send_callback_success(CallbackId, Result))

    def send_durable_execution_callback_failure(
        self,
        *,
        CallbackId: str,  # noqa: N803 - same
        Error: Any = None,  # noqa: N803 - same
    ) -> Any:
        error = None if Error is None else ErrorObject.from_dict(Error)
        return _answered(lambda: self._executor.send_callback_failure(CallbackId, error))

    def send_durable_execution_callback_heartbeat(self, *, CallbackId: str) -> Any:  # noqa: N803 - same
        return _answered(lambda: self._executor.send_callback_heartbeat(CallbackId))


def _answered(call: Callable[[], Any]) -> Any:
    """What boto3 would return or raise."""
    try:
        answer = call()
    except AwsApiException as error:
        told = {"Error": {"Code": type(error).__name__, "Message": str(error)}}
        raise ClientError(told, "") from error  # type: ignore[arg-type]
    return answer.to_dict() if hasattr(answer, "to_dict") else {}
