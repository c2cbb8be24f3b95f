"""The template of `Fairlock`: what is deployed, and who may do what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cdk.template import arn, one, resources

Json = dict[str, Any]

SERVICE_NAME: Json = {"Fn::Join": ["", [{"Ref": "AWS::StackName"}, "/Locks"]]}

PARTITION_AWS = "LocksPartitionAws444EEFFB"
OPERATIONS = ["Acquire", "Heartbeat", "Release", "ReaperReap"]
ABOUT_WORKFLOWS = {"DescribeExecution": "execution", "SendTaskSuccess": "stateMachine"}
ALLOWED: dict[str, tuple[list[str], dict[str, str]]] = {
    "Acquire": (["DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"], ABOUT_WORKFLOWS),
    "Heartbeat": (
        ["DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"],
        {**ABOUT_WORKFLOWS, "SendTaskFailure": "stateMachine"},
    ),
    "Release": (["UpdateItem", "DeleteItem", "Query", "GetItem"], ABOUT_WORKFLOWS),
    "ReaperReap": (
        ["ConditionCheckItem", "DeleteItem", "GetItem", "Query", "UpdateItem"],
        ABOUT_WORKFLOWS,
    ),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


def test_the_table_is_on_demand_with_ttl_recovery_and_encryption(lock_template: Json) -> None:
    _, table = one(lock_template, "AWS::DynamoDB::Table", "Table")
    assert table["Properties"] == {
        "AttributeDefinitions": [
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
        "TimeToLiveSpecification": {"AttributeName": "expiry_time", "Enabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "SSESpecification": {"SSEEnabled": True},
        "DeletionProtectionEnabled": False,
    }


def test_the_table_outlives_its_stack_but_not_a_failed_creation(lock_template: Json) -> None:
    """CloudFormation user guide, "DeletionPolicy attribute", RetainExceptOnCreate."""
    _, table = one(lock_template, "AWS::DynamoDB::Table", "Table")
    policies = (table["DeletionPolicy"], table["UpdateReplacePolicy"])
    assert policies == ("RetainExceptOnCreate", "Retain")


@every_operation
def test_each_function_runs_its_handler_and_is_traced(lock_template: Json, operation: str) -> None:
    _, function = one(lock_template, "AWS::Lambda::Function", operation)
    table, _ = one(lock_template, "AWS::DynamoDB::Table", "Table")
    role, _ = one(lock_template, "AWS::IAM::Role", f"{operation}Role")
    logs, _ = one(lock_template, "AWS::Logs::LogGroup", f"{operation}Logs")
    variables: Json = {"FAIRLOCK_TABLE_NAME": {"Ref": table}}
    if operation == "ReaperReap":
        queue, _ = one(lock_template, "AWS::SQS::Queue", "ReaperQueue")
        variables["FAIRLOCK_REAP_QUEUE_URL"] = {"Ref": queue}
    properties = dict(function["Properties"])
    assert set(properties.pop("Code")) == {"S3Bucket", "S3Key"}
    assert properties.pop("Description").startswith("Fairlock: ")
    loop = in_partition_aws("Allow", otherwise={"Ref": "AWS::NoValue"})
    assert properties.pop("RecursiveLoop", None) == (loop if operation == "ReaperReap" else None)
    assert properties == {
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


def test_the_default_of_tracing_and_architecture_depends_on_the_partition(
    lock_template: Json,
) -> None:
    condition = {"Fn::Equals": [{"Ref": "AWS::Partition"}, "aws"]}
    assert lock_template["Conditions"] == {PARTITION_AWS: condition}


def test_all_functions_share_one_asset(lock_template: Json) -> None:
    functions = resources(lock_template, "AWS::Lambda::Function").values()
    assert len(functions) == len(OPERATIONS)
    assert len({function["Properties"]["Code"]["S3Key"] for function in functions}) == 1


@every_operation
def test_logs_are_retained_for_a_month(lock_template: Json, operation: str) -> None:
    _, logs = one(lock_template, "AWS::Logs::LogGroup", f"{operation}Logs")
    assert logs["Properties"] == {"RetentionInDays": 30}
    assert logs["DeletionPolicy"] == "RetainExceptOnCreate"


@every_operation
def test_each_role_may_do_just_what_its_handler_does(lock_template: Json, operation: str) -> None:
    table, _ = one(lock_template, "AWS::DynamoDB::Table", "Table")
    logs, _ = one(lock_template, "AWS::Logs::LogGroup", f"{operation}Logs")
    role_id, role = one(lock_template, "AWS::IAM::Role", f"{operation}Role")
    _, policy = one(lock_template, "AWS::IAM::Policy", f"{operation}RoleDefaultPolicy")
    table_actions, workflow_actions = ALLOWED[operation]
    expected = [
        allow([f"dynamodb:{action}" for action in table_actions], arn(table)),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], arn(logs)),
        allow(["xray:PutTelemetryRecords", "xray:PutTraceSegments"], "*"),
        *(
            allow([f"states:{action}"], workflows(resource))
            for action, resource in workflow_actions.items()
        ),
        *(queue_statements(lock_template) if operation == "ReaperReap" else ()),
    ]
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    for statement in statements:
        actions = statement["Action"]
        statement["Action"] = sorted([actions] if isinstance(actions, str) else actions)
    assert statements == expected
    assert policy["Properties"]["Roles"] == [{"Ref": role_id}]
    assert set(role["Properties"]) == {"AssumeRolePolicyDocument"}
    [trust] = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


def queue_statements(template: Json) -> list[Json]:
    """Reminders of second looks go in; what an event source mapping does comes out."""
    queue, _ = one(template, "AWS::SQS::Queue", "ReaperQueue")
    consume = ["ReceiveMessage", "ChangeMessageVisibility", "DeleteMessage"]
    look = ["GetQueueUrl", "GetQueueAttributes"]
    return [
        allow(["sqs:SendMessage"], arn(queue)),
        allow([f"sqs:{action}" for action in (*consume, *look)], arn(queue)),
    ]


def allow(actions: list[str], resource: object) -> Json:
    return {"Action": sorted(actions), "Effect": "Allow", "Resource": resource}


def workflows(resource: str) -> Json:
    """All of this kind in the account and region, and nowhere else."""
    region, account = {"Ref": "AWS::Region"}, {"Ref": "AWS::AccountId"}
    parts = ["arn:", {"Ref": "AWS::Partition"}, ":states:", region, ":", account, f":{resource}:*"]
    return {"Fn::Join": ["", parts]}


def test_no_other_policy_is_deployed(lock_template: Json) -> None:
    assert len(resources(lock_template, "AWS::IAM::Policy")) == len(OPERATIONS)
    assert len(resources(lock_template, "AWS::IAM::Role")) == len(OPERATIONS)
    assert resources(lock_template, "AWS::IAM::ManagedPolicy") == {}
    assert resources(lock_template, "AWS::Lambda::Permission") == {}


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
