"""The template of `Fairlock`: what is deployed, and who may do what."""

from __future__ import annotations

import pytest
from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch

from fairlock.cdk import LockService
from fairlock.errors import InvalidRequest
from fairlock.protocol.claims import SECOND_PASS_MS
from fairlock.store.reap import ExecutionEnded
from lambdas.reap_messages import parse_reap_message
from tests.support.bad_inputs import VALID_EXECUTION
from tests.unit.cdk.template import Json, properties, resources, short, template_of

Deployed = dict[str, Json]

PARTITION_AWS = "PartitionAws"
OPERATIONS = ("Acquire", "Heartbeat", "Release", "ReaperReap")


def test_the_table_can_be_recovered_and_outlives_its_stack(deployed: Deployed) -> None:
    """But not a failed creation: CloudFormation user guide, "DeletionPolicy attribute"."""
    keys = (("pk", "HASH"), ("sk", "RANGE"))
    table = deployed["Table"]
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


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_function_runs_its_handler_is_traced_and_retains_its_logs_for_a_month(
    deployed: Deployed, operation: str
) -> None:
    retained = deployed[f"{operation}Logs"]
    assert retained["Properties"] == {"RetentionInDays": 30}
    assert retained["DeletionPolicy"] == "RetainExceptOnCreate"
    of_reaper = operation == "ReaperReap"
    function = dict(deployed[operation]["Properties"])
    assert set(function.pop("Code")) == {"S3Bucket", "S3Key"}
    assert function.pop("Description").startswith("Fairlock: ")
    loop = in_partition_aws("Allow", otherwise="<AWS::NoValue>")
    assert function.pop("RecursiveLoop", None) == (loop if of_reaper else None)
    assert function == {
        "Handler": f"lambdas.{operation.removeprefix('Reaper').lower()}.handler",
        "Runtime": "python3.13",
        "Architectures": [in_partition_aws("arm64", otherwise="x86_64")],
        "MemorySize": 256,
        "Timeout": 20,
        "TracingConfig": {"Mode": in_partition_aws("Active", otherwise="PassThrough")},
        "Role": f"<{operation}Role.Arn>",
        "LoggingConfig": {"LogGroup": f"<{operation}Logs>"},
        "Environment": {
            "Variables": {
                "FAIRLOCK_TABLE_NAME": "<Table>",
                **({"FAIRLOCK_REAP_QUEUE_URL": "<ReaperQueue>"} if of_reaper else {}),
                "POWERTOOLS_SERVICE_NAME": "<AWS::StackName>/Locks",
                "POWERTOOLS_METRICS_NAMESPACE": "Fairlock",
                "POWERTOOLS_LOG_LEVEL": "INFO",
            }
        },
    }


def in_partition_aws(value: str, *, otherwise: str) -> Json:
    """What holds in China as well: Lambda has no X-Ray there, and not everywhere the rest."""
    return {"Fn::If": [PARTITION_AWS, value, otherwise]}


def test_all_functions_share_one_asset_and_one_condition(lock_template: Json) -> None:
    functions = properties(lock_template, "AWS::Lambda::Function")
    assert len(functions) == len(OPERATIONS)
    assert len({function["Code"]["S3Key"] for function in functions}) == 1
    condition = {"Fn::Equals": ["<AWS::Partition>", "aws"]}
    assert short(lock_template["Conditions"]) == {"LocksPartitionAws444EEFFB": condition}


def test_the_outputs_are_what_callers_rely_on(lock_template: Json) -> None:
    told = {name: short(output["Value"]) for name, output in lock_template["Outputs"].items()}
    made = {f"{each.removeprefix('Reaper')}Function": each for each in OPERATIONS}
    queues = {f"Reap{each}": f"Reaper{each}" for each in ("Queue", "DeadLetterQueue")}
    assert told == {
        "ServiceName": "<AWS::StackName>/Locks",
        "LockTableName": "<Table>",
        **{f"{name}Name": f"<{each}>" for name, each in made.items()},
        **{f"{name}Url": f"<{each}>" for name, each in queues.items()},
        **{f"{name}Arn": f"<{each}.Arn>" for name, each in (made | queues).items()},
        "LockTableArn": "<Table.Arn>",
    }


def test_the_stack_names_no_account_and_no_region(lock_template: Json) -> None:
    assert "AWS::AccountId" in str(lock_template)
    assert "us-east-1" not in str(lock_template)


# The reaper's template: which events it gets, by which way, and from which senders.


def test_events_go_to_the_queue_or_if_that_fails_to_the_dead_letters(deployed: Deployed) -> None:
    """Without data."""
    rule = deployed["ReaperEveryMachine"]["Properties"]
    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"]},
        "replay-name": [{"exists": False}],
    }
    [target] = rule["Targets"]
    assert target["Arn"] == "<ReaperQueue.Arn>"
    assert target["DeadLetterConfig"] == {"Arn": "<ReaperDeadLetterQueue.Arn>"}
    assert target["InputTransformer"]["InputPathsMap"] == {
        "arn": "$.detail.executionArn",
        "redrives": "$.detail.redriveCount",
        "stopped": "$.detail.stopDate",
        "status": "$.detail.status",
        "time": "$.time",
    }


def test_the_handler_understands_what_the_rule_makes_of_an_event(deployed: Deployed) -> None:
    """EventBridge puts values in place of names as they are; of a missing field, who knows."""
    [target] = deployed["ReaperEveryMachine"]["Properties"]["Targets"]
    stopped = {"redrives": "2", "stopped": "1893456000500", "status": "ABORTED"}
    events: list[tuple[dict[str, str], Json]] = [
        (stopped, {"redrives": 2, "ended_at_ms": 1893456000500}),
        # An end that is not certain: the reaper asks.
        ({**stopped, "status": "RUNNING"}, {"redrives": 2}),
        ({**stopped, "redrives": ""}, {"redrives": 0}),
        ({"redrives": "3"}, {"redrives": 3}),
        *(({"redrives": each}, {"redrives": 0}) for each in ("0", "", "null", "<redrives>")),
    ]
    for values, ended in events:
        message = target["InputTransformer"]["InputTemplate"]
        for name, value in {"arn": VALID_EXECUTION, **values}.items():
            message = message.replace(f"<{name}>", value)
        expected = ExecutionEnded(execution_arn=VALID_EXECUTION, **ended)
        assert parse_reap_message(message).ended == expected, values


def test_the_queue_gives_up_after_ten_tries_and_dead_letters_stay(deployed: Deployed) -> None:
    stays = {"SqsManagedSseEnabled": True, "MessageRetentionPeriod": 1_209_600}
    assert deployed["ReaperDeadLetterQueue"]["Properties"] == stays
    redrive = {"deadLetterTargetArn": "<ReaperDeadLetterQueue.Arn>", "maxReceiveCount": 10}
    queue = {**stays, "VisibilityTimeout": 120, "RedrivePolicy": redrive}
    assert deployed["ReaperQueue"]["Properties"] == queue


@pytest.mark.parametrize("name", ["Queue", "DeadLetterQueue"])
def test_no_one_but_the_rule_and_the_reap_function_may_send(deployed: Deployed, name: str) -> None:
    """A key that a request does not have counts as not equal."""
    rule = {"aws:SourceArn": ["<ReaperEveryMachine.Arn>"]}
    senders = {**rule, "aws:PrincipalArn": "<ReaperReapRole.Arn>"}
    everybody = {"Effect": "Deny", "Principal": {"AWS": "*"}}
    events = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}}
    tls = {"Action": "sqs:*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    may_send: dict[str, list[Json]] = {
        "Queue": [events, {**everybody, "Condition": {"ArnNotEquals": senders}}],
        "DeadLetterQueue": [{**events, "Condition": {"ArnEquals": rule}}],
    }
    send = {"Action": "sqs:SendMessage", "Resource": f"<Reaper{name}.Arn>"}
    policy = deployed[f"Reaper{name}Policy"]["Properties"]["PolicyDocument"]
    assert policy["Statement"] == [
        {**send, **each} for each in ({**everybody, **tls}, *may_send[name])
    ]


def test_a_region_without_loop_detection_can_be_deployed_to(own: Stack) -> None:
    """Lambda developer guide, "Recursive loop detection", "Supported AWS Regions".

    Lambda would stop it after about 16 rounds; its own bound is `MOST_ROUNDS`.
    """
    for name, recursive_loop in (("May", True), ("Not", False)):
        LockService(own, name, recursive_loop=recursive_loop)
    template = template_of(own)
    for name, loops in (("May", ["Allow"]), ("Not", [])):
        functions = properties(template, "AWS::Lambda::Function", name)
        assert [each["RecursiveLoop"] for each in functions if "RecursiveLoop" in each] == loops


def test_at_most_fifty_functions_take_ten_messages_each_and_tell_which_failed(
    lock_template: Json,
) -> None:
    [mapping] = properties(lock_template, "AWS::Lambda::EventSourceMapping")
    assert short(mapping) == {
        "BatchSize": 10,
        "EventSourceArn": "<ReaperQueue.Arn>",
        "FunctionName": "<ReaperReap>",
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 50},
    }


def test_at_the_second_pass_no_acquire_from_before_still_runs(deployed: Deployed) -> None:
    assert deployed["Acquire"]["Properties"]["Timeout"] + 10 <= SECOND_PASS_MS // 1000


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
