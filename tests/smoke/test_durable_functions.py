"""Case 16: durable functions that wait for a lock, and die while they hold it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

from tests.e2e.deployment import wait_until
from tests.e2e.durable.executions import DurableLock
from tests.smoke.account import WORKFLOWS, Account
from tests.smoke.stack import DURABLE_SECONDS

GONE: Final = frozenset(
    {"CallbackTimeoutException", "ResourceNotFoundException", "InvalidParameterValueException"}
)
"""What the service takes for the news that no one waits for a push."""


def test_a_durable_function_waits_without_invocations_and_its_end_frees_the_lock(
    account: Account, lock: str, tmp_path: Path
) -> None:
    """Decides whether `hold` waits without invocations, and a stop and a timeout reach the reaper.

    The boto3 of Lambda's runtime must know durable executions: otherwise the first one gets
    LockStoreMisconfigured, which names the version. The raw events are shown with the figures.
    """
    notes = tmp_path if account.is_embedded else Path("/tmp")  # noqa: S108 - Lambda's own
    executions = DurableLock(account.workflows, notes, lock, WORKFLOWS)
    holder = executions.start_inside("holder", stays=True)
    waiter = executions.start_behind("waiter", stays=True)
    wait_until(lambda: executions.invocations(waiter) == 1)
    _stopped_while_it_waits(account, executions)
    assert executions.invocations(waiter) == 1, "invoked while it waited"

    executions.stop(holder)
    _tell_freed(account, executions, "stopped, handed over", to=[waiter])
    wait_until(lambda: executions.invocations(waiter) == 2)
    _tell_event(account, holder, "STOPPED")
    code = _refusal(executions, executions.callbacks(waiter)[0])
    account.tell(f"a callback that was completed before: {code}")
    assert code in GONE
    if account.is_embedded:  # There `tests/e2e/durable` has a function that times out sooner.
        executions.stop(waiter)
        return
    ended = executions.ended(waiter, seconds=DURABLE_SECONDS + 60)
    assert ended["Status"] == "TIMED_OUT"
    _tell_freed(account, executions, "timed out, free", to=[])
    _tell_event(account, waiter, "TIMED_OUT")


def _stopped_while_it_waits(account: Account, executions: DurableLock) -> None:
    """An execution that dies in the queue leaves it."""
    dies = executions.start_behind("dies")
    wait_until(lambda: executions.callbacks(dies) != [])
    executions.stop(dies)
    code = _refusal(executions, executions.callbacks(dies)[0])
    account.tell(f"a callback of a stopped execution: {code}")
    wait_until(lambda: dies not in executions.deployment.waiters(executions.lock))


def _refusal(executions: DurableLock, callback_id: str) -> str:
    """What Lambda says to a caller that completes a callback."""
    try:
        executions.functions.send_durable_execution_callback_success(
            CallbackId=callback_id, Result=b"{}"
        )
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "accepted"


def _tell_freed(account: Account, executions: DurableLock, what: str, *, to: list[str]) -> None:
    began = time.monotonic()
    wait_until(lambda: executions.holders() == to, pause_seconds=0.1)
    account.tell(f"durable execution {what} after {time.monotonic() - began:.1f} s")


def _tell_event(account: Account, execution: str, status: str) -> None:
    """Waits for the event, and checks the fields that the reaper's rule selects and passes on."""
    found: list[dict[str, Any]] = []

    def receive() -> bool:
        answer = account.client("sqs").receive_message(
            QueueUrl=account.output("DurableEventsUrl"), MaxNumberOfMessages=10
        )
        events = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        found.extend(
            event
            for event in events
            if event["detail"]["durableExecutionArn"] == execution
            and event["detail"]["status"] == status
        )
        return bool(found)

    wait_until(receive)
    account.tell(f"raw event: {json.dumps(found[0])}")
    assert found[0]["source"] == "aws.lambda"
    assert found[0]["detail-type"] == "Durable Execution Status Change"
