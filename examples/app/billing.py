"""The CDK app: a lock service, and a workflow that charges each customer once at a time."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService

HERE = Path(__file__).resolve().parent


class Billing(Stack):
    """Everything that the app deploys."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        locks = LockService(self, "Locks")
        locks.share()  # so that scripts find the lock table by the stack's name
        accounts = dynamodb.TableV2(
            self,
            "Accounts",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            removal_policy=RemovalPolicy.DESTROY,  # remove this line before you store anything real
        )
        charge = lambda_.Function(
            self,
            "Charge",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_asset(str(HERE / "charge")),
            environment={"ACCOUNTS": accounts.table_name},
        )
        accounts.grant_write_data(charge)
        guard = LockGuard(
            self,
            "OneChargePerCustomer",
            service=locks,
            task=tasks.LambdaInvoke.jsonata(
                self,
                "ChargeCustomer",
                lambda_function=charge,
                payload=sfn.TaskInput.from_object(
                    {
                        "customer_id": "{% $states.input.customer_id %}",
                        "fencing_token": LockGuard.fencing_token_of(self, "OneChargePerCustomer"),
                    }
                ),
            ),
            # An execution without a customer_id fails here, instead of locking "customer/" for all.
            lock_name=sfn.JsonPath.format("customer/{}", sfn.JsonPath.string_at("$.customer_id")),
            max_wait=Duration.minutes(30),
        )
        machine = sfn.StateMachine(
            self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(guard)
        )
        CfnOutput(self, "MachineArn", value=machine.state_machine_arn)
        CfnOutput(self, "LockTableName", value=locks.table_name)


if __name__ == "__main__":
    app = App()
    Billing(app, "Billing")
    app.synth()
