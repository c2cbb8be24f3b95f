"""Sends a message to an execution, and tells what became of it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.dynamodb.failures import error_code
from fairlock.dynamodb.retry import RepeatedRequest, RetryBudget
from fairlock.errors import LockStoreUnavailable
from fairlock.workflows.engine import Delivery


def deliver(
    send: Callable[[], object], *, gone: Collection[str], retry_budget: RetryBudget
) -> Delivery:
    """Sends a message, again while the service is too busy for it. Does not raise.

    Args:
        send: one sending.
        gone: codes of the errors that say that nobody waits for the message.
        retry_budget: how long to repeat.
    """
    message = RepeatedRequest(retry_budget)
    try:
        message.send(send)
    except (LockStoreUnavailable, ClientError, BotoCoreError) as error:
        # A first sending whose reply was lost may have been taken: then nobody waits any more.
        is_gone = error_code(error) in gone and not message.repeated
        return Delivery.GONE if is_gone else Delivery.UNKNOWN
    return Delivery.DELIVERED
