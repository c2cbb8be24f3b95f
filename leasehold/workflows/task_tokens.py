"""Tells a workflow through a task token: a waiter that it holds the lock now, a beat how it ends.

The table decides who holds a lock; a push only saves a workflow from asking. One that is lost
delays a waiter until its fallback poll, when it finds itself a holder, and the end of a beat until
the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from leasehold.dynamodb.retry import Sending
from leasehold.dynamodb.retry_budget import RetryBudget
from leasehold.errors import LockLost, LockStoreUnavailable
from leasehold.protocol.model import Grant
from leasehold.wire.answers import acquire_answer

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


class Delivery(Enum):
    """What became of a push."""

    DELIVERED = auto()
    GONE = auto()
    """Nobody waits with this token any more: the task timed out (and asks again), or is over."""
    UNKNOWN = auto()


Push = Callable[[str, Grant], Delivery]
"""From a task token and a grant to what became of it."""


def push_nothing(_task_token: str, _grant: Grant) -> Delivery:
    """For a caller that may not call Step Functions: the waiter finds out by its fallback poll."""
    return Delivery.UNKNOWN


EndHeartbeat = Callable[[str, LockLost | None], Delivery]
"""From a task token of keep_alive, and the loss if the lock was lost, to what became of it."""


def end_no_heartbeat(_task_token: str, _lost: LockLost | None) -> Delivery:
    """For a caller that may not call Step Functions: the next beat finds out."""
    return Delivery.UNKNOWN


def push_by_task_token(client: SFNClient, retry_budget: RetryBudget | None = None) -> Push:
    """A `Push` that completes the waiting task with the answer that acquire would have given."""

    def push(task_token: str, grant: Grant) -> Delivery:
        output = json.dumps(acquire_answer(grant), ensure_ascii=False)
        return _delivered(
            client,
            lambda: client.send_task_success(taskToken=task_token, output=output),
            retry_budget or RetryBudget(),
        )

    return push


def end_heartbeat_by_task_token(
    client: SFNClient, retry_budget: RetryBudget | None = None
) -> EndHeartbeat:
    """An `EndHeartbeat` that lets the beating task succeed, or fail with `LockLost`."""

    def end_heartbeat(task_token: str, lost: LockLost | None) -> Delivery:
        def send() -> object:
            if lost is None:
                return client.send_task_success(taskToken=task_token, output="{}")
            error = type(lost).__name__
            return client.send_task_failure(taskToken=task_token, error=error, cause=str(lost))

        return _delivered(client, send, retry_budget or RetryBudget())

    return end_heartbeat


def _delivered(
    client: SFNClient, send: Callable[[], object], retry_budget: RetryBudget
) -> Delivery:
    """Sends until Step Functions has time for it, or retry_budget ends."""
    sending = Sending(retry_budget)
    try:
        sending.patiently(send)
    except (
        client.exceptions.TaskDoesNotExist,
        client.exceptions.TaskTimedOut,
        client.exceptions.InvalidToken,
    ):
        # A token that was completed is gone, too: by a sending of ours whose reply was lost.
        return Delivery.UNKNOWN if sending.repeated else Delivery.GONE
    except (LockStoreUnavailable, ClientError, BotoCoreError):
        return Delivery.UNKNOWN
    return Delivery.DELIVERED
