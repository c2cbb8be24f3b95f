"""An event that EventBridge may not deliver goes to the target's dead-letter queue.

AWS (EventBridge user guide, "Using dead-letter queues to process undelivered events", "Using
resource-based policies for Amazon EventBridge"): EventBridge sends to a queue only if the queue's
policy lets it; an event whose target denies it or is gone is not tried again but goes, as it is,
to the queue of the target's DeadLetterConfig, whose policy must let it as well. Attributes of the
message name rule, target and error.

Emulator: sends to every queue whatever its policy says, and drops what it cannot deliver.

This: asks the policy of every queue, and uses the dead-letter queue. Targets other than queues and
functions are left as they are; that an error may pass and is tried again does not happen here.
"""

import contextvars
import logging
from collections.abc import Mapping
from typing import Any

from ministack.core.iam_evaluator import EvalContext, evaluate_resource_policy
from ministack.core.responses import get_account_id, get_region
from ministack.services import eventbridge, lambda_svc, sqs

_log = logging.getLogger("localaws")
_SERVICE = "events.amazonaws.com"
_delivery: contextvars.ContextVar[tuple[Mapping[str, Any], Mapping[str, Any]]] = (
    contextvars.ContextVar("delivery")
)


def apply() -> None:
    """Ask before delivering, and keep what is refused."""
    _wrap_invoke_target()
    _wrap_dispatch_to_queue()
    _wrap_dispatch_to_function()


def _wrap_invoke_target() -> None:
    original = eventbridge._invoke_target

    def invoke_target(target: Any, event: Any, rule: Any, view: Any = None) -> None:
        token = _delivery.set((target, rule))
        try:
            original(target, event, rule, view)
        finally:
            _delivery.reset(token)

    eventbridge._invoke_target = invoke_target


def _wrap_dispatch_to_queue() -> None:
    original = eventbridge._dispatch_to_sqs

    def dispatch(spec: Any, payload: str, parameters: Any = None) -> None:
        obstacle = _obstacle(str(spec))
        if obstacle is None:
            original(spec, payload, parameters)
        else:
            _keep(payload, obstacle)

    eventbridge._dispatch_to_sqs = dispatch


def _wrap_dispatch_to_function() -> None:
    original = eventbridge._dispatch_to_lambda

    def dispatch(arn: str, payload: str) -> None:
        function, _, _ = lambda_svc._get_func_record_for_ref(arn)
        if function:
            original(arn, payload)
        else:
            _keep(payload, "NO_RESOURCE")

    eventbridge._dispatch_to_lambda = dispatch


def _obstacle(queue_arn: str) -> str | None:
    """Why the event of the rule cannot get into the queue; None if it can."""
    queue = sqs._queue_by_arn(queue_arn)
    if queue is None:
        return "NO_RESOURCE"
    _, rule = _delivery.get()
    request = EvalContext(
        principal_arn="*",
        principal_type="Service",
        principal_account="",
        action="sqs:SendMessage",
        resource_arn=queue_arn,
        region=get_region(),
        secure_transport=True,
        service_context={"aws:sourcearn": rule["Arn"], "aws:sourceaccount": get_account_id()},
    )
    policy = queue["attributes"].get("Policy")
    decision = evaluate_resource_policy(policy, request, service=_SERVICE).decision
    return None if decision == "Allow" else "NO_PERMISSIONS"


def _keep(payload: str, error: str) -> None:
    """Send an undelivered event to the target's dead-letter queue, if it has one."""
    target, rule = _delivery.get()
    _log.warning("%s does not reach %s: %s", rule["Name"], target["Arn"], error)
    letters = (target.get("DeadLetterConfig") or {}).get("Arn")
    if letters is None or _obstacle(letters) is not None:
        return
    labels = {"RULE_ARN": rule["Arn"], "TARGET_ARN": target["Arn"], "ERROR_CODE": error}
    message = {
        "MessageBody": payload,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in labels.items()
        },
    }
    sqs._act_send_message(message, sqs._queue_by_arn(letters)["url"])
