"""What the reaper is sent, and what it does to the world outside."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fairlock.aws.executions import Execution
from fairlock.protocol.model import Liveness
from lambdas import acquire, reap, release
from tests.support.bad_inputs import NAMED, VALID_EXECUTION
from tests.support.lambda_context import LambdaContextStub

CONTEXT = LambdaContextStub()
OTHER_EXECUTION = VALID_EXECUTION.replace("run-1", "run-2")
WORKFLOW = {**NAMED, "execution_arn": VALID_EXECUTION}
RIVAL = {**NAMED, "owner_id": "rival-0123456789"}
QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/123456789012/reap"


@dataclass
class Outside:
    """Step Functions and the reap queue, as the handler sees them."""

    executions: dict[str, Execution] = field(default_factory=dict)
    sent: list[tuple[str, dict[str, Any], int]] = field(default_factory=list)
    hidden: list[tuple[str, str, int]] = field(default_factory=list)

    def describe(self, execution_arn: str) -> Execution:
        return self.executions.get(execution_arn, Execution(Liveness.OVER))

    def send(self, queue_url: str, body: str, delay_seconds: int) -> None:
        self.sent.append((queue_url, json.loads(body), delay_seconds))

    def hide(self, queue_url: str, receipt_handle: str, seconds: int) -> None:
        self.hidden.append((queue_url, receipt_handle, seconds))


def status_change(execution_arn: str = VALID_EXECUTION, **detail: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of the event
    """As EventBridge sends it, with the fields that no one here reads left out."""
    return {
        "source": "aws.states",
        "detail-type": "Step Functions Execution Status Change",
        "detail": {"executionArn": execution_arn, "status": "ABORTED", "redriveCount": 0, **detail},
    }


def second_pass(
    execution_arn: str = VALID_EXECUTION, redrives: int = 0, rounds: int = 0
) -> dict[str, Any]:
    order = {"execution_arn": execution_arn, "redrives": redrives, "second_pass": True}
    return {**order, "rounds": rounds}


def batch(*messages: object, tries: int = 1) -> dict[str, Any]:
    """An SQS event; what is no text is sent as JSON."""
    return {
        "Records": [
            {
                "messageId": f"message-{number}",
                "receiptHandle": "r",
                "body": message if isinstance(message, str) else json.dumps(message),
                "attributes": {"ApproximateReceiveCount": str(tries)},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:reap",
                "awsRegion": "us-east-1",
            }
            for number, message in enumerate(messages)
        ]
    }


def failed(*messages: object, tries: int = 1) -> list[int]:
    """Handles a batch; tells which of its messages will come again."""
    answer = reap.handler(batch(*messages, tries=tries), CONTEXT)
    assert list(answer) == ["batchItemFailures"]
    failures = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
    return [int(identifier.removeprefix("message-")) for identifier in failures]


def is_free() -> bool:
    granted: bool = acquire.handler(dict(RIVAL), CONTEXT)["acquired"]
    release.handler(dict(RIVAL), CONTEXT)
    return granted
