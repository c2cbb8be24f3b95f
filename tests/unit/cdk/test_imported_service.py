"""A service that another stack or app deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Fn, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from constructs import Construct

from leasehold.cdk import ILockService, ImportedLockService, LockGuard, LockService
from leasehold.errors import InvalidRequest
from tests.unit.cdk.guard_forms import FUNCTION

DEAD_LETTERS = "arn:aws:sqs:us-east-1:123456789012:dead-letters"
KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-table"
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:billing"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(App(outdir=str(tmp_path)), "Importing")


def imported(stack: Stack, **more: Any) -> ImportedLockService:  # noqa: ANN401 - optional arguments
    return LockService.from_function_arns(
        stack,
        "Imported",
        acquire_function_arn=f"{FUNCTION}:acquire",
        heartbeat_function_arn=f"{FUNCTION}:heartbeat",
        release_function_arn=f"{FUNCTION}:release",
        **more,
    )


def test_an_imported_service_refers_to_functions_and_makes_none(stack: Stack) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal())
    imported(stack).grant_use(role)
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::Lambda::Function", 0)
    allowed = str(template.to_json()["Resources"])
    assert [f"{FUNCTION}:{name}'" in allowed for name in ("acquire", "heartbeat", "release")] == [
        True,
        True,
        True,
    ]


def test_a_client_may_use_the_table_of_an_imported_service_and_its_key(stack: Stack) -> None:
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    locks = imported(stack, table_name="locks", encryption_key=key)
    locks.grant_client(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    template = Template.from_stack(stack)
    [policy] = template.find_resources("AWS::IAM::Policy").values()
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    found = {str(s["Action"]): str(s["Resource"]) for s in statements}
    [table] = [resource for actions, resource in found.items() if "dynamodb:UpdateItem" in actions]
    [used_key] = [resource for actions, resource in found.items() if "kms:Decrypt" in actions]
    assert "table/locks" in table
    assert used_key == KEY
    assert {"states:SendTaskSuccess", "states:DescribeExecution"} <= set(found)
    assert locks.table.table_name == "locks"


def test_the_dead_letters_of_an_imported_service_can_be_watched(stack: Stack) -> None:
    metric = imported(stack, dead_letter_queue_arn=DEAD_LETTERS).metric_dead_letters()
    assert metric.dimensions == {"QueueName": "dead-letters"}


def test_what_was_not_imported_is_refused_with_the_argument_that_is_missing(stack: Stack) -> None:
    locks = imported(stack)
    role = iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal())
    with pytest.raises(InvalidRequest, match=r"^table_name: must be given .* LockTableName"):
        locks.grant_client(role)
    with pytest.raises(InvalidRequest, match=r"^dead_letter_queue_arn: .* ReapDeadLetterQueueArn"):
        locks.metric_dead_letters()


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "acquire",
        None,
        f"{FUNCTION}",
        "arn:aws:s3:::bucket",
        FUNCTION.replace("function", "layer:a"),
    ],
)
def test_what_is_not_the_arn_of_a_function_is_refused_by_the_argument_s_name(
    stack: Stack,
    arn: Any,  # noqa: ANN401 - on purpose
) -> None:
    with pytest.raises(InvalidRequest, match=r"^heartbeat_function_arn: must be the ARN of a Lamb"):
        ImportedLockService(
            stack,
            "Imported",
            acquire_function_arn=f"{FUNCTION}:acquire:live",
            heartbeat_function_arn=arn,
            release_function_arn=Fn.import_value("ReleaseFunctionArn"),
        )


def test_the_arn_of_an_optional_function_is_checked_too(stack: Stack) -> None:
    with pytest.raises(InvalidRequest, match=r"^force_release_function_arn: must be the ARN of a"):
        imported(stack, force_release_function_arn="force-release")


def test_a_guard_in_another_region_than_its_service_is_refused(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    here, there = (
        Stack(app, region, env=Environment(account="123456789012", region=region))
        for region in ("us-east-1", "eu-west-1")
    )

    def guard(stack: Stack, service: ILockService) -> LockGuard:
        scope = Construct(stack, f"Scope{len(stack.node.children)}")
        task = sfn.Pass.jsonata(scope, "Work")
        return LockGuard(scope, "Guard", service=service, task=task, lock_name="x")

    for service in (imported(here), LockService(here, "Locks")):
        guard(here, service)
        with pytest.raises(InvalidRequest, match=r"^service: must be in the workflow's region eu-"):
            guard(there, service)


def test_the_reaper_of_an_imported_service_is_narrowed_where_the_service_is_made(
    stack: Stack,
) -> None:
    machine = sfn.StateMachine.from_state_machine_arn(stack, "Machine", MACHINE)
    with pytest.raises(InvalidRequest, match=r"^watch: must be called in the app that deploys"):
        imported(stack).watch(machine)


def test_administration_reads_the_table_and_writes_two_ways_and_wakes_workflows(
    stack: Stack,
) -> None:
    locks = imported(stack, table_name="locks")
    locks.grant_administration(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    [policy] = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    allowed: set[str] = set()
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else {*actions}
    on_table = ("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem")
    settings = ("DescribeTable", "DescribeTimeToLive")
    assert allowed == {
        *(f"dynamodb:{action}" for action in (*on_table, *settings)),
        *("states:SendTaskSuccess", "states:DescribeExecution"),
        *("lambda:SendDurableExecutionCallbackSuccess", "lambda:GetDurableExecution"),
    }
