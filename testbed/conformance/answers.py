"""What AWS's requirements do not ask, and Fairlock needs: ends, and callbacks no one waits for.

Both engines are asked. No one can say which is right where they differ, so a table shows what each
answers, and what Fairlock makes of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

from testbed.conformance.engine import LONGEST_SECONDS, Engine

_BOUND_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.05
_ACCEPTED: Final = "accepted"


@dataclass(frozen=True)
class Run:
    """An execution that waits for its first callback.

    Attributes:
        engine: where it runs.
        arn: which it is.
        callback_id: its first callback's.
    """

    engine: Engine
    arn: str
    callback_id: str

    def end(self) -> str:
        """How it ended: the status, and the event of the execution."""
        _until(lambda: self._status() != "RUNNING")
        kinds = [each["EventType"] for each in events(self.engine, self.arn)]
        return f"{self._status()}, {[kind for kind in kinds if kind.startswith('Execution')][-1]}"

    def stop(self) -> str:
        """What StopDurableExecution answers."""
        return _answer(
            lambda: self.engine.client.stop_durable_execution(DurableExecutionArn=self.arn)
        )

    def complete(self) -> str:
        """What is answered to someone who completes the callback."""
        return complete(self.engine, self.callback_id)

    def time_out(self) -> None:
        """Waits until the callback has timed out."""
        _until(
            lambda: any("TimedOut" in each["EventType"] for each in events(self.engine, self.arn))
        )

    def _status(self) -> str:
        found = self.engine.client.get_durable_execution(DurableExecutionArn=self.arn)
        return str(found["Status"])


Start = Callable[..., Run]


def starter(engine: Engine, notes: Path) -> Start:
    """Starts executions on the engine."""

    def start(*, longest: int = LONGEST_SECONDS, callback_seconds: int = 600) -> Run:
        value = {"callback_seconds": callback_seconds}
        arn = engine.start("waits", value, notes, longest=longest)
        _until(lambda: _callbacks(engine, arn) != [])
        return Run(engine, arn, _callbacks(engine, arn)[0])

    return start


def events(engine: Engine, arn: str) -> list[Any]:
    """The history of an execution."""
    answer = engine.client.get_durable_execution_history(
        DurableExecutionArn=arn, IncludeExecutionData=True
    )
    return list(answer["Events"])


def complete(engine: Engine, callback_id: str) -> str:
    """What is answered to someone who completes a callback."""
    return _answer(
        lambda: engine.client.send_durable_execution_callback_success(
            CallbackId=callback_id, Result=b"{}"
        )
    )


def _callbacks(engine: Engine, arn: str) -> list[str]:
    return [
        str(each["CallbackStartedDetails"]["CallbackId"])
        for each in events(engine, arn)
        if each["EventType"] == "CallbackStarted"
    ]


def _answer(call: Callable[[], object]) -> str:
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return _ACCEPTED


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _BOUND_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_BOUND_SECONDS} s")
        time.sleep(_PAUSE_SECONDS)
