"""What a principal may do that uses the lock table itself, as `LockClient` does."""

from __future__ import annotations

from typing import Final

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam

_TABLE_ACTIONS: Final = (
    "ConditionCheckItem",
    "DeleteItem",
    "GetItem",
    "PutItem",
    "Query",
    "UpdateItem",
)


def grant_table(table: dynamodb.ITable, grantee: iam.IGrantable) -> iam.Grant:
    """All requests of the protocol, guarded writes included, with the table's key if it has one."""
    if table.encryption_key is not None:
        table.encryption_key.grant_encrypt_decrypt(grantee)
    return table.grant(grantee, *(f"dynamodb:{action}" for action in _TABLE_ACTIONS))


def grant_workflows(stack: Stack, grantee: iam.IGrantable) -> iam.Grant:
    """To wake workflows that wait, and to ask whether one that holds a lock still runs."""
    # Why on state machines: see `FunctionMaker.let_complete_tasks`.
    wake = _grant(stack, grantee, action="SendTaskSuccess", resource="stateMachine")
    return wake.combine(_grant(stack, grantee, action="DescribeExecution", resource="execution"))


def _grant(stack: Stack, grantee: iam.IGrantable, *, action: str, resource: str) -> iam.Grant:
    workflows = stack.format_arn(
        service="states",
        resource=resource,
        resource_name="*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return iam.Grant.add_to_principal(
        grantee=grantee, actions=[f"states:{action}"], resource_arns=[workflows]
    )
