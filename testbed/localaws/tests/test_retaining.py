"""Correction fresh_names, and what a DeletionPolicy does."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import WaiterError

from testbed.localaws.tests.test_cloudformation import KEY, wait
from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]
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
