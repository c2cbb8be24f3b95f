"""Case 8: the raw status events of Step Functions."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.deployment import wait_until
from tests.smoke.account import Account

Json = dict[str, Any]
ENDS = {"SUCCEEDED": 0, "FAILED": 0, "TIMED_OUT": 60, "ABORTED": 60}
"""Each kind of end, and how long the work would take."""


class Received:
    """The events that have come out of the queue so far."""

    def __init__(self, account: Account) -> None:
        self._queues = account.client("sqs")
        self._url = account.output("EventsUrl")
        self._events: dict[str, Json] = {}

    def of(self, execution: str, status: str, *, redrives: int = 0) -> Json:
        """The event of an end, waited for."""
        key = f"{execution} {status} {redrives}"
        wait_until(lambda: self._receive(key))
        return self._events[key]

    def _receive(self, key: str) -> bool:
        answer = self._queues.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=0
        )
        for message in answer.get("Messages", []):
            event = json.loads(message["Body"])
            detail = event["detail"]
            known = f"{detail['executionArn']} {detail['status']} {detail.get('redriveCount')}"
            self._events[known] = event
            self._queues.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return key in self._events


def test_each_kind_of_end_is_reported_with_execution_status_and_redrive_count(
    account: Account,
) -> None:
    """Decides whether status events have the fields that the reaper's rule selects and passes on.

    The raw events are shown with the figures of the run.
    """
    workflows, received = account.workflows, Received(account)
    executions = {
        status: workflows.start(
            "Ends", {"seconds": seconds, **({"raise": "Failed"} if status == "FAILED" else {})}
        )
        for status, seconds in ENDS.items()
    }
    aborted = executions["ABORTED"]
    wait_until(lambda: "Stay" in workflows.states_entered(aborted))
    workflows.stop(aborted)
    for status, execution in executions.items():
        event = received.of(execution, status)
        account.tell(f"raw event: {json.dumps(event)}")
        assert event["source"] == "aws.states"
        assert event["detail-type"] == "Step Functions Execution Status Change"
        assert event["detail"]["redriveCount"] == 0
    workflows.redrive(aborted)
    workflows.stop(aborted)
    assert received.of(aborted, "ABORTED", redrives=1)["detail"]["redriveCount"] == 1
