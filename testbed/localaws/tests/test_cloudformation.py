"""Corrections table_settings, function_settings, fresh_names, alarm_metrics and saved_queries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError

from testbed.localaws import CdkError, LocalAws
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
    settings = {"Delay": 0.05, "MaxAttempts": 1200}
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


# Bootstrap, deploy and destroy with the real CDK CLI, from an assembly written by hand.


STACK = {
    "Resources": {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                "BillingMode": "PAY_PER_REQUEST",
            },
        }
    },
    "Outputs": {"TableName": {"Value": {"Ref": "Table"}}},
}


@pytest.fixture(scope="module")
def own_aws() -> Iterator[LocalAws]:
    with LocalAws() as running:
        running.bootstrap()
        yield running


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    """What `cdk synth` would have written for one stack without assets."""
    stack = {
        "type": "aws:cloudformation:stack",
        "environment": "aws://000000000000/us-east-1",
        "properties": {"templateFile": "Small.template.json"},
    }
    manifest = {"version": "48.0.0", "artifacts": {"Small": stack}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "Small.template.json").write_text(json.dumps(STACK))
    return tmp_path


def test_a_stack_is_deployed_and_destroyed_without_the_users_files(
    own_aws: LocalAws, assembly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_PROFILE", "production")
    outputs = own_aws.deploy(stacks=("Small",), app=assembly)
    table = outputs["Small"]["TableName"]
    assert own_aws.client("dynamodb").list_tables()["TableNames"] == [table]
    own_aws.destroy(stacks=("Small",), app=assembly)
    assert own_aws.client("dynamodb").list_tables()["TableNames"] == []
    assert list(home.iterdir()) == []


def test_the_account_is_bootstrapped_as_the_cli_does_it(own_aws: LocalAws) -> None:
    version = own_aws.client("ssm").get_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    assert int(version["Parameter"]["Value"]) >= 21  # what aws-cdk-lib 2.275 asks for at most
    buckets = [bucket["Name"] for bucket in own_aws.client("s3").list_buckets()["Buckets"]]
    assert buckets == ["cdk-hnb659fds-assets-000000000000-us-east-1"]


def test_an_app_that_fails_is_reported_with_its_output(own_aws: LocalAws, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("raise SystemExit('this app is broken on purpose')\n")
    with pytest.raises(CdkError, match="this app is broken on purpose"):
        own_aws.deploy(stacks=("Small",), app=f"python3 {app}")


# Correction fresh_names, and what a DeletionPolicy does.


ITEM = {"pk": {"S": "held"}}


def table(policy: str, **properties: str) -> dict[str, Any]:
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": policy,
        "UpdateReplacePolicy": "Retain",
        "Properties": {**KEY, **properties},
    }


def created(bench: Workbench, stack: str, **resources: object) -> str:
    """Creates a stack; answers the name of its table."""
    cloudformation = bench.aws.client("cloudformation")
    cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps({"Resources": resources}))
    wait(cloudformation, "stack_create_complete", stack)
    return table_of(bench, stack)


def table_of(bench: Workbench, stack: str) -> str:
    cloudformation = bench.aws.client("cloudformation")
    found = cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId="It")
    return str(found["StackResourceDetail"]["PhysicalResourceId"])


def deleted(bench: Workbench, stack: str) -> None:
    cloudformation = bench.aws.client("cloudformation")
    stack_id = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackId"]
    cloudformation.delete_stack(StackName=stack)
    wait(cloudformation, "stack_delete_complete", stack_id)


def names_and_item(bench: Workbench, stack: str) -> tuple[bool, bool]:
    """Whether a stack that is created again has another table, and the first one its item."""
    first = created(bench, stack, It=table("Retain"))
    bench.tables.put_item(TableName=first, Item=ITEM)
    deleted(bench, stack)
    second = created(bench, stack, It=table("Retain"))
    kept = bench.tables.get_item(TableName=first, Key=ITEM)
    return first != second, "Item" in kept


def test_a_stack_that_is_created_again_makes_a_second_table(corrected: Workbench) -> None:
    """CloudFormation user guide, "DeletionPolicy attribute": a retained resource is left alone."""
    assert names_and_item(corrected, "again") == (True, True)


def test_control_a_stack_that_is_created_again_empties_its_table(
    left_out: WithoutCorrection,
) -> None:
    assert names_and_item(left_out("fresh_names"), "again") == (False, False)


def test_a_name_stays_as_long_as_its_stack(corrected: Workbench) -> None:
    first = created(corrected, "stays", It=table("Retain"))
    cloudformation = corrected.aws.client("cloudformation")
    changed = table("Retain", DeletionProtectionEnabled="true")
    cloudformation.update_stack(
        StackName="stays", TemplateBody=json.dumps({"Resources": {"It": changed}})
    )
    wait(cloudformation, "stack_update_complete", "stays")
    assert table_of(corrected, "stays") == first


def taken_name(bench: Workbench) -> bool:
    """Whether the table of a taken name still has its item afterwards."""
    name = created(bench, "named", It=table("Retain", TableName="locks"))
    bench.tables.put_item(TableName=name, Item=ITEM)
    deleted(bench, "named")
    created(bench, "named", It=table("Retain", TableName="locks"))
    return "Item" in bench.tables.get_item(TableName=name, Key=ITEM)


def test_a_table_whose_name_is_taken_is_not_created(corrected: Workbench) -> None:
    """DynamoDB API reference, CreateTable, ResourceInUseException."""
    with pytest.raises(WaiterError):
        taken_name(corrected)
    assert "Item" in corrected.tables.get_item(TableName="locks", Key=ITEM)


def test_control_a_table_whose_name_is_taken_is_emptied(left_out: WithoutCorrection) -> None:
    assert taken_name(left_out("fresh_names")) is False


@pytest.mark.parametrize(("policy", "left"), [("Retain", True), ("RetainExceptOnCreate", False)])
def test_what_a_failed_creation_leaves_its_deletion_policy_decides(
    corrected: Workbench,
    policy: str,
    left: bool,  # noqa: FBT001 - a parameter
) -> None:
    """CloudFormation user guide, "DeletionPolicy attribute", "DeletionPolicy options"."""
    name = f"left-by-{policy}"
    made = table(policy, TableName=name)
    fails = {**table("Delete", TableName=corrected.table()), "DependsOn": "It"}
    with pytest.raises(WaiterError):
        created(corrected, name, It=made, Fails=fails)
    assert (name in corrected.tables.list_tables()["TableNames"]) is left
