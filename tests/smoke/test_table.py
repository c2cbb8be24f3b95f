"""What only AWS decides of the table and the functions: dates, keys, integers, errors, callers."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from fairlock.aws.lock_table import LockTable
from fairlock.cdk.service.functions import FUNCTION_TIMEOUT_SECONDS
from fairlock.clock import date_in
from fairlock.protocol.schema import lock_key
from tests.e2e.deployment import SECOND_PASS_SECONDS, Json, wait_until
from tests.e2e.locks import ContestedLock, QueuedLock
from tests.smoke.account import KEYS, Account
from tests.smoke.conftest import dead_letters, outputs

# Case 18: each answer of DynamoDB tells AWS's time, by which all leases go.


THROTTLE_TRIES = 20_000
NOT_THERE: dict[str, Any] = {"ConditionExpression": "attribute_exists(pk) AND pk = :no"}


def answer_of(call: Any, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 answers
    try:
        answered: dict[str, Any] = call(**request)
    except ClientError as refused:
        return dict(refused.response)
    return answered


def test_each_answer_has_a_date_of_its_own(account: Account, lock: ContestedLock) -> None:
    """Decides whether refusals have one too: a lease of another is judged by nothing else."""
    dynamodb, table = account.client("dynamodb"), account.workflows.table_name
    key = dict(lock_key(lock.lock))
    write = {"TableName": table, "Key": key, "ExpressionAttributeValues": {":no": {"S": "no"}}}
    refused = {**write, **NOT_THERE}
    answers = {
        "a success": answer_of(dynamodb.get_item, TableName=table, Key=key),
        "a refused condition": answer_of(dynamodb.delete_item, **refused),
        "a cancelled transaction": answer_of(
            dynamodb.transact_write_items, TransactItems=[{"Delete": refused}]
        ),
    }
    assert answers["a refused condition"]["Error"]["Code"] == "ConditionalCheckFailedException"
    assert answers["a cancelled transaction"]["Error"]["Code"] == "TransactionCanceledException"
    assert [name for name, answer in answers.items() if date_in(answer) is None] == []


def test_the_dates_of_all_front_ends_fit_together(account: Account) -> None:
    """Decides whether front ends stay within half a second either way, which the rules allow."""
    dynamodb, table = account.client("dynamodb"), account.workflows.table_name
    clock, answers = LockTable(dynamodb, table).aws_clock, account.sizes["answers"]
    edges: list[tuple[float, float]] = []
    for number in range(answers):
        sent = clock.monotonic()
        answer = dynamodb.get_item(TableName=table, Key=dict(lock_key(f"date-{number}")))
        date_ms = date_in(answer)
        assert date_ms is not None
        # What this one answer says of AWS's time less our monotonic clock: at least and at most.
        edges.append((date_ms / 1000 - clock.monotonic(), date_ms / 1000 + 1 - sent))
    apart = max(least for least, _ in edges) - min(most for _, most in edges)
    account.tell(f"front ends over {answers} answers: {max(0.0, apart):.3f} s apart at least")
    assert apart < 1


def test_a_throttle_has_a_date_too(account: Account) -> None:
    """Decides whether a throttle has one: nothing is judged by it, the request is repeated."""
    account.needs_aws("it does not throttle")
    dynamodb, table = account.client("dynamodb"), account.workflows.table_name
    read = {"TableName": table, "Key": dict(lock_key("throttled")), "ConsistentRead": True}
    for _ in range(THROTTLE_TRIES):
        answer = answer_of(dynamodb.get_item, **read)
        if "Error" in answer:
            account.tell(f"{answer['Error']['Code']}: Date {date_in(answer)}")
            return
    pytest.skip("DynamoDB did not throttle")


# Case 6: numbers on their way through JSONata and JSONPath to a function.


def test_fencing_token_and_time_reach_a_function_as_integers(account: Account) -> None:
    """Decides whether Step Functions sends 16 digits as an integer, and not as 1.9E15."""
    execution = account.workflows.start("Integers", {})
    [[jsonata, path]] = outputs(account.workflows, execution)
    assert jsonata["types"] == {"fencing_token": "int", "now_ms": "int"}
    assert path["types"] == {"fencing_token": "int"}
    name = execution.rpartition(":")[2]
    for kind, seen in (("Jsonata", jsonata), ("Path", path)):
        token = account.workflows.state(f"{kind}/{name}").fencing_token
        assert seen["values"]["fencing_token"] == token
        assert token > 1_700_000_000_000_000


# Case 14: a customer's keys, on the table and on machines.


def test_a_service_with_a_key_wakes_the_waiters_of_a_machine_with_that_key(
    account: Account,
) -> None:
    """Decides whether functions that may use a machine's KMS key can complete its task tokens.

    And whether functions that may not use it cannot: that is shown with the figures.
    """
    with account.created(KEYS) as workflows:
        taken = QueuedLock(workflows)
        waiter = taken.join("KnownKey")
        released_at = taken.release()
        late = taken.began(waiter) - released_at
        account.tell(f"machine with a known key: woken {late:.2f} s after the release")
        assert len(workflows.acquires(waiter)) == 1
        end = workflows.run("ForeignKey", {"lock": "foreign", "seconds": 0})
        account.tell(f"machine with a foreign key: {end.status} {end.error} {end.cause}")
    account.needs_aws("it enforces no permissions for keys")


# Case 1: errors of Step Functions' own names leave the guard by their names.


SLEEPS_SECONDS = 6
TOO_BIG = 300_000
KINDS = ("Bare", "KeptAlive")
ERRORS = {
    "States.Timeout": ("Call", {"sleep": SLEEPS_SECONDS}),
    "States.TaskFailed": ("Nest", {}),
    "States.DataLimitExceeded": ("Call", {"big": TOO_BIG}),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_step_functions_is_caught_around_the_guard_by_its_name(
    account: Account, lock: ContestedLock, error: str
) -> None:
    """Decides whether a Fail state raises an error named States.… under that name.

    Another interpreter turned it into States.Runtime, which nothing catches.
    """
    if error == "States.DataLimitExceeded":
        account.needs_aws("it does not enforce the size of payloads")
    task, inputs = ERRORS[error]
    # AWS names a nested execution's failure States.TaskFailed, the embedded AWS as the child does.
    if account.is_embedded and task == "Nest":
        error = "Child"
    locks = [ContestedLock(account.workflows, f"{lock.lock}/{kind}") for kind in KINDS]
    executions = [
        each.start("Errors", guard=f"{kind}{task}", **inputs)
        for kind, each in zip(KINDS, locks, strict=True)
    ]
    # No entry of its own catches States.TaskFailed: that name in a Catch means any error but one.
    caught_as = "States.ALL" if task == "Nest" else error
    expected: list[Json] = [{"caught_as": caught_as, "error": error}] * len(KINDS)
    assert outputs(account.workflows, *executions) == expected
    assert [each.held() for each in locks] == [0] * len(KINDS)


# Functions that are called directly, and the way of an event to the reaper.


def test_direct_callers_hold_the_lock_one_after_the_other(lock: ContestedLock) -> None:
    """Decides whether the functions may do in AWS what they do: table, tracing, logs, metrics."""
    first, second = (f"owner-{number}-of-{lock.lock}" for number in (1, 2))
    granted = lock.ask(owner_id=first)
    assert granted["acquired"] is True
    assert lock.ask(owner_id=first)["fencing_token"] == granted["fencing_token"]
    assert lock.ask(owner_id=second)["reason"] == "HELD"
    heartbeat = {"lock_name": lock.lock, "owner_id": first}
    assert lock.deployment.invoke("Heartbeat", **heartbeat)["renewed"] is True
    lock.release(first)
    later = lock.ask(owner_id=second)
    assert later["fencing_token"] > granted["fencing_token"]
    assert lock.ask(owner_id=second)["fencing_token"] == later["fencing_token"]
    lock.release(second)
    assert lock.held() == 0


def test_a_mistake_is_a_typed_error(account: Account, lock: ContestedLock) -> None:
    """Decides whether Lambda reports an error by the class name that workflows match on."""
    response = account.client("lambda").invoke(
        FunctionName=account.workflows.function_name("Acquire"),
        Payload=json.dumps({"lock_name": lock.lock, "limit": 0}),
    )
    answer = json.load(response["Payload"])
    assert answer["errorType"] == "InvalidRequest"
    assert answer["errorMessage"].startswith("limit: ")
    assert lock.holders() == []


def test_a_lock_of_a_stopped_workflow_is_reaped_long_before_its_lease_is_over(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether the event of a stop reaches the reaper: its rule, queue, policy and role."""
    workflows = account.workflows
    execution = workflows.start("Holds", {"lock": f"{lock.lock}/other", "seconds": 600})
    assert lock.ask(execution_arn=execution, lease_seconds=3600)["acquired"] is True
    workflows.stop(execution)
    wait_until(lambda: lock.holders() == [], seconds=60)
    account.tell(f"1 execution stopped: {dead_letters(account)} dead letters")
    assert dead_letters(account) == 0


# Case 13: what the first invocation of each function takes.


LONGEST_COLD_START_SECONDS: Final = SECOND_PASS_SECONDS - FUNCTION_TIMEOUT_SECONDS
"""What the reaper's second pass allows for, beside the time of the function."""
UNKNOWN_OWNER: Final = {"lock_name": "cold", "owner_id": "no one at all..."}
OPERATIONS: Final = ("Acquire", "Heartbeat", "Release", "Reap")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_cold_start_ends_before_the_second_pass_of_the_reaper(
    account: Account, operation: str
) -> None:
    """Decides whether a cold start is as short as the second pass and keep_alive assume."""
    functions = account.client("lambda")
    name = account.workflows.function_name(operation)
    request = _report_of_an_end(account) if operation == "Reap" else UNKNOWN_OWNER
    _start_cold(functions, name)
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


def _start_cold(functions: Any, name: str) -> None:  # noqa: ANN401 - a boto3 client
    """Changes the configuration, so that the next invocation finds no environment."""
    known = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    variables = {**known, "SMOKE_TEST": str(uuid.uuid4())}
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    functions.get_waiter("function_updated_v2").wait(FunctionName=name)
