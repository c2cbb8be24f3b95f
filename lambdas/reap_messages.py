"""The messages of the reap queue: events of executions, and orders of the reaper to itself.

An event is a permanent truth about one run of an execution, so what that run has claimed is freed
unasked; about all else its engine is asked. Only the service's rules and this function may send.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from fairlock.errors import InvalidRequest, LockStoreUnavailable
from fairlock.names import REAP_QUEUE_VARIABLE, LogMessage, MetricName
from fairlock.protocol.claims import SECOND_PASS_MS
from fairlock.store.reap import AskedTooEarly, ExecutionEnded, reap
from fairlock.wire.rules import EXECUTION_ARN, LATEST_EPOCH_MS, is_durable, require
from lambdas.runtime import count, hide_message, logger, send_message

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

    from fairlock.store.context import LockContext

MOST_ROUNDS: Final = 1_000
"""How often the reaper sends itself the rest of one pass, at 200 claims or more each. AWS's own
bound of such loops, about 16, is switched off for the reaper."""
_LONGEST_PAUSE_SECONDS: Final = 120
_DIGITS: Final = re.compile("[0-9]{1,15}")
_ENDS: Final = ("FAILED", "TIMED_OUT", "ABORTED", "STOPPED")
_LARGEST_COUNT: Final = 10**9


@dataclass(frozen=True, slots=True)
class ReapMessage:
    """An execution to look at, and how often the reaper has sent itself the rest of this pass."""

    ended: ExecutionEnded
    rounds: int = 0


def reap_record(make_context: Callable[[], LockContext], record: SQSRecord) -> None:
    """Does what a message asks for, and orders the pass that comes after it."""
    message = parse_reap_message(record.body)
    try:
        reaped = reap(make_context(), message.ended)
    except AskedTooEarly:
        tries = int(record.attributes.approximate_receive_count)
        pause_seconds = min(2**tries, _LONGEST_PAUSE_SECONDS)
        hide_message(os.environ[REAP_QUEUE_VARIABLE], record.receipt_handle, pause_seconds)
        raise
    count(MetricName.REAPED, reaped.holders)
    count(MetricName.REAPED_WAITERS, reaped.waiters)
    found = {"holders": reaped.holders, "waiters": reaped.waiters}
    logger.info(LogMessage.REAPED, extra={"execution_arn": message.ended.execution_arn, **found})
    schedule_next_pass(message, complete=reaped.complete)


def parse_reap_message(body: str) -> ReapMessage:
    """What a message asks for; `InvalidRequest` if it is neither kind, or names no execution.

    An event whose redrive count is missing, or no number, counts as one of the first run, whose end
    is not known: then `store.reap` asks, and spares what runs.
    """
    try:
        message: Any = json.loads(body)
        if "second_pass" in message:
            rounds = _checked_count(message.pop("rounds", 0))
            return ReapMessage(_checked(ExecutionEnded(**message)), rounds)
        return ReapMessage(_checked(_of_event(message["detail"])))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidRequest):
        rule = "must be an Execution Status Change event of Step Functions"
        # The body may hold the input of an execution, and so may the text of what failed.
        raise InvalidRequest(field="message", rule=rule, value=body, show_text=False) from None


def _of_event(detail: dict[str, Any]) -> ExecutionEnded:
    """What an event tells. No document says that its redrive count is always there."""
    arn, stopped = detail["executionArn"], _number(detail.get("stopDate"))
    redrives = 0 if is_durable(str(arn)) else _number(detail.get("redriveCount"))
    if isinstance(detail.get("stopDate"), str) and stopped is None:
        stopped = _time_ms(detail["stopDate"])
    known = redrives is not None and detail.get("status") in _ENDS
    return ExecutionEnded(
        execution_arn=arn, redrives=redrives or 0, ended_at_ms=stopped if known else None
    )


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if _DIGITS.fullmatch(text) else None


def _time_ms(text: str) -> int | None:
    """The time of an event of Lambda, which is text."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _checked(ended: ExecutionEnded) -> ExecutionEnded:
    require("execution_arn", EXECUTION_ARN, ended.execution_arn)
    _checked_count(ended.redrives)
    if ended.ended_at_ms is not None:
        _checked_count(ended.ended_at_ms, below=LATEST_EPOCH_MS)
    if type(ended.second_pass) is not bool:
        raise TypeError
    return ended


def _checked_count(value: object, *, below: int = _LARGEST_COUNT) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError
    return value


def schedule_next_pass(message: ReapMessage, *, complete: bool) -> None:
    """Orders the rest of this pass at once, or the second pass later; raises after MOST_ROUNDS."""
    ended = message.ended
    if complete and ended.second_pass:
        return
    if not complete and message.rounds >= MOST_ROUNDS:
        reason = (
            f"execution {ended.execution_arn}: still not all is freed after {MOST_ROUNDS} rounds"
        )
        raise LockStoreUnavailable(reason)
    order = {
        "execution_arn": ended.execution_arn,
        "redrives": ended.redrives,
        "second_pass": ended.second_pass or complete,
        "rounds": 0 if complete else message.rounds + 1,
    }
    if ended.ended_at_ms is not None:
        order["ended_at_ms"] = ended.ended_at_ms
    delay_seconds = SECOND_PASS_MS // 1000 if complete else 0
    send_message(os.environ[REAP_QUEUE_VARIABLE], json.dumps(order), delay_seconds)
