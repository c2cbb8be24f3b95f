"""The options of `LockService`, its grants, its metrics, and the parts that are asked for."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from fairlock.cdk import LockService
from fairlock.cdk.service.service_base import MetricOptions
from fairlock.errors import InvalidRequest
from fairlock.names import MetricName
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.guard_forms import role
from tests.unit.cdk.template import Json, made, properties, short, statements, template_of

STATISTICS: dict[str, str] = {
    **dict.fromkeys(("HandOffLatency", "HeldTime", "WaitTime", "PaceWait"), "p95"),
    **dict.fromkeys((MetricName.QUEUE_LENGTH, MetricName.CURRENT_WAIT), "Maximum"),
}


@pytest.fixture(scope="module")
def service(new_app: NewApp) -> LockService:
    """A service with every option set to something else than its default."""
    stack = Stack(new_app(), "Own")
    return LockService(
        stack,
        "Locks",
        removal_policy=RemovalPolicy.DESTROY,
        deletion_protection=True,
        encryption_key=kms.Key(stack, "Key"),
        log_retention=logs.RetentionDays.ONE_WEEK,
        log_level="WARNING",
        memory_size_mib=512,
        tracing=False,
        architecture=lambda_.Architecture.X86_64,
        table_name="locks-of-a-name",
    )


@pytest.fixture(scope="module")
def template(service: LockService) -> Json:
    for grant in ("acquire", "heartbeat", "release", "use", "client"):
        assert getattr(service, f"grant_{grant}")(role(service, f"May{grant}")).success
    return template_of(Stack.of(service))


def test_the_table_follows_its_options(template: Json) -> None:
    table = made(template)["Table"]
    assert table["DeletionPolicy"] == "Delete"
    given = {"TableName": "locks-of-a-name", "DeletionProtectionEnabled": True}
    key = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": "<Key.Arn>"}
    assert table["Properties"].items() >= {**given, "SSESpecification": key}.items()


def test_functions_and_logs_follow_their_options(template: Json) -> None:
    assert properties(template, "AWS::Logs::LogGroup") == [{"RetentionInDays": 7}] * 4
    functions = properties(template, "AWS::Lambda::Function")
    assert len(functions) == 4
    for each in functions:
        assert (each["MemorySize"], each["Architectures"]) == (512, ["x86_64"])
        assert each["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"] == "WARNING"
        assert "TracingConfig" not in each
    assert "xray" not in str(template)
    # Of the partition, because not every region can be told that the reaper may loop.
    assert len(template["Conditions"]) == 1


def test_with_a_customer_key_each_role_and_client_may_use_that_key_and_the_queues_have_their_own(
    template: Json,
) -> None:
    """EventBridge would need to be allowed to use the customer's key; that is the customer's."""
    use = ["kms:Decrypt", "kms:Encrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*"]
    allowed = {"Effect": "Allow", "Resource": "<Key.Arn>"}
    may_use = [{**allowed, "Action": action} for action in (use, "kms:DescribeKey")]
    policies = short(properties(template, "AWS::IAM::Policy"))
    stated = [policy["PolicyDocument"]["Statement"] for policy in policies]
    of_key = [[each for each in policy if "kms" in str(each)] for policy in stated]
    assert [found for found in of_key if found] == [may_use] * 5
    for queue in properties(template, "AWS::SQS::Queue"):
        assert (queue["SqsManagedSseEnabled"], queue.get("KmsMasterKeyId")) == (True, None)


def test_a_grant_allows_its_functions_and_a_client_what_the_protocol_does_and_nothing_else(
    template: Json,
) -> None:
    operations = ("Acquire", "Heartbeat", "Release")
    grants = {"use": operations, **{each.lower(): [each] for each in operations}}
    for grant, functions in grants.items():
        policy = statements(template, f"LocksMay{grant}DefaultPolicy")
        assert {each["Action"] for each in policy} == {"lambda:InvokeFunction"}
        assert short([each["Resource"][0] for each in policy]) == [f"<{f}.Arn>" for f in functions]
    policy = statements(template, "LocksMayclientDefaultPolicy")
    actions = ["ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"]
    assert [statement["Action"] for statement in policy if "kms" not in str(statement)] == [
        [f"dynamodb:{action}" for action in actions],
        "states:SendTaskSuccess",
        "states:DescribeExecution",
        ["lambda:GetDurableExecution", "lambda:SendDurableExecutionCallbackSuccess"],
    ]


def test_every_metric_that_the_handlers_emit_can_be_read(service: LockService) -> None:
    for name in MetricName:
        for metric in (service.metric(name), service.metric(name.value)):
            assert isinstance(metric, cloudwatch.Metric)
            assert (metric.namespace, metric.metric_name) == ("Fairlock", name.value)
            assert metric.dimensions == {"service": "Own/Locks"}
            assert metric.statistic == STATISTICS.get(name, "Sum")


def test_a_metric_or_an_option_that_there_is_not_is_refused(service: LockService) -> None:
    with pytest.raises(InvalidRequest, match=r"^name: must be one of Granted, Busy, .*'granted'"):
        service.metric("granted")
    with pytest.raises(TypeError, match="colour"):
        service.metric(MetricName.GRANTED, colour="#ff0000")  # type: ignore[call-arg]  # the mistake under test


def test_a_metric_passes_on_every_option_of_cloudwatch(service: LockService) -> None:
    theirs = inspect.signature(cloudwatch.MetricOptions.__init__).parameters
    assert set(MetricOptions.__annotations__) == set(theirs) - {"self"}
    metric = service.metric(MetricName.HELD_TIME, statistic="max", label="longest", visible=False)
    assert (metric.statistic, metric.label, metric.visible) == ("Maximum", "longest", False)


def test_a_service_over_an_existing_table_makes_none_and_sets_nothing_of_it(own: Stack) -> None:
    """As after a redeployment: the table was retained."""
    old = dynamodb.Table.from_table_name(own, "Old", "old")
    key = kms.Key.from_key_arn(own, "Key", "arn:aws:kms:us-east-1:123456789012:key/1")
    settings = {"table_name": "locks", "deletion_protection": True, "encryption_key": key}
    for field, value in settings.items():
        given: dict[str, Any] = {field: value}
        with pytest.raises(InvalidRequest, match=f"^{field}: must be left out with table="):
            LockService(own, "Refused", table=old, **given)
    with pytest.raises(InvalidRequest, match="lifecycle_events: must be False for a table without"):
        LockService(own, "Silent", table=old, lifecycle_events=True)
    locks = LockService(own, "Locks", table=old)
    template = template_of(own)
    assert properties(template, "AWS::DynamoDB::Table") == []
    functions = properties(template, "AWS::Lambda::Function", "Locks")
    tables = [each["Environment"]["Variables"]["FAIRLOCK_TABLE_NAME"] for each in functions]
    assert tables == ["old"] * 4
    assert locks.table.table_name == "old"


# Parts of a service that are asked for: functions of administrators, lifecycle events.


def test_each_function_that_is_asked_for_has_its_handler_and_output(everything: Json) -> None:
    handlers = {"ForceRelease": "force_release", "SetLimit": "set_limit"}
    for function in ("Inspect", "ForceRelease", "SetLimit", "Pace"):
        handler = handlers.get(function, function.lower())
        assert made(everything)[function]["Properties"]["Handler"] == f"lambdas.{handler}.handler"
        outputs = {f"{function}Function{kind}" for kind in ("Name", "Arn")}
        assert outputs <= set(everything["Outputs"])


def test_lambda_leaves_out_plain_waiters_and_claims_that_no_one_reaps(everything: Json) -> None:
    [table] = properties(everything, "AWS::DynamoDB::Table")
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    [source] = properties(everything, "AWS::Lambda::EventSourceMapping", "LocksPublish")
    patterns = [json.loads(each["Pattern"]) for each in source["FilterCriteria"]["Filters"]]
    assert [(pattern.get("eventName"), list(pattern["dynamodb"])) for pattern in patterns] == [
        (None, ["Keys"]),
        (None, ["Keys", "NewImage"]),
        (["REMOVE"], ["Keys", "OldImage"]),
    ]
    assert source["BisectBatchOnFunctionError"] is True
    assert "MaximumRetryAttempts" not in source  # Until the record is a day old.
