"""Tells a waiting workflow, through its task token, that it now holds the lock.

The table decides who holds a lock; a push only saves the waiter from asking. One that is lost
delays the waiter until its fallback poll, when it finds itself a holder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from leasehold.model import Grant
from leasehold.wire import acquire_answer

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


class Pushed(Enum):
    """What became of a push."""

    DELIVERED = auto()
    GONE = auto()
    """Nobody waits with this token any more: the task timed out (and asks again), or is over."""
    UNKNOWN = auto()


Push = Callable[[str, Grant], Pushed]
"""From a task token and a grant to what became of it."""


def push_nothing(_task_token: str, _grant: Grant) -> Pushed:
    """For a caller that may not call Step Functions: the waiter finds out by its fallback poll."""
    return Pushed.UNKNOWN


def push_by_task_token(client: SFNClient) -> Push:
    """A `Push` that completes the waiting task with the answer that acquire would have given."""
    gone = (
        client.exceptions.TaskDoesNotExist,
        client.exceptions.TaskTimedOut,
        client.exceptions.InvalidToken,
    )

    def push(task_token: str, grant: Grant) -> Pushed:
        output = json.dumps(acquire_answer(grant), ensure_ascii=False)
        try:
            client.send_task_success(taskToken=task_token, output=output)
        except gone:
            return Pushed.GONE
        except (ClientError, BotoCoreError):
            return Pushed.UNKNOWN
        return Pushed.DELIVERED

    return push
