"""EventBridge delivers to Lambda as an asynchronous invocation; Scheduler fires on the second.

AWS: a Lambda target is invoked asynchronously, so a failing function is tried twice more and then
its dead-letter queue or failure destination gets the event (Lambda developer guide, "Error
handling for asynchronous invocation"). EventBridge Scheduler fires within the minute it was asked
for.

Emulator: a Lambda target is invoked once and its failure forgotten; Scheduler runs every ten
seconds.

This: the emulator's own asynchronous invocation is used, and Scheduler runs every second.
Retries and dead-letter queues of the *rule* are still missing.
"""

import json
import logging
from typing import Any

from ministack.services import eventbridge, lambda_svc, scheduler

_log = logging.getLogger("localaws")


def apply() -> None:
    """Invoke Lambda targets asynchronously, and let Scheduler run every second."""
    eventbridge._dispatch_to_lambda = _dispatch_to_lambda
    scheduler._SCHEDULE_TICK_INTERVAL = 1


def _dispatch_to_lambda(arn: str, payload: str) -> None:
    function, config, name = lambda_svc._get_func_record_for_ref(arn)
    if not function or not config:
        _log.warning("EventBridge target %s does not exist", name)
        return
    record = lambda_svc._execution_record_for_config(function, config)
    lambda_svc.invoke_async_with_retry(record, _event(payload))


def _event(payload: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError:  # a target's InputTransformer may make plain text
        return payload
