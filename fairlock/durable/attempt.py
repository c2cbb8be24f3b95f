"""What a step asks the service, and what the execution records of the answer.

A step records plain values, never an exception: on replay the same values give the same way
through `acquisition`. What a repeat may cure is raised inside the step, which the SDK then repeats.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final, TypedDict

from aws_durable_execution_sdk_python import StepContext
from aws_durable_execution_sdk_python.config import Duration, StepConfig, StepSemantics
from aws_durable_execution_sdk_python.retries import RetryStrategyConfig, create_retry_strategy

from fairlock.durable.failures import text_of
from fairlock.durable.lock_functions import Json, LockRequests
from fairlock.errors import InvalidRequest, LockStoreMisconfigured

_PAUSES: Final = RetryStrategyConfig(
    max_attempts=8,
    initial_delay=Duration.from_seconds(1),
    max_delay=Duration.from_seconds(30),
)
REPEATED: Final = StepConfig(retry_strategy=create_retry_strategy(_PAUSES))
"""For a call whose repeats need not be counted."""
REPEATS_COUNTED: Final = StepConfig(
    retry_strategy=create_retry_strategy(_PAUSES),
    step_semantics=StepSemantics.AT_MOST_ONCE_PER_RETRY,
)
"""For a call that must know whether it is a repeat: an interrupted call counts as an attempt."""


class Failure(TypedDict):
    """An error that a repeat does not cure: its class name and its text, `failures.text_of`."""

    kind: str
    message: str


class Answer(TypedDict, total=False):
    """What is recorded of an answer to acquire.

    Attributes:
        fencing_token: of the grant; None if there is none yet.
        reason: why there is no grant.
        is_repeat: whether an earlier call was sent whose outcome is unknown: it may be granted yet.
        holders: the labels of those who had the lock.
        left_seconds: until the longest wait is over, by the clock of the step.
        failure: the call can never succeed.
    """

    fencing_token: int | None
    reason: str
    is_repeat: bool
    holders: list[str]
    left_seconds: float
    failure: Failure


class Departure(TypedDict, total=False):
    """What is recorded of an answer to release.

    Attributes:
        released: whether the service says so.
        is_repeat: whether an earlier call may have done it.
        failure: the call can never succeed.
    """

    released: bool
    is_repeat: bool
    failure: Failure


def ask(
    service: LockRequests, request: Json, *, deadline: float, is_first: bool
) -> Callable[[StepContext], Answer]:
    """The step that asks for the lock. After the deadline only the first call still asks.

    Args:
        service: the lock service.
        request: to the function `acquire`.
        deadline: end of the longest wait, in seconds since the epoch.
        is_first: whether this acquisition has not asked before.
    """

    def step(context: StepContext) -> Answer:
        if time.time() >= deadline and not (is_first and context.attempt == 1):
            return Answer(fencing_token=None, reason="TOO_LATE", is_repeat=True, left_seconds=0.0)
        try:
            answer = service.acquire(request)
        except (InvalidRequest, LockStoreMisconfigured) as error:
            return Answer(failure=_recorded(error))
        if answer["acquired"]:
            return Answer(fencing_token=answer["fencing_token"])
        return Answer(
            fencing_token=None,
            reason=answer["reason"],
            is_repeat=context.attempt > 1,
            holders=[holder["owner_name"] for holder in answer["holders"]],
            left_seconds=deadline - time.time(),
        )

    return step


def read_push(pushed: str | None, *, lock_name: str, owner_id: str) -> Answer | None:
    """The grant that came through the callback; None if it is not one for this acquisition.

    Everybody who knows the callback's id can complete it.
    """
    try:
        answer: Any = json.loads(pushed or "")
        is_mine = (answer["lock_name"], answer["owner_id"]) == (lock_name, owner_id)
        if not is_mine or answer["acquired"] is not True:
            return None
        return Answer(fencing_token=int(answer["fencing_token"]))
    except (ValueError, TypeError, KeyError):
        return None


def release(service: LockRequests, request: Json) -> Callable[[StepContext], Departure]:
    """The step that gives the lock back, or leaves the queue."""

    def step(context: StepContext) -> Departure:
        try:
            answer = service.release(request)
        except (InvalidRequest, LockStoreMisconfigured) as error:
            return Departure(failure=_recorded(error))
        return Departure(released=answer["released"], is_repeat=context.attempt > 1)

    return step


def _recorded(error: Exception) -> Failure:
    return Failure(kind=type(error).__name__, message=text_of(error))
