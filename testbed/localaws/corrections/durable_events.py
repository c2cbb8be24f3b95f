"""The status of a durable execution is reported to EventBridge.

AWS (Lambda developer guide, "Monitoring durable functions"): an event *Durable Execution Status
Change* from `aws.lambda` whenever an execution starts, succeeds, fails, times out or is stopped,
with durableExecutionArn, durableExecutionName, functionArn, status, startTimestamp and, of an
ended one, endTimestamp.

Emulator: no event.

This: sends it after each change of the status.
"""

import functools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ministack.services import eventbridge, lambda_durable

_DETAIL_TYPE = "Durable Execution Status Change"


def apply() -> None:
    """Report every change."""
    _wrap_start()
    _wrap_end("mark_execution_completed", lambda_durable._executions.get)
    _wrap_end("_time_out_execution", lambda record: record)
    _wrap_end(
        "handle_stop",
        lambda path: lambda_durable._executions.get(lambda_durable._parse_execution_arn(path)),
    )


def _wrap_start() -> None:
    original = lambda_durable.create_execution_for_invoke

    @functools.wraps(original)
    def create(*arguments: Any, **named: Any) -> Any:
        record = original(*arguments, **named)
        _report(record)
        return record

    lambda_durable.create_execution_for_invoke = create


def _wrap_end(name: str, record_of: Callable[[Any], Any]) -> None:
    original = getattr(lambda_durable, name)

    @functools.wraps(original)
    def end(which: Any, *arguments: Any, **named: Any) -> Any:
        record = record_of(which)
        before = None if record is None else record["Status"]
        answer = original(which, *arguments, **named)
        if record is not None and record["Status"] != before:
            _report(record)
        return answer

    setattr(lambda_durable, name, end)


def _report(record: dict[str, Any]) -> None:
    detail = {
        "durableExecutionArn": record["DurableExecutionArn"],
        "durableExecutionName": record["DurableExecutionName"],
        "functionArn": f"{record['FunctionArn']}:{record['Version']}",
        "status": record["Status"],
        "startTimestamp": _iso(record["StartTimestamp"]),
    }
    if record["EndTimestamp"] is not None:
        detail["endTimestamp"] = _iso(record["EndTimestamp"])
    entry = {"Source": "aws.lambda", "DetailType": _DETAIL_TYPE, "Detail": json.dumps(detail)}
    eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def _iso(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
