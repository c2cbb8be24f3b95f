"""Durable functions and the lock service: what each may do with the other."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, Names, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fairlock.cdk.places import first_difference
from fairlock.errors import InvalidRequest
from fairlock.metrics import MEETS_DURABLE_VARIABLE

_ACTIONS: Final = ("lambda:GetDurableExecution", "lambda:SendDurableExecutionCallbackSuccess")
_ANY_FUNCTION: Final = "Any durable function of this account and region may hold a lock."
_ANY_VERSION: Final = "The executions of all versions of this durable function may hold a lock."


def check_function(function: lambda_.IFunction, *, service: Construct) -> None:
    """Checks that the function is one that can hold locks of this service.

    Raises:
        InvalidRequest: it is a version, an alias or an imported function, whose environment cannot
            be set, or stands in another account or region.
    """
    if not isinstance(function, lambda_.Function):
        rule = "must be a lambda_.Function of this app, and neither a version nor an alias of it"
        raise InvalidRequest(field="function", rule=rule, value=type(function).__name__)
    here = Stack.of(service)
    difference = first_difference(here, function.env)
    if difference is not None:
        _, own, other = difference
        rule = f"must be in the service's account and region ({here.account}, {here.region})"
        raise InvalidRequest(field="function", rule=rule, value=f"{other} instead of {own}")


def grant_on_all(scope: Construct, grantee: iam.IGrantable) -> iam.Grant:
    """Allows to wake and to ask about the executions of every durable function of the region."""
    functions = Stack.of(scope).format_arn(
        service="lambda",
        resource="function",
        resource_name="*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return iam.Grant.add_to_principal(
        grantee=grantee, actions=[*_ACTIONS], resource_arns=[functions]
    )


def serve_all(scope: Construct, functions: list[lambda_.Function]) -> None:
    """Lets the service's functions serve every durable function of the account and region."""
    resource = "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:*"
    for each in functions:
        grant_on_all(scope, each)
        each.add_environment(MEETS_DURABLE_VARIABLE, "1")
        if each.role is not None:
            finding = f"AwsSolutions-IAM5[Resource::{resource}]"
            acknowledgment = Acknowledgment(id=finding, reason=_ANY_FUNCTION)
            Validations.of(each.role).acknowledge(acknowledgment)


def serve(durable: lambda_.Function, functions: list[lambda_.Function], service: Construct) -> None:
    """Lets the service's functions serve one durable function.

    The permission stands beside the durable function: its stack refers to the service's, never the
    other way round.
    """
    construct_id = f"ServedBy{Names.unique_resource_name(service, max_length=80)}"
    if durable.node.try_find_child(construct_id) is not None:
        return
    statement = iam.PolicyStatement(
        actions=[*_ACTIONS], resources=[durable.function_arn, f"{durable.function_arn}:*"]
    )
    roles = [each.role for each in functions if each.role is not None]
    policy = iam.Policy(durable, construct_id, statements=[statement], roles=roles)
    logical_id = Stack.of(durable).get_logical_id(durable.node.default_child)  # type: ignore[arg-type]  # a CfnElement
    finding = f"AwsSolutions-IAM5[Resource::<{logical_id}.Arn>:*]"
    Validations.of(policy).acknowledge(Acknowledgment(id=finding, reason=_ANY_VERSION))
    for each in functions:
        each.add_environment(MEETS_DURABLE_VARIABLE, "1")
