"""A first deployment that fails leaves nothing, so that the next one can use the same names."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from aws_cdk import App, RemovalPolicy, Stack
from aws_cdk.assertions import Template
from botocore.exceptions import WaiterError

from fairlock.cdk import LockService
from testbed.localaws import LocalAws
from tests.support import create_lock_table


def left_by_a_failure(aws: LocalAws, directory: Path, policy: RemovalPolicy) -> list[str]:
    """The table and the log groups after a creation that fails, because a name is taken."""
    name = f"first-{policy.value.lower().replace('_', '-')}"
    stack = Stack(App(outdir=str(directory)), name)
    LockService(stack, "Locks", reaper=False, table_name=name, removal_policy=policy)
    template = dict(Template.from_stack(stack).to_json())
    for part in ("Rules", "Parameters"):  # the CDK's bootstrap, which is not there
        template.pop(part, None)
    table = next(key for key in template["Resources"] if key.startswith("LocksTable"))
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            resource["Properties"]["Code"] = {"ZipFile": "def handler(event, context): pass"}
    taken = f"taken-{name}"
    create_lock_table(aws.client("dynamodb"), taken)
    fails = copy.deepcopy(template["Resources"][table])
    fails["Properties"]["TableName"] = taken
    template["Resources"]["Fails"] = {**fails, "DependsOn": table}
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(
        StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"]
    )
    polls = {"Delay": 0.1, "MaxAttempts": 300}
    with pytest.raises(WaiterError):
        cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig=polls)
    tables: list[str] = aws.client("dynamodb").list_tables()["TableNames"]
    return [each for each in tables if each == name]


def test_a_first_deployment_that_fails_leaves_no_table(aws: LocalAws, tmp_path: Path) -> None:
    """CloudFormation user guide, "DeletionPolicy attribute", RetainExceptOnCreate."""
    default = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    assert left_by_a_failure(aws, tmp_path, default) == []


def test_control_with_retain_it_leaves_the_table(aws: LocalAws, tmp_path: Path) -> None:
    assert left_by_a_failure(aws, tmp_path, RemovalPolicy.RETAIN) == ["first-retain"]
