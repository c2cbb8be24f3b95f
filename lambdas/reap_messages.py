"""The messages of the reap queue: events of Step Functions, and second looks."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Final

from voluptuous import Invalid

from lambdas.runtime import send_message
from leasehold.errors import InvalidRequest
from leasehold.protocol.model import ExecutionEnded
from leasehold.wire.rules import EXECUTION_ARN

_DIGITS: Final = re.compile("[0-9]{1,9}")


def parse_reap_message(body: str) -> ExecutionEnded:
    """What a message asks for.

    An event whose redrive count is missing, or no number, counts as one of the first run. Then an
    execution that was redriven counts as redriven since: see `store.reap`, which is careful.

    Raises:
        InvalidRequest: it is neither kind of message, or names no execution.
    """
    try:
        message: Any = json.loads(body)
        if "second_pass" in message:
            return _checked(ExecutionEnded(**message))
        detail = message["detail"]
        redrives = _redrives(detail.get("redriveCount"))
        return _checked(ExecutionEnded(execution_arn=detail["executionArn"], redrives=redrives))
    except (ValueError, TypeError, KeyError, AttributeError, Invalid) as error:
        rule = "must be an Execution Status Change event of Step Functions"
        raise InvalidRequest(field="message", rule=rule, value=body) from error


def _redrives(count: object) -> int:
    """No document says that the event has this field. The rule makes a text of what is there."""
    text = str(count)
    return int(text) if _DIGITS.fullmatch(text) else 0


def _checked(ended: ExecutionEnded) -> ExecutionEnded:
    types = (type(ended.execution_arn), type(ended.redrives), type(ended.second_pass))
    if types != (str, int, bool):
        raise TypeError
    EXECUTION_ARN(ended.execution_arn)
    return ended


def schedule_next_pass(ended: ExecutionEnded, *, complete: bool) -> None:
    """Asks for the look that comes after this one: the rest at once, or the second look later."""
    if complete and ended.second_pass:
        return
    message = {
        "execution_arn": ended.execution_arn,
        "redrives": ended.redrives,
        "second_pass": ended.second_pass or complete,
    }
    delay_seconds = int(os.environ["LEASEHOLD_SECOND_PASS_SECONDS"]) if complete else 0
    send_message(os.environ["LEASEHOLD_REAP_QUEUE_URL"], json.dumps(message), delay_seconds)
