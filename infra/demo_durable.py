"""The demo's durable function, which takes the same locks as the demo's workflows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from aws_cdk import Acknowledgment, CfnOutput, Duration, Stack, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fairlock.cdk import LockService
from infra.durable_package import package

SOURCE: Final = Path(__file__).resolve().parent.parent / "examples" / "demo" / "durable_task"


class DemoDurable(Stack):
    """One durable function, `{charge_id, account_id, amount}`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        locks: LockService,
        accounts: dynamodb.ITableV2,
        **stack_props: Any,  # noqa: ANN401 - the props of Stack
    ) -> None:
        """Declares the stack beside the lock service, over the table of the demo's accounts."""
        super().__init__(scope, construct_id, **stack_props)
        with tempfile.TemporaryDirectory() as directory:
            # CDK copies it into the cloud assembly at once.
            built = package(SOURCE, Path(directory, "function"))
            function = lambda_.Function(
                self,
                "DurableCharge",
                description="Fairlock demo: charges an account, and sleeps in between",
                code=lambda_.Code.from_asset(str(built)),
                handler="durable_charge.handler",
                runtime=lambda_.Runtime.PYTHON_3_13,
                architecture=lambda_.Architecture.ARM_64,
                timeout=Duration.seconds(60),
                durable_config=lambda_.DurableConfig(execution_timeout=Duration.hours(1)),
                environment={"ACCOUNTS_TABLE_NAME": accounts.table_name},
            )
        accounts.grant(function, "dynamodb:GetItem", "dynamodb:PutItem")
        locks.grant_durable(function)
        CfnOutput(self, "DurableChargeFunctionName", value=function.function_name)
        # Why the demo does not follow these rules of cdk-nag.
        policy = "service-role/AWSLambdaBasicDurableExecutionRolePolicy"
        reasons = {
            "L1": "The function is tested with python3.13.",
            f"IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{policy}]": (
                "CDK gives AWS's own policy to every durable function."
            ),
        }
        Validations.of(self).acknowledge(
            *(
                Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason)
                for rule, reason in reasons.items()
            )
        )
