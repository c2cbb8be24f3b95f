"""The demo's workflows: the same task bare, in a guard that queues, in a guard that polls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aws_cdk import Acknowledgment, CfnOutput, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, Waiting

TASK_CODE: Final = Path(__file__).resolve().parent.parent / "examples" / "demo" / "task"
LEASE: Final = Duration.seconds(10)
"""Much longer than the reaper takes, so that its hand-off is not mistaken for the lease's end."""
FALLBACK: Final = Duration.seconds(10)
"""The shortest period allowed: if the reaper failed, the demo would soon show it."""

_REASONS: Final = {
    "L1": "The task is tested with python3.13.",
    "SF1": "The demo reads the histories of its executions instead of logs.",
    "SF2": "The demo needs no traces.",
}
"""Why the demo does not follow these rules of cdk-nag."""


class DemoStack(Stack):
    """A table of accounts, a task that charges one without any condition, and three workflows.

    All take `{account_id, amount, work_seconds, fail?}`. The task of the guarded ones holds the
    lock `account/<account_id>`: `guarded` waits in its queue, `polling` by polling. `unguarded`
    loses updates. Everything is destroyed with the stack.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        locks: ILockService,
        **stack_props: Any,  # noqa: ANN401 - the props of Stack
    ) -> None:
        """Declares the stack; `locks` decides who may charge an account."""
        super().__init__(scope, construct_id, **stack_props)
        self.accounts = dynamodb.TableV2(
            self,
            "Accounts",
            partition_key=dynamodb.Attribute(name="account_id", type=dynamodb.AttributeType.STRING),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.charge = self._charge_function()
        self.unguarded = self._machine("Unguarded", self._charge_state("ChargeAtOnce"))
        queue = self._guard("OneChargePerAccount", locks, Waiting.queue(fallback=FALLBACK))
        self.guarded = self._machine("Guarded", queue)
        poll = self._guard("OneChargePerAccountByPolling", locks, Waiting.poll())
        self.polling = self._machine("Polling", poll)
        outputs = {
            "AccountsTableName": self.accounts.table_name,
            "ChargeFunctionName": self.charge.function_name,
            "UnguardedStateMachineArn": self.unguarded.state_machine_arn,
            "GuardedStateMachineArn": self.guarded.state_machine_arn,
            "PollingStateMachineArn": self.polling.state_machine_arn,
            "LeaseSeconds": str(LEASE.to_seconds()),
            "FallbackSeconds": str(FALLBACK.to_seconds()),
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        Validations.of(self).acknowledge(
            *(Acknowledgment(id=f"AwsSolutions-{rule}", reason=_REASONS[rule]) for rule in _REASONS)
        )

    def _charge_function(self) -> lambda_.Function:
        log_group = logs.LogGroup(
            self,
            "ChargeLogs",
            retention=logs.RetentionDays.ONE_WEEK,
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, "ChargeRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        self.accounts.grant(role, "dynamodb:GetItem", "dynamodb:PutItem")
        return lambda_.Function(
            self,
            "ChargeFunction",
            description="Fairlock demo: charges an account, without any condition",
            code=lambda_.Code.from_asset(str(TASK_CODE), exclude=["__pycache__"]),
            handler="charge.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            timeout=Duration.seconds(30),
            role=role,
            log_group=log_group,
            environment={"ACCOUNTS_TABLE_NAME": self.accounts.table_name},
        )

    def _charge_state(
        self, construct_id: str, *, fencing_token: str | None = None
    ) -> tasks.LambdaInvoke:
        """The task's state. The execution's name is the id of the charge.

        No retry, not even CDK's usual one: a charge whose reply was lost would be made twice.
        """
        charge = {
            "charge_id": "{% $states.context.Execution.Name %}",
            "account_id": "{% $states.input.account_id %}",
            "amount": "{% $states.input.amount %}",
            "work_seconds": "{% $states.input.work_seconds %}",
            "fail": "{% $exists($states.input.fail) and $states.input.fail %}",
        }
        if fencing_token is not None:
            charge["fencing_token"] = fencing_token
        return tasks.LambdaInvoke.jsonata(
            self,
            construct_id,
            lambda_function=self.charge,
            payload=sfn.TaskInput.from_object(charge),
            outputs="{% $states.result.Payload %}",
            retry_on_service_exceptions=False,
        )

    def _guard(self, construct_id: str, locks: ILockService, waiting: Waiting) -> LockGuard:
        token = LockGuard.fencing_token_of(self, construct_id)
        return LockGuard(
            self,
            construct_id,
            service=locks,
            task=self._charge_state(f"Charge{construct_id}", fencing_token=token),
            lock_name="{% 'account/' & $states.input.account_id %}",
            lease=LEASE,
            max_wait=Duration.minutes(2),
            waiting=waiting,
        )

    def _machine(self, construct_id: str, work: sfn.IChainable) -> sfn.StateMachine:
        return sfn.StateMachine(
            self,
            construct_id,
            definition_body=sfn.DefinitionBody.from_chainable(work),
            timeout=Duration.minutes(10),
        )
