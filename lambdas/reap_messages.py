"""The messages of the reap queue: events of Step Functions, and orders of the second pass."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from voluptuous import Invalid

from lambdas.runtime import send_message
from lambdas.telemetry import count, logger
from leasehold.errors import InvalidRequest
from leasehold.metrics import MetricName
from leasehold.protocol.model import ExecutionEnded
from leasehold.store.lock_store import LockStore
from leasehold.wire.rules import EXECUTION_ARN

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

_DIGITS: Final = re.compile("[0-9]{1,9}")


def reap_record(make_store: Callable[[], LockStore], record: SQSRecord) -> None:
    """Does what a message asks for, and orders the pass that comes after it."""
    ended = parse_reap_message(record.body)
    reaped = make_store().reap(ended)
    count(MetricName.REAPED, reaped.holders)
    count(MetricName.REAPED_WAITERS, reaped.waiters)
    found = {"holders": reaped.holders, "waiters": reaped.waiters}
    logger.info("reaped", extra={"execution_arn": ended.execution_arn, **found})
    schedule_next_pass(ended, complete=reaped.complete)


def parse_reap_message(body: str) -> ExecutionEnded:
    """What a message asks for.

    An event whose redrive count is missing, or no number, counts as one of the first run. Then
    `store.reap` takes a redriven execution for one that was redriven since, and spares what runs.

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
    """The redrive count of an event. No document says that the field is always there."""
    text = str(count)
    return int(text) if _DIGITS.fullmatch(text) else 0


def _checked(ended: ExecutionEnded) -> ExecutionEnded:
    types = (type(ended.execution_arn), type(ended.redrives), type(ended.second_pass))
    if types != (str, int, bool):
        raise TypeError
    EXECUTION_ARN(ended.execution_arn)
    return ended


def schedule_next_pass(ended: ExecutionEnded, *, complete: bool) -> None:
    """Orders what comes after this pass: the rest of it at once, or the second pass later."""
    if complete and ended.second_pass:
        return
    message = {
        "execution_arn": ended.execution_arn,
        "redrives": ended.redrives,
        "second_pass": ended.second_pass or complete,
    }
    delay_seconds = int(os.environ["LEASEHOLD_SECOND_PASS_SECONDS"]) if complete else 0
    send_message(os.environ["LEASEHOLD_REAP_QUEUE_URL"], json.dumps(message), delay_seconds)
