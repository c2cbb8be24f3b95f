"""The template of `make template`, deployed by boto3 alone, and a machine of `fairlock asl`.

`make test` runs the machine on the functions that all suites share, which are warm, and compares
the template with the stack of these (unit/cdk/test_template.py). `make template-test` deploys it.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlock.cli import main
from infra.template import write
from tests.e2e.deployment import Deployment, wait_until

Json = dict[str, Any]
STACK = "FromTemplate"
WHOLE = "FAIRLOCK_TEMPLATE_TEST" in os.environ
whole = pytest.mark.skipif(not WHOLE, reason="make template-test")
PREFIX = "fairlock/releases/"
WORK = {
    "QueryLanguage": "JSONata",
    "StartAt": "Stay",
    "States": {
        "Stay": {"Type": "Wait", "Seconds": "{% $states.input.seconds %}", "Next": "Declined?"},
        "Declined?": {
            "Type": "Choice",
            "Choices": [{"Condition": "{% $states.input.decline %}", "Next": "Decline"}],
            "Default": "Done",
        },
        "Decline": {"Type": "Fail", "Error": "Declined", "Cause": "by the input"},
        "Done": {"Type": "Pass", "Output": "done", "End": True},
    },
}


@pytest.fixture(scope="module")
def service(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The lock service of the template."""
    aws, written = deployment.aws, write(tmp_path_factory.mktemp("template"), {})
    bucket = f"code-{uuid.uuid4()}"
    aws.client("s3").create_bucket(Bucket=bucket)
    aws.client("s3").upload_file(str(written.code), bucket, PREFIX + written.code.name)
    parameters = {"CodeBucket": bucket, "CodeKeyPrefix": PREFIX}
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(
        StackName=STACK,
        TemplateBody=written.template.read_text(),
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()
        ],
        Capabilities=["CAPABILITY_IAM"],
    )
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName=STACK, WaiterConfig={"Delay": 0.1, "MaxAttempts": 600}
    )
    [stack] = cloudformation.describe_stacks(StackName=STACK)["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    return Deployment(aws=aws, outputs={STACK: outputs}, service=STACK)


@pytest.fixture
def printed_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Deployment], str]:
    """What `fairlock asl` prints for a service."""

    def printed(service: Deployment) -> str:
        task = tmp_path / "work.json"
        task.write_text(json.dumps(WORK))
        for name, value in service.aws.environment.items():
            monkeypatch.setenv(name, value)
        words = ["asl", "--task", str(task), "--stack", service.service]
        words += ["--lease", "5", "--lock-name", "$.lock"]
        monkeypatch.setattr(sys, "argv", ["fairlock", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return printed


@whole
def test_other_stacks_find_it_by_its_name_and_its_functions_grant_renew_and_release(
    service: Deployment,
) -> None:
    """They find it as `LockService.from_stack` does: see unit/cdk/test_shared_service.py."""
    parameters = service.aws.client("ssm")
    for name in ("LockTableName", "AcquireFunctionArn", "ReleaseFunctionArn", "ReapFunctionArn"):
        found = parameters.get_parameter(Name=f"/fairlock/{STACK}/{name}")["Parameter"]["Value"]
        assert found == service.outputs[STACK][name]
    owner = {"lock_name": "direct", "owner_id": str(uuid.uuid4())}
    assert service.invoke("Acquire", **owner)["acquired"] is True
    assert service.held("direct") == 1
    assert service.invoke("Heartbeat", **owner)["renewed"] is True
    assert service.invoke("Release", **owner)["released"] is True
    assert service.held("direct") == 0


@pytest.mark.parametrize("of", ["Fairlock", *([STACK] if WHOLE else [])])
def test_executions_of_a_printed_machine_exclude_each_other_whatever_ends_them(
    deployment: Deployment,
    request: pytest.FixtureRequest,
    printed_machine: Callable[[Deployment], str],
    of: str,
) -> None:
    service = request.getfixturevalue("service") if of == STACK else deployment
    workflows = service.aws.client("stepfunctions")
    machine = workflows.create_state_machine(
        name=f"FromAsl{of}",
        definition=printed_machine(service),
        roleArn="arn:aws:iam::000000000000:role/any",
    )["stateMachineArn"]

    def start(**value: object) -> str:
        text = json.dumps({"lock": "printed", "decline": False, **value})
        return str(workflows.start_execution(stateMachineArn=machine, input=text)["executionArn"])

    stays = start(seconds=600)
    wait_until(lambda: service.holders("printed") == [stays])
    declined = start(seconds=0, decline=True)
    wait_until(lambda: service.waiters("printed") == [declined])
    assert service.holders("printed") == [stays]

    service.stop(stays)  # the reaper hands the lock over
    ended = service.ended(declined)
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "Declined", "by the input")
    assert service.held("printed") == 0
    assert service.ended(start(seconds=0)).output == "done"
    assert service.held("printed") == 0
