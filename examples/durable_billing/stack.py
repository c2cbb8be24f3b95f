"""The example's stack: a durable function that may hold locks, and a table of customers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fairlock.cdk import LockService
from infra.durable_package import package

FUNCTION: Final = Path(__file__).resolve().parent / "function"


class DurableBilling(Stack):
    """One durable function, `{customer_id, amount, settles_after_seconds}`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        locks: LockService,
        built: Path,
        **stack_props: Any,  # noqa: ANN401 - the props of Stack
    ) -> None:
        """Declares the stack.

        Args:
            scope: the app.
            construct_id: the stack's name.
            locks: the lock service.
            built: a new directory, for the function's package.
            stack_props: props of `aws_cdk.Stack`.
        """
        super().__init__(scope, construct_id, **stack_props)
        customers = dynamodb.Table(
            self,
            "Customers",
            partition_key=dynamodb.Attribute(
                name="customer_id", type=dynamodb.AttributeType.STRING
            ),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=RemovalPolicy.DESTROY,
        )
        function = lambda_.Function(
            self,
            "Billing",
            code=lambda_.Code.from_asset(str(package(FUNCTION, built))),
            handler="billing.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            timeout=Duration.minutes(1),
            durable_config=lambda_.DurableConfig(execution_timeout=Duration.days(7)),
            environment={"CUSTOMERS_TABLE_NAME": customers.table_name},
        )
        customers.grant_read_write_data(function)
        locks.grant_durable(function)
        CfnOutput(self, "BillingFunctionName", value=function.function_name)
        CfnOutput(self, "CustomersTableName", value=customers.table_name)
