"""Corrections table_settings, function_settings, fresh_names, alarm_metrics and saved_queries."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError

from testbed.localaws.workbench import ROLE_ARN, Workbench

WithoutCorrection = Callable[..., Workbench]

KEY = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "TimeToLiveSpecification": {"AttributeName": "expiry_time", "Enabled": True},
    "SSESpecification": {"SSEEnabled": True},
}
RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
TABLES = {
    "AWS::DynamoDB::Table": {**KEY, **RECOVERY, "DeletionProtectionEnabled": True},
    "AWS::DynamoDB::GlobalTable": {
        **KEY,
        "Replicas": [{"Region": "us-east-1", **RECOVERY, "DeletionProtectionEnabled": True}],
    },
}


def create(bench: Workbench, stack: str, resource_type: str, properties: object) -> str:
    cloudformation = bench.aws.client("cloudformation")
    resource = {"Type": resource_type, "Properties": properties}
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=json.dumps({"Resources": {"It": resource}}),
        Capabilities=["CAPABILITY_IAM"],
    )
    wait(cloudformation, "stack_create_complete", stack)
    found = cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId="It")
    return str(found["StackResourceDetail"]["PhysicalResourceId"])


def wait(cloudformation: Any, waiter: str, stack: str) -> None:
    settings = {"Delay": 0.05, "MaxAttempts": 200}
    cloudformation.get_waiter(waiter).wait(StackName=stack, WaiterConfig=settings)


def table_settings(bench: Workbench, resource_type: str) -> dict[str, Any]:
    stack = f"table-{resource_type.rsplit(':', 1)[-1]}"
    table = create(bench, stack, resource_type, TABLES[resource_type])
    described = bench.tables.describe_table(TableName=table)["Table"]
    backups = bench.tables.describe_continuous_backups(TableName=table)
    ttl = bench.tables.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    recovery = backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
    return {
        "ttl": (ttl["TimeToLiveStatus"], ttl.get("AttributeName")),
        "recovery": recovery["PointInTimeRecoveryStatus"],
        "encryption": described.get("SSEDescription", {}).get("Status"),
        "protected": described["DeletionProtectionEnabled"],
    }


AS_WRITTEN = {
    "ttl": ("ENABLED", "expiry_time"),
    "recovery": "ENABLED",
    "encryption": "ENABLED",
    "protected": True,
}


@pytest.mark.parametrize("resource_type", TABLES)
def test_a_table_is_as_its_template_says(corrected: Workbench, resource_type: str) -> None:
    assert table_settings(corrected, resource_type) == AS_WRITTEN


@pytest.mark.parametrize("resource_type", TABLES)
def test_control_a_table_is_not(left_out: WithoutCorrection, resource_type: str) -> None:
    found = table_settings(left_out("table_settings"), resource_type)
    assert found["ttl"] == ("DISABLED", None)
    assert found["recovery"] == "DISABLED"
    assert found["encryption"] is None


def status_after_delete(bench: Workbench, stack: str) -> str:
    cloudformation = bench.aws.client("cloudformation")
    create(bench, stack, "AWS::DynamoDB::Table", TABLES["AWS::DynamoDB::Table"])
    stack_id = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackId"]
    cloudformation.delete_stack(StackName=stack)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"]
        if status != "DELETE_IN_PROGRESS":
            return str(status)
        time.sleep(0.01)
    raise AssertionError(f"{stack} is still being deleted")


def test_a_protected_table_is_not_deleted(corrected: Workbench) -> None:
    assert status_after_delete(corrected, "protected") == "DELETE_FAILED"


def test_control_a_protected_table_is_deleted(left_out: WithoutCorrection) -> None:
    assert status_after_delete(left_out("table_settings"), "protected") == "DELETE_COMPLETE"


LETTERS = "arn:aws:sqs:us-east-1:000000000000:letters"


def function_settings(bench: Workbench) -> tuple[Any, Any, Any]:
    properties = {
        "Runtime": "python3.13",
        "Handler": "index.handler",
        "Role": ROLE_ARN,
        "Code": {"ZipFile": "def handler(event, context): return event"},
        "DeadLetterConfig": {"TargetArn": LETTERS},
        "ReservedConcurrentExecutions": 3,
        "DurableConfig": {"ExecutionTimeout": 60},
    }
    function = create(bench, "function", "AWS::Lambda::Function", properties)
    config = bench.functions.get_function_configuration(FunctionName=function)
    reserved = bench.functions.get_function_concurrency(FunctionName=function)
    letters = config.get("DeadLetterConfig", {}).get("TargetArn")
    return letters, reserved.get("ReservedConcurrentExecutions"), config.get("DurableConfig")


def test_a_function_has_its_letters_concurrency_and_durability(
    corrected: Workbench,
) -> None:
    assert function_settings(corrected) == (LETTERS, 3, {"ExecutionTimeout": 60})


def test_control_a_function_has_none_of_them(left_out: WithoutCorrection) -> None:
    assert function_settings(left_out("function_settings")) == (None, None, None)


ALARM = {
    "ComparisonOperator": "GreaterThanOrEqualToThreshold",
    "EvaluationPeriods": 1,
    "Threshold": 10,
}
ERRORS = {
    "Namespace": "AWS/Lambda",
    "MetricName": "Errors",
    "Dimensions": [{"Name": "FunctionName", "Value": "acquire"}],
}


def listed(stat: str) -> dict[str, Any]:
    measured = {"Metric": ERRORS, "Period": 300, "Stat": stat}
    return {**ALARM, "Metrics": [{"Id": "m1", "Label": "Acquire", "MetricStat": measured}]}


@pytest.mark.parametrize(("stat", "kind"), [("Sum", "Statistic"), ("p99", "ExtendedStatistic")])
def test_an_alarm_of_one_listed_metric_watches_that_metric(
    corrected: Workbench, stat: str, kind: str
) -> None:
    name = create(corrected, f"alarm-{stat}", "AWS::CloudWatch::Alarm", listed(stat))
    [alarm] = corrected.aws.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    assert {key: alarm[key] for key in ERRORS} == ERRORS
    assert (alarm["Period"], alarm[kind], alarm["Threshold"]) == (300, stat, 10)


def test_control_an_alarm_of_one_listed_metric_is_refused(left_out: WithoutCorrection) -> None:
    with pytest.raises(WaiterError):
        create(left_out("alarm_metrics"), "alarm", "AWS::CloudWatch::Alarm", listed("Sum"))


QUERY = {"Name": "locks/Lost", "QueryString": "fields @message | limit 20"}


def saved(bench: Workbench, prefix: str) -> list[dict[str, Any]]:
    logs = bench.aws.client("logs")
    answer = logs.describe_query_definitions(queryDefinitionNamePrefix=prefix)
    return list(answer["queryDefinitions"])


def test_a_query_of_a_template_is_saved_changed_and_deleted(corrected: Workbench) -> None:
    cloudformation = corrected.aws.client("cloudformation")
    name = "AWS::Logs::QueryDefinition"
    query_id = create(corrected, "query", name, {**QUERY, "LogGroupNames": ["/acquire"]})
    [query] = saved(corrected, "locks/")
    assert query["queryDefinitionId"] == query_id
    assert query["queryString"] == QUERY["QueryString"]
    assert query["logGroupNames"] == ["/acquire"]
    changed = {"It": {"Type": name, "Properties": {**QUERY, "QueryString": "fields @timestamp"}}}
    cloudformation.update_stack(StackName="query", TemplateBody=json.dumps({"Resources": changed}))
    wait(cloudformation, "stack_update_complete", "query")
    [query] = saved(corrected, "locks/")
    assert (query["queryDefinitionId"], query["queryString"]) == (query_id, "fields @timestamp")
    cloudformation.delete_stack(StackName="query")
    wait(cloudformation, "stack_delete_complete", "query")
    assert saved(corrected, "locks/") == []


def test_a_query_is_saved_by_a_call_and_an_unknown_id_is_refused(corrected: Workbench) -> None:
    logs = corrected.aws.client("logs")
    put = {"name": "by hand", "queryString": "limit 1"}
    query_id = logs.put_query_definition(**put)["queryDefinitionId"]
    assert logs.put_query_definition(**put, queryDefinitionId=query_id)["queryDefinitionId"]
    assert [query["name"] for query in saved(corrected, "by ")] == ["by hand"]
    assert logs.delete_query_definition(queryDefinitionId=query_id)["success"] is True
    for call, request in (
        (logs.put_query_definition, put),
        (logs.delete_query_definition, {}),
    ):
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            call(**request, queryDefinitionId=query_id)


def test_control_a_stack_with_a_query_is_refused(left_out: WithoutCorrection) -> None:
    with pytest.raises(ClientError, match=r"Unrecognized resource types.*QueryDefinition"):
        create(left_out("saved_queries"), "query", "AWS::Logs::QueryDefinition", QUERY)
