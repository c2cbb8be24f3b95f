"""Case 13: what the first invocation of each function takes."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from typing import Any, Final

import pytest

from fairlock.cdk.service.functions import FUNCTION_TIMEOUT_SECONDS
from tests.e2e.reap_passes import SECOND_PASS_SECONDS
from tests.smoke.account import Account

LONGEST_COLD_START_SECONDS: Final = SECOND_PASS_SECONDS - FUNCTION_TIMEOUT_SECONDS
"""What the reaper's second pass allows for, beside the time of the function."""
NOBODY: Final = {"lock_name": "cold", "owner_id": "nobody at all..."}
OPERATIONS: Final = ("Acquire", "Heartbeat", "Release", "Reap")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_cold_start_ends_before_the_second_pass_of_the_reaper(
    account: Account, operation: str
) -> None:
    """Decides whether a cold start is as short as the second pass and keep_alive assume."""
    functions = account.client("lambda")
    name = account.workflows.function_name(operation)
    request = _report_of_an_end(account) if operation == "Reap" else NOBODY
    _start_anew(functions, name)
    began = time.monotonic()
    answer = functions.invoke(FunctionName=name, LogType="Tail", Payload=json.dumps(request))
    seconds = time.monotonic() - began
    payload = answer["Payload"].read()
    assert "FunctionError" not in answer, payload
    tail = base64.b64decode(answer.get("LogResult", "")).decode(errors="replace")
    measured = re.search(r"REPORT .*", tail.replace("\n", " "))
    account.tell(f"cold {operation}: {seconds:.2f} s; {measured[0] if measured else 'no report'}")
    assert seconds < LONGEST_COLD_START_SECONDS
    account.needs_aws("its cold starts take the time of this machine, not that of AWS")
    assert "Init Duration" in tail, "the environment was not new"


def _report_of_an_end(account: Account) -> dict[str, Any]:
    """What Lambda gives the reaper of an execution that never asked for a lock."""
    execution = account.workflows.start("Ends", {"seconds": 0})
    account.workflows.ended(execution)
    detail = {"executionArn": execution, "redriveCount": "0"}
    record = {
        "messageId": "smoke-test",
        "eventSource": "aws:sqs",
        "body": json.dumps({"detail": detail}),
    }
    return {"Records": [record]}


def _start_anew(functions: Any, name: str) -> None:  # noqa: ANN401 - a boto3 client
    """Changes the configuration, so that the next invocation finds no environment."""
    known = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    variables = {**known, "SMOKE_TEST": str(uuid.uuid4())}
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    functions.get_waiter("function_updated_v2").wait(FunctionName=name)
