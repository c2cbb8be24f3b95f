"""The template of `Fairlock`: what is deployed, and who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch

from fairlock.cdk import LockService
from fairlock.errors import InvalidRequest
from fairlock.protocol.claims import SECOND_PASS_MS
from fairlock.store.reap import ExecutionEnded
from lambdas.reap_messages import parse_reap_message
from tests.unit.cdk.template import arn, one, properties, resources, template_of

Json = dict[str, Any]

SERVICE_NAME: Json = {"Fn::Join": ["", [{"Ref": "AWS::StackName"}, "/Locks"]]}

PARTITION_AWS = "LocksPartitionAws444EEFFB"
OPERATIONS = ["Acquire", "Heartbeat", "Release", "ReaperReap"]
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


def test_the_table_is_on_demand_with_ttl_recovery_and_encryption_and_outlives_its_stack(
    lock_template: Json,
) -> None:
    """But not a failed creation: CloudFormation user guide, "DeletionPolicy attribute"."""
    _, table = one(lock_template, "AWS::DynamoDB::Table", "Table")
    keys = (("pk", "HASH"), ("sk", "RANGE"))
    assert table["Properties"] == {
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in keys],
        "BillingMode": "PAY_PER_REQUEST",
        "TimeToLiveSpecification": {"AttributeName": "expiry_time", "Enabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "SSESpecification": {"SSEEnabled": True},
        "DeletionProtectionEnabled": False,
    }
    policies = (table["DeletionPolicy"], table["UpdateReplacePolicy"])
    assert policies == ("RetainExceptOnCreate", "Retain")


@every_operation
def test_each_function_runs_its_handler_is_traced_and_retains_its_logs_for_a_month(
    lock_template: Json, operation: str
) -> None:
    _, function = one(lock_template, "AWS::Lambda::Function", operation)
    table, _ = one(lock_template, "AWS::DynamoDB::Table", "Table")
    role, _ = one(lock_template, "AWS::IAM::Role", f"{operation}Role")
    logs, retained = one(lock_template, "AWS::Logs::LogGroup", f"{operation}Logs")
    assert retained["Properties"] == {"RetentionInDays": 30}
    assert retained["DeletionPolicy"] == "RetainExceptOnCreate"
    variables: Json = {"FAIRLOCK_TABLE_NAME": {"Ref": table}}
    if operation == "ReaperReap":
        queue, _ = one(lock_template, "AWS::SQS::Queue", "ReaperQueue")
        variables["FAIRLOCK_REAP_QUEUE_URL"] = {"Ref": queue}
    made = dict(function["Properties"])
    assert set(made.pop("Code")) == {"S3Bucket", "S3Key"}
    assert made.pop("Description").startswith("Fairlock: ")
    loop = in_partition_aws("Allow", otherwise={"Ref": "AWS::NoValue"})
    assert made.pop("RecursiveLoop", None) == (loop if operation == "ReaperReap" else None)
    assert made == {
        "Handler": f"lambdas.{operation.removeprefix('Reaper').lower()}.handler",
        "Runtime": "python3.13",
        "Architectures": [in_partition_aws("arm64", otherwise="x86_64")],
        "MemorySize": 256,
        "Timeout": 20,
        "TracingConfig": {"Mode": in_partition_aws("Active", otherwise="PassThrough")},
        "Role": arn(role),
        "LoggingConfig": {"LogGroup": {"Ref": logs}},
        "Environment": {
            "Variables": {
                **variables,
                "POWERTOOLS_SERVICE_NAME": SERVICE_NAME,
                "POWERTOOLS_METRICS_NAMESPACE": "Fairlock",
                "POWERTOOLS_LOG_LEVEL": "INFO",
            }
        },
    }


def in_partition_aws(value: str, *, otherwise: str | Json) -> Json:
    """What holds in China as well: Lambda has no X-Ray there, and not everywhere the rest."""
    return {"Fn::If": [PARTITION_AWS, value, otherwise]}


def test_all_functions_share_one_asset_and_one_condition(lock_template: Json) -> None:
    functions = properties(lock_template, "AWS::Lambda::Function")
    assert len(functions) == len(OPERATIONS)
    assert len({function["Code"]["S3Key"] for function in functions}) == 1
    condition = {"Fn::Equals": [{"Ref": "AWS::Partition"}, "aws"]}
    assert lock_template["Conditions"] == {PARTITION_AWS: condition}


def test_the_outputs_are_what_callers_rely_on(lock_template: Json) -> None:
    table, _ = one(lock_template, "AWS::DynamoDB::Table", "Table")
    expected = {"LockTableName": {"Ref": table}, "LockTableArn": arn(table)}
    expected["ServiceName"] = SERVICE_NAME
    for operation in OPERATIONS:
        function, _ = one(lock_template, "AWS::Lambda::Function", operation)
        name = operation.removeprefix("Reaper")
        expected[f"{name}FunctionName"] = {"Ref": function}
        expected[f"{name}FunctionArn"] = arn(function)
    for name in ("Queue", "DeadLetterQueue"):
        queue, _ = one(lock_template, "AWS::SQS::Queue", f"Reaper{name}")
        expected[f"Reap{name}Url"] = {"Ref": queue}
        expected[f"Reap{name}Arn"] = arn(queue)
    assert {name: output["Value"] for name, output in lock_template["Outputs"].items()} == expected


def test_the_stack_names_no_account_and_no_region(lock_template: Json) -> None:
    assert "AWS::AccountId" in str(lock_template)
    assert "us-east-1" not in str(lock_template)


# The reaper's template: which events it gets, by which way, and from which senders.


EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"


def queue_arn(template: Json, name: str) -> Json:
    return arn(one(template, "AWS::SQS::Queue", f"Reaper{name}")[0])


@pytest.fixture(scope="module")
def target(lock_template: Json) -> Json:
    """Where the rule sends every execution that may have left a lock."""
    _, rule = one(lock_template, "AWS::Events::Rule", "ReaperEveryMachine")
    assert rule["Properties"]["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"]},
        "replay-name": [{"exists": False}],
    }
    [target] = rule["Properties"]["Targets"]
    return dict(target)


def test_events_go_to_the_queue_without_data_or_if_that_fails_to_the_dead_letter_queue(
    lock_template: Json, target: Json
) -> None:
    assert target["Arn"] == queue_arn(lock_template, "Queue")
    assert target["DeadLetterConfig"] == {"Arn": queue_arn(lock_template, "DeadLetterQueue")}
    assert target["InputTransformer"]["InputPathsMap"] == {
        "arn": "$.detail.executionArn",
        "redrives": "$.detail.redriveCount",
        "stopped": "$.detail.stopDate",
        "status": "$.detail.status",
        "time": "$.time",
    }


@pytest.mark.parametrize(
    ("values", "ended"),
    [
        (
            {"redrives": "2", "stopped": "1893456000500", "status": "ABORTED"},
            {"redrives": 2, "ended_at_ms": 1893456000500},
        ),
        ({"redrives": "3"}, {"redrives": 3}),
        *(({"redrives": each}, {"redrives": 0}) for each in ("0", "", "null", "<redrives>")),
    ],
    ids=str,
)
def test_the_handler_understands_what_the_rule_makes_of_an_event(
    target: Json, values: dict[str, str], ended: Json
) -> None:
    """EventBridge puts values in place of names as they are; of a missing field, who knows."""
    message = target["InputTransformer"]["InputTemplate"]
    for name, value in {"arn": EXECUTION, **values}.items():
        message = message.replace(f"<{name}>", value)
    expected = ExecutionEnded(execution_arn=EXECUTION, **ended)
    assert parse_reap_message(message).ended == expected


def test_the_queue_gives_up_after_ten_tries_in_twenty_minutes_and_dead_letters_stay_two_weeks(
    lock_template: Json,
) -> None:
    _, queue = one(lock_template, "AWS::SQS::Queue", "ReaperQueue")
    _, dead_letters = one(lock_template, "AWS::SQS::Queue", "ReaperDeadLetterQueue")
    stays = {"SqsManagedSseEnabled": True, "MessageRetentionPeriod": 1_209_600}
    assert dead_letters["Properties"] == stays
    redrive = {
        "deadLetterTargetArn": queue_arn(lock_template, "DeadLetterQueue"),
        "maxReceiveCount": 10,
    }
    assert queue["Properties"] == {**stays, "VisibilityTimeout": 120, "RedrivePolicy": redrive}


@pytest.mark.parametrize("name", ["Queue", "DeadLetterQueue"])
def test_no_one_but_the_rule_and_the_reap_function_may_send(lock_template: Json, name: str) -> None:
    """A key that a request does not have counts as not equal."""
    _, policy = one(lock_template, "AWS::SQS::QueuePolicy", f"Reaper{name}Policy")
    rule, _ = one(lock_template, "AWS::Events::Rule", "ReaperEveryMachine")
    role, _ = one(lock_template, "AWS::IAM::Role", "ReaperReapRole")
    everybody = {"Effect": "Deny", "Principal": {"AWS": "*"}}
    from_rule = {"aws:SourceArn": [arn(rule)]}
    tls = {"Bool": {"aws:SecureTransport": "false"}}
    events: Json = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}}
    expected: list[Json] = [{**everybody, "Action": "sqs:*", "Condition": tls}]
    if name == "DeadLetterQueue":
        expected.append({**events, "Condition": {"ArnEquals": from_rule}})
    else:
        senders = {**from_rule, "aws:PrincipalArn": arn(role)}
        expected += [events, {**everybody, "Condition": {"ArnNotEquals": senders}}]
    send = {"Action": "sqs:SendMessage", "Resource": queue_arn(lock_template, name)}
    assert policy["Properties"]["PolicyDocument"]["Statement"] == [
        {**send, **statement} for statement in expected
    ]


def test_whether_the_reaper_may_loop_can_be_set_for_a_region_without_the_setting(
    own: Stack,
) -> None:
    """Lambda developer guide, "Recursive loop detection", "Supported AWS Regions".

    Lambda would stop it after about 16 rounds; its own bound is `MOST_ROUNDS`.
    """
    for name, recursive_loop in (("May", True), ("Not", False)):
        LockService(own, name, recursive_loop=recursive_loop)
    template = template_of(own)
    for name, loops in (("May", ["Allow"]), ("Not", [])):
        functions = properties(template, "AWS::Lambda::Function", name)
        assert [each["RecursiveLoop"] for each in functions if "RecursiveLoop" in each] == loops


def test_fifty_functions_at_most_take_ten_messages_each_and_tell_which_failed(
    lock_template: Json,
) -> None:
    [mapping] = properties(lock_template, "AWS::Lambda::EventSourceMapping")
    function, _ = one(lock_template, "AWS::Lambda::Function", "ReaperReap")
    assert mapping == {
        "BatchSize": 10,
        "EventSourceArn": queue_arn(lock_template, "Queue"),
        "FunctionName": {"Ref": function},
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 50},
    }


def test_the_second_pass_comes_when_no_acquire_from_before_can_still_run(
    lock_template: Json,
) -> None:
    _, acquire = one(lock_template, "AWS::Lambda::Function", "Acquire")
    assert acquire["Properties"]["Timeout"] + 10 <= SECOND_PASS_MS // 1000


def test_the_wait_of_events_and_dead_letters_are_counted_if_there_is_a_reaper(own: Stack) -> None:
    """SQS developer guide, "Available CloudWatch metrics", ApproximateAgeOfOldestMessage."""
    locks, without = LockService(own, "Locks"), LockService(own, "Without", reaper=False)
    metric = locks.metric_dead_letters(label="dead", color="#ff0000")
    assert (metric.label, metric.color) == ("dead", "#ff0000")
    for made, name in (
        (metric, "ApproximateNumberOfMessagesVisible"),
        (locks.metric_oldest_event(), "ApproximateAgeOfOldestMessage"),
    ):
        assert isinstance(made, cloudwatch.Metric)
        assert (made.namespace, made.metric_name, made.statistic) == ("AWS/SQS", name, "Maximum")
    assert without.reaper is None
    for name in ("metric_dead_letters", "metric_oldest_event"):
        with pytest.raises(InvalidRequest, match=rf"^reaper: must be True for {name}\(\)"):
            getattr(without, name)()
    template = template_of(own)
    assert len(resources(template, "AWS::Lambda::Function", "Without")) == 3
    for kind in ("AWS::SQS::Queue", "AWS::Events::Rule", "AWS::Lambda::EventSourceMapping"):
        assert not resources(template, kind, "Without")
