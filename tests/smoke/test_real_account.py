"""What only a real account can show: skips without LEASEHOLD_AWS_SMOKE_TEST=1 and credentials.

Deploys `Leasehold` and `LeaseholdDemo` by the CDK CLI into the account and region of the shell's
credentials (bootstrapped before), runs workflows there for a few cents, and destroys both stacks.
It refuses to start where one of them exists, so it never touches what it did not deploy.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

pytestmark = [pytest.mark.aws, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
STACKS = ["Leasehold", "LeaseholdDemo"]
SETTINGS = ["-c", "demo=true", "-c", "removal_policy=destroy"]
_LONGEST_RUN_SECONDS = 180
_LONGEST_REAPING_SECONDS = 60

Outputs = dict[str, dict[str, str]]


def cdk(*arguments: str) -> None:
    command = ["node_modules/.bin/cdk", *arguments, *STACKS, *SETTINGS]
    subprocess.run(command, cwd=ROOT, check=True)


def exists(stack: str) -> bool:
    try:
        boto3.client("cloudformation").describe_stacks(StackName=stack)
    except ClientError as error:
        if "does not exist" in str(error):
            return False
        raise
    return True


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outputs]:
    if os.environ.get("LEASEHOLD_AWS_SMOKE_TEST") != "1":
        pytest.skip("needs an AWS account: set LEASEHOLD_AWS_SMOKE_TEST=1 to deploy into yours")
    if boto3.Session().get_credentials() is None:
        pytest.skip("needs an AWS account: no credentials found")
    present = [stack for stack in STACKS if exists(stack)]
    if present:
        pytest.fail(f"{present} exist in this account already; this test leaves them alone")
    file = tmp_path_factory.mktemp("smoke") / "outputs.json"
    try:
        cdk("deploy", "--require-approval", "never", "--outputs-file", str(file))
        yield json.loads(file.read_text())
    finally:
        cdk("destroy", "--force")


def invoke(outputs: Outputs, operation: str, **request: object) -> Any:  # noqa: ANN401 - JSON
    response = boto3.client("lambda").invoke(
        FunctionName=outputs["Leasehold"][f"{operation}FunctionName"], Payload=json.dumps(request)
    )
    return json.load(response["Payload"])


def open_account(outputs: Outputs, account_id: str) -> None:
    row = {
        "account_id": {"S": account_id},
        "balance": {"N": "100"},
        "last_change": {"S": "opening"},
    }
    table = outputs["LeaseholdDemo"]["AccountsTableName"]
    boto3.client("dynamodb").put_item(TableName=table, Item=row)


def ended(execution_arn: str) -> str:
    client = boto3.client("stepfunctions")
    deadline = time.monotonic() + _LONGEST_RUN_SECONDS
    while time.monotonic() < deadline:
        answer = client.describe_execution(executionArn=execution_arn)
        if answer["status"] != "RUNNING":
            return " ".join([answer["status"], answer.get("error", ""), answer.get("cause", "")])
        time.sleep(1)
    pytest.fail(f"{execution_arn} still runs after {_LONGEST_RUN_SECONDS} s")


def test_direct_callers_hold_the_lock_one_after_the_other(outputs: Outputs) -> None:
    first = {"lock_name": "smoke", "owner_id": "first-owner-0001"}
    second = {"lock_name": "smoke", "owner_id": "second-owner-001"}
    granted = invoke(outputs, "Acquire", **first)
    assert granted["acquired"]
    assert invoke(outputs, "Acquire", **first)["fencing_token"] == granted["fencing_token"]
    assert invoke(outputs, "Acquire", **second)["reason"] == "HELD"
    assert invoke(outputs, "Heartbeat", **first)["renewed"]
    assert invoke(outputs, "Release", **first)["released"]
    assert invoke(outputs, "Acquire", **second)["fencing_token"] > granted["fencing_token"]
    assert invoke(outputs, "Release", **second)["released"]


def test_a_mistake_is_a_typed_error(outputs: Outputs) -> None:
    answer = invoke(outputs, "Acquire", lock_name="smoke", limit=0)
    assert answer["errorType"] == "InvalidRequest"
    assert answer["errorMessage"].startswith("limit: ")


def test_guarded_workflows_lose_no_update_and_a_stopped_one_frees_its_lock(
    outputs: Outputs,
) -> None:
    demo = outputs["LeaseholdDemo"]
    workflows = boto3.client("stepfunctions")
    accounts = boto3.client("dynamodb")
    open_account(outputs, "smoke")

    def start(work_seconds: int) -> str:
        charge = {"account_id": "smoke", "amount": 1, "work_seconds": work_seconds}
        arn = demo["GuardedStateMachineArn"]
        started = workflows.start_execution(stateMachineArn=arn, input=json.dumps(charge))
        return started["executionArn"]

    ends = [ended(arn) for arn in [start(1) for _ in range(5)]]
    assert [end.strip() for end in ends] == ["SUCCEEDED"] * 5
    answer = accounts.get_item(
        TableName=demo["AccountsTableName"], Key={"account_id": {"S": "smoke"}}
    )
    assert answer["Item"]["balance"] == {"N": "95"}
    stopped = start(20)
    time.sleep(5)
    workflows.stop_execution(executionArn=stopped)
    assert ended(start(1)).strip() == "SUCCEEDED"


def test_a_lock_of_a_stopped_workflow_is_reaped_long_before_its_lease_is_over(
    outputs: Outputs,
) -> None:
    """The event, its way through EventBridge and SQS, and the roles: none of it is emulated."""
    workflows = boto3.client("stepfunctions")
    open_account(outputs, "reaped")
    charge = {"account_id": "reaped", "amount": 1, "work_seconds": 25}
    machine = outputs["LeaseholdDemo"]["UnguardedStateMachineArn"]
    started = workflows.start_execution(stateMachineArn=machine, input=json.dumps(charge))
    execution = started["executionArn"]
    holder = {"owner_id": "workflow-owner-01", "execution_arn": execution, "lease_seconds": 3600}
    assert invoke(outputs, "Acquire", lock_name="smoke/reaped", **holder)["acquired"]
    next_one = {"lock_name": "smoke/reaped", "owner_id": "the-next-owner-01"}
    assert invoke(outputs, "Acquire", **next_one)["reason"] == "HELD"
    workflows.stop_execution(executionArn=execution)
    deadline = time.monotonic() + _LONGEST_REAPING_SECONDS
    while not invoke(outputs, "Acquire", **next_one)["acquired"]:
        assert time.monotonic() < deadline, "not reaped; no lease ends within this time"
        time.sleep(1)
    assert invoke(outputs, "Release", **next_one)["released"]
    letters = boto3.client("sqs").get_queue_attributes(
        QueueUrl=outputs["Leasehold"]["ReapDeadLetterQueueUrl"],
        AttributeNames=["ApproximateNumberOfMessages"],
    )
    assert letters["Attributes"]["ApproximateNumberOfMessages"] == "0"
