"""The messages of the reap queue: events of Step Functions, and second looks."""

from __future__ import annotations

import json
import os
from typing import Any

from lambdas._runtime import send_message
from leasehold.errors import InvalidRequest
from leasehold.model import ExecutionEnded


def parse_look(body: str) -> ExecutionEnded:
    """What a message asks for.

    Raises:
        InvalidRequest: it is neither kind of message.
    """
    try:
        message: Any = json.loads(body)
        if "second_look" in message:
            return _checked(ExecutionEnded(**message))
        detail = message["detail"]
        redrives = int(detail.get("redriveCount") or 0)  # The rule makes a text of the number.
        return _checked(ExecutionEnded(execution_arn=detail["executionArn"], redrives=redrives))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        rule = "must be an Execution Status Change event of Step Functions"
        raise InvalidRequest(field="message", rule=rule, value=body) from error


def _checked(ended: ExecutionEnded) -> ExecutionEnded:
    types = (type(ended.execution_arn), type(ended.redrives), type(ended.second_look))
    if types != (str, int, bool):
        raise TypeError
    return ended


def look_again(ended: ExecutionEnded, *, complete: bool) -> None:
    """Asks for the look that comes after this one: the rest at once, or the second look later."""
    if complete and ended.second_look:
        return
    message = {
        "execution_arn": ended.execution_arn,
        "redrives": ended.redrives,
        "second_look": ended.second_look or complete,
    }
    delay_seconds = int(os.environ["LEASEHOLD_SECOND_LOOK_SECONDS"]) if complete else 0
    send_message(os.environ["LEASEHOLD_REAP_QUEUE_URL"], json.dumps(message), delay_seconds)
