"""The options of `LockService`, its grants, its metrics."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.assertions import Match, Template

from fairlock.cdk import LockService
from fairlock.cdk.service.lock_service import check_functions, check_table
from fairlock.cdk.service.service_base import MetricOptions
from fairlock.errors import InvalidRequest
from fairlock.names import MetricName

Json = dict[str, Any]

STATISTICS = {
    "HandOffLatency": "p95",
    MetricName.HELD_TIME: "p95",
    MetricName.WAIT_TIME: "p95",
    MetricName.PACE_WAIT: "p95",
    MetricName.QUEUE_LENGTH: "Maximum",
    MetricName.CURRENT_WAIT: "Maximum",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> LockService:
    """A service with every option set to something else than its default."""
    stack = Stack(App(outdir=str(tmp_path_factory.mktemp("cdk.out"))), "Own")
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
def template(own: LockService) -> Template:
    for method in ("acquire", "heartbeat", "release", "use", "client"):
        role = iam.Role(own, f"May{method.title()}", assumed_by=iam.AccountRootPrincipal())
        grant = getattr(own, f"grant_{method}")(role)
        assert isinstance(grant, iam.Grant)
        assert grant.success
    return Template.from_stack(Stack.of(own))


def test_the_table_follows_its_options(template: Template) -> None:
    template.has_resource(
        "AWS::DynamoDB::Table",
        {
            "DeletionPolicy": "Delete",
            "Properties": {
                "TableName": "locks-of-a-name",
                "DeletionProtectionEnabled": True,
                "SSESpecification": {
                    "SSEEnabled": True,
                    "SSEType": "KMS",
                    "KMSMasterKeyId": {"Fn::GetAtt": [Match.string_like_regexp("^Key"), "Arn"]},
                },
            },
        },
    )


def test_functions_and_logs_follow_their_options(template: Template) -> None:
    template.resource_properties_count_is("AWS::Logs::LogGroup", {"RetentionInDays": 7}, 4)
    template.resource_properties_count_is(
        "AWS::Lambda::Function",
        {
            "MemorySize": 512,
            "Architectures": ["x86_64"],
            "TracingConfig": Match.absent(),
            "Environment": {"Variables": Match.object_like({"POWERTOOLS_LOG_LEVEL": "WARNING"})},
        },
        4,
    )
    assert "xray" not in str(template.to_json())
    # Of the partition, because not every region can be told that the reaper may loop.
    assert len(template.find_conditions("*")) == 1


def test_with_a_customer_key_each_role_and_client_may_use_that_key(template: Template) -> None:
    statement = {
        "Action": ["kms:Decrypt", "kms:Encrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*"],
        "Effect": "Allow",
        "Resource": {"Fn::GetAtt": [Match.string_like_regexp("^Key"), "Arn"]},
    }
    described = {**statement, "Action": "kms:DescribeKey"}
    document = {"PolicyDocument": {"Statement": Match.array_with([statement, described])}}
    template.resource_properties_count_is("AWS::IAM::Policy", document, 5)


def test_with_a_customer_key_the_queues_use_the_key_that_sqs_manages(template: Template) -> None:
    """EventBridge would need to be allowed to use the customer's key; that is the customer's."""
    template.resource_count_is("AWS::SQS::Queue", 2)
    managed = {"SqsManagedSseEnabled": True, "KmsMasterKeyId": Match.absent()}
    template.resource_properties_count_is("AWS::SQS::Queue", managed, 2)


@pytest.mark.parametrize(
    ("grant", "functions"),
    [
        ("Acquire", ["Acquire"]),
        ("Heartbeat", ["Heartbeat"]),
        ("Release", ["Release"]),
        ("Use", ["Acquire", "Heartbeat", "Release"]),
    ],
)
def test_a_grant_allows_its_functions_only(
    template: Template, grant: str, functions: list[str]
) -> None:
    [policy] = [
        resource["Properties"]["PolicyDocument"]["Statement"]
        for name, resource in template.to_json()["Resources"].items()
        if name.startswith(f"LocksMay{grant}DefaultPolicy")
    ]
    assert {statement["Action"] for statement in policy} == {"lambda:InvokeFunction"}
    invoked = [statement["Resource"][0]["Fn::GetAtt"][0][:-8] for statement in policy]
    assert invoked == [f"Locks{function}" for function in functions]


def test_a_client_may_do_what_the_protocol_does_and_nothing_else(template: Template) -> None:
    [policy] = [
        resource["Properties"]["PolicyDocument"]["Statement"]
        for name, resource in template.to_json()["Resources"].items()
        if name.startswith("LocksMayClientDefaultPolicy")
    ]
    actions = ["ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"]
    assert [statement["Action"] for statement in policy if "kms" not in str(statement)] == [
        [f"dynamodb:{action}" for action in actions],
        "states:SendTaskSuccess",
        "states:DescribeExecution",
        ["lambda:GetDurableExecution", "lambda:SendDurableExecutionCallbackSuccess"],
    ]


@pytest.mark.parametrize("name", MetricName)
def test_every_metric_that_the_handlers_emit_can_be_read(
    own: LockService, name: MetricName
) -> None:
    for metric in (own.metric(name), own.metric(name.value)):
        assert isinstance(metric, cloudwatch.Metric)
        assert (metric.namespace, metric.metric_name) == ("Fairlock", name.value)
        assert metric.dimensions == {"service": "Own/Locks"}
        assert metric.statistic == STATISTICS.get(name, "Sum")


def test_a_metric_that_no_handler_emits_is_refused(own: LockService) -> None:
    with pytest.raises(InvalidRequest, match=r"^name: must be one of Granted, Busy, .*'granted'"):
        own.metric("granted")


def test_the_options_of_a_metric_are_those_of_cloudwatch() -> None:
    theirs = inspect.signature(cloudwatch.MetricOptions.__init__).parameters
    assert set(MetricOptions.__annotations__) == set(theirs) - {"self"}


def test_a_metric_passes_every_option_on(own: LockService) -> None:
    metric = own.metric(
        MetricName.HELD_TIME,
        statistic="max",
        period=Duration.minutes(1),
        label="longest",
        color="#ff0000",
        region="eu-west-1",
        account="123456789012",
        unit=cloudwatch.Unit.MILLISECONDS,
        visible=False,
    )
    assert (metric.statistic, metric.label, metric.color) == ("Maximum", "longest", "#ff0000")
    assert (metric.region, metric.account) == ("eu-west-1", "123456789012")
    assert (metric.unit, metric.visible) == (cloudwatch.Unit.MILLISECONDS, False)
    assert metric.period.to_seconds() == 60


def test_an_option_that_no_metric_has_is_refused(own: LockService) -> None:
    with pytest.raises(TypeError, match="colour"):
        own.metric(MetricName.GRANTED, colour="#ff0000")  # type: ignore[call-arg]  # the mistake under test


# Settings that would fail at deployment or at import are refused at synth, by name and rule.

FUNCTIONS: dict[str, Any] = {
    "log_level": "INFO",
    "log_retention": logs.RetentionDays.ONE_MONTH,
    "memory_size_mib": 256,
    "tracing": None,
    "architecture": None,
    "recursive_loop": None,
}
TABLE: dict[str, Any] = {
    "table_name": None,
    "removal_policy": RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    "deletion_protection": False,
    "encryption_key": None,
}
LEVELS = "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"
MEMORY = "must be a whole number from 128 to 10240"
NAME = "must be 3 to 255 letters, digits, hyphens, underscores and dots"
POLICY = "must be RETAIN, RETAIN_ON_UPDATE_OR_DELETE or DESTROY of aws_cdk.RemovalPolicy"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("log_level", "info", LEVELS),
        ("log_level", "TRACE", LEVELS),
        ("log_level", 20, LEVELS),
        ("log_level", None, LEVELS),
        ("log_retention", 30, "must be a member of aws_logs.RetentionDays"),
        ("memory_size_mib", 127, MEMORY),
        ("memory_size_mib", 10_241, MEMORY),
        ("memory_size_mib", "256", MEMORY),
        ("memory_size_mib", 256.0, MEMORY),
        ("memory_size_mib", True, MEMORY),
        ("tracing", lambda_.Tracing.ACTIVE, "must be True, False, or None for the default"),
        ("recursive_loop", "Allow", "must be True, False, or None for the default"),
        (
            "architecture",
            "arm64",
            "must be a member of aws_lambda.Architecture, or None for the default",
        ),
    ],
)
def test_a_setting_of_the_functions_is_refused(field: str, value: object, rule: str) -> None:
    check_functions(**FUNCTIONS)
    with pytest.raises(InvalidRequest) as refused:
        check_functions(**{**FUNCTIONS, field: value})
    assert (refused.value.field, refused.value.rule) == (field, rule)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("table_name", "ab", NAME),
        ("table_name", "x" * 256, NAME),
        ("table_name", "my table", NAME),
        ("table_name", 12345, NAME),
        ("removal_policy", RemovalPolicy.SNAPSHOT, POLICY),
        ("removal_policy", "retain", POLICY),
        ("deletion_protection", "true", "must be True or False"),
        ("encryption_key", "alias/mine", "must be an aws_kms.IKey"),
    ],
)
def test_a_setting_of_the_table_is_refused(field: str, value: object, rule: str) -> None:
    check_table(**TABLE)
    with pytest.raises(InvalidRequest) as refused:
        check_table(**{**TABLE, field: value})
    assert (refused.value.field, refused.value.rule) == (field, rule)


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(App(outdir=str(tmp_path)), "Own")


def make(stack: Stack, **settings: Any) -> LockService:  # noqa: ANN401 - also mistaken ones
    return LockService(stack, "Locks", **settings)


@pytest.mark.parametrize("field", ["log_level", "table_name"])
def test_a_refused_service_leaves_nothing_behind(stack: Stack, field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: "):
        make(stack, **{field: "?"})
    assert stack.node.children == []


@pytest.mark.parametrize("field", ["table_name", "deletion_protection", "encryption_key"])
def test_of_an_existing_table_nothing_can_be_set(stack: Stack, field: str) -> None:
    existing = dynamodb.Table.from_table_name(stack, "Existing", "locks")
    value = {
        "table_name": "locks",
        "deletion_protection": True,
        "encryption_key": kms.Key.from_key_arn(
            stack, "Key", "arn:aws:kms:us-east-1:123456789012:key/1"
        ),
    }[field]
    with pytest.raises(InvalidRequest, match=f"^{field}: must be left out with table="):
        make(stack, table=existing, **{field: value})


def test_a_table_is_given_as_a_construct(stack: Stack) -> None:
    with pytest.raises(InvalidRequest, match=r"^table: must be an aws_dynamodb.ITable"):
        make(stack, table="locks")


def test_a_service_over_an_existing_table_makes_none(stack: Stack) -> None:
    """As after a redeployment: the table was retained."""
    locks = LockService(stack, "Locks", table=dynamodb.Table.from_table_name(stack, "Old", "old"))
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::DynamoDB::Table", 0)
    functions = template.find_resources("AWS::Lambda::Function").values()
    tables = [f["Properties"]["Environment"]["Variables"]["FAIRLOCK_TABLE_NAME"] for f in functions]
    assert tables == ["old"] * 4
    assert locks.table.table_name == "old"


def test_a_service_whose_construct_has_moved_makes_a_second_table_unless_it_has_a_name(
    tmp_path: Path,
) -> None:
    """Other logical ids are other tables; a fixed name makes that deployment fail instead."""
    ids, names = set(), set()
    for number, construct_id in enumerate(("Locks", "RenamedLocks")):
        stack = Stack(App(outdir=str(tmp_path / str(number))), "Own")
        LockService(stack, construct_id, table_name="locks")
        [(logical_id, table)] = (
            Template.from_stack(stack).find_resources("AWS::DynamoDB::Table").items()
        )
        ids.add(logical_id)
        names.add(table["Properties"]["TableName"])
    assert (len(ids), names) == (2, {"locks"})
