"""One run of one requirement, as its handler sees it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from aws_durable_execution_sdk_python import BatchResult, DurableContext
from aws_durable_execution_sdk_python.config import Duration, JitterStrategy, StepConfig
from aws_durable_execution_sdk_python.retries import (
    RetryDecision,
    RetryStrategyConfig,
    create_retry_strategy,
)

_CHECKPOINT_SECONDS: Final = 1
"""The SDK writes the start of a step while the step already runs."""


class ProcessDiedError(BaseException):
    """Stands for the death of the process where the runner shares it."""


@dataclass(frozen=True)
class Case:
    """What a handler is given.

    Attributes:
        context: the durable function's.
        input: the requirement's Input.
        notes: a directory of this run, for what must outlast an invocation.
    """

    context: DurableContext
    input: Any
    notes: Path

    def is_first(self, what: str) -> bool:
        """Whether no one asked this before, in any invocation of this run."""
        try:
            (self.notes / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def log(self, text: str) -> None:
        """Writes a line to the log of this run, on replays too."""
        with (self.notes / "log").open("a") as lines:
            lines.write(json.dumps({"message": text}) + "\n")

    def logger(self) -> logging.Logger:
        """A logger that the SDK silences on replays."""
        logger = logging.Logger("requirement", logging.INFO)  # noqa: LOG001 - one of this run alone
        logger.addHandler(_LogFile(self))
        return logger

    def die(self) -> NoReturn:
        """Ends the process of the function, as `kill -9` does, when its checkpoints are written."""
        time.sleep(_CHECKPOINT_SECONDS)
        if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
            os._exit(1)
        raise ProcessDiedError


class _LogFile(logging.Handler):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self._case = case

    def emit(self, record: logging.LogRecord) -> None:
        self._case.log(f"[{record.levelname}] {record.getMessage()}")


Handler = Callable[[Case], Any]
HANDLERS: Final[dict[str, Handler]] = {}
"""By requirement, like 1-1."""


def requirement(name: str) -> Callable[[Handler], Handler]:
    """Says which requirement a handler is for."""

    def register(handler: Handler) -> Handler:
        assert name not in HANDLERS, name  # noqa: S101 - a slip of ours
        HANDLERS[name] = handler
        return handler

    return register


def seconds(number: int) -> Duration:
    """A span of time."""
    return Duration.from_seconds(number)


NEVER_REPEATED: Final = StepConfig(retry_strategy=lambda _error, _attempt: RetryDecision.no_retry())


def tried(attempts: int, **more: Any) -> StepConfig:
    """A step that is tried that often, a second apart unless `more` of RetryStrategyConfig says."""
    settings: dict[str, Any] = {
        "max_attempts": attempts,
        "initial_delay": seconds(1),
        "backoff_rate": 1,
        "jitter_strategy": JitterStrategy.NONE,
    }
    return StepConfig(
        retry_strategy=create_retry_strategy(RetryStrategyConfig(**{**settings, **more}))
    )


def fail(*_: object) -> NoReturn:
    """A body that always fails."""
    message = "as the requirement wants"
    raise ValueError(message)


def told(batch: BatchResult[Any], *fields: str) -> dict[str, Any]:
    """Of a batch, what the requirements call by these names."""
    all_fields = {
        "completionReason": batch.completion_reason.value,
        "status": batch.status.value,
        "successCount": batch.success_count,
        "failureCount": batch.failure_count,
        "totalCount": batch.total_count,
    }
    return {name: all_fields[name] for name in fields or all_fields}


WITHOUT_STATUS: Final = ("completionReason", "successCount", "failureCount", "totalCount")
