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

from leasehold.errors import LockLost, LockStoreUnavailable
from leasehold.model import Grant
from leasehold.patience import Patience
from leasehold.sending import Sending
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


EndBeat = Callable[[str, LockLost | None], Pushed]
"""From a task token of keep_alive, and the loss if the lock was lost, to what became of it."""


def end_no_beat(_task_token: str, _lost: LockLost | None) -> Pushed:
    """For a caller that may not call Step Functions: the next beat finds out."""
    return Pushed.UNKNOWN


def push_by_task_token(client: SFNClient, patience: Patience | None = None) -> Push:
    """A `Push` that completes the waiting task with the answer that acquire would have given."""

    def push(task_token: str, grant: Grant) -> Pushed:
        output = json.dumps(acquire_answer(grant), ensure_ascii=False)
        return _delivered(
            client,
            lambda: client.send_task_success(taskToken=task_token, output=output),
            patience or Patience(),
        )

    return push


def end_beat_by_task_token(client: SFNClient, patience: Patience | None = None) -> EndBeat:
    """An `EndBeat` that lets the beating task succeed, or fail with `LockLost`."""

    def end_beat(task_token: str, lost: LockLost | None) -> Pushed:
        def send() -> object:
            if lost is None:
                return client.send_task_success(taskToken=task_token, output="{}")
            error = type(lost).__name__
            return client.send_task_failure(taskToken=task_token, error=error, cause=str(lost))

        return _delivered(client, send, patience or Patience())

    return end_beat


def _delivered(client: SFNClient, send: Callable[[], object], patience: Patience) -> Pushed:
    """Sends until Step Functions has time for it, or patience ends."""
    sending = Sending(patience)
    try:
        sending.patiently(send)
    except (
        client.exceptions.TaskDoesNotExist,
        client.exceptions.TaskTimedOut,
        client.exceptions.InvalidToken,
    ):
        # A token that was completed is gone, too: by a sending of ours whose reply was lost.
        return Pushed.UNKNOWN if sending.repeated else Pushed.GONE
    except (LockStoreUnavailable, ClientError, BotoCoreError):
        return Pushed.UNKNOWN
    return Pushed.DELIVERED
