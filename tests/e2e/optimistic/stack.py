"""Workflows that change the balance of an account, with and without a check of its version."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, OptimisticUpdate

KEY: Final = {"account": {"S": "{% $states.input.account %}"}}
THINKING_SECONDS: Final = 1
"""So long between reading and writing that executions started together overlap."""


class OptimisticForms(Stack):
    """One state machine a form: the output `<form>Arn` names it, `AccountsTable` the table."""

    def __init__(self, scope: Construct, construct_id: str, *, locks: ILockService) -> None:  # noqa: ARG002 - as all stacks of workflows
        super().__init__(scope, construct_id)
        self.accounts = dynamodb.Table(
            self,
            "Accounts",
            partition_key=dynamodb.Attribute(name="account", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=RemovalPolicy.DESTROY,
        )
        CfnOutput(self, "AccountsTable", value=self.accounts.table_name)
        self._machine("Debit", self._debit())
        self._machine("DebitOnce", self._debit("Once", retries=0))
        self._machine("DebitNaive", self._naive_debit())
        self._machine("Replace", self._replace())

    def _machine(self, name: str, body: sfn.IChainable) -> None:
        machine = sfn.StateMachine(
            self, name, definition_body=sfn.DefinitionBody.from_chainable(body)
        )
        CfnOutput(self, f"{name}Arn", value=machine.state_machine_arn)

    def _debit(self, name: str = "Debit", **props: Any) -> OptimisticUpdate:  # noqa: ANN401 - props
        """Takes the amount off the balance; fails with Overdrawn below the overdraft limit."""
        return OptimisticUpdate(
            self, f"{name}Update", table=self.accounts, key=KEY, task=self._compute(name), **props
        )

    def _compute(self, name: str) -> sfn.Chain:
        scope = Construct(self, f"{name}Task")
        balance = "$number($states.input.item.balance.N) - $states.input.input.amount"
        overdrawn = f"{balance} < -$number($states.input.item.overdraft.N)"
        think = sfn.Wait.jsonata(
            scope, f"{name} thinks", time=sfn.WaitTime.duration(Duration.seconds(THINKING_SECONDS))
        )
        debit = sfn.Pass.jsonata(
            scope,
            f"{name} debits",
            outputs=(
                f"{{% $merge([$states.input.item, {{'balance': {{'N': $string({balance})}}}}]) %}}"
            ),
        )
        refuse = sfn.Fail(scope, f"{name} refuses", error="Overdrawn")
        choice = sfn.Choice.jsonata(scope, f"{name} overdrawn?")
        choice.when(sfn.Condition.jsonata(f"{{% {overdrawn} %}}"), refuse)
        choice.otherwise(debit)
        return sfn.Chain.start(think).next(choice.afterwards())

    def _naive_debit(self) -> sfn.IChainable:
        """The control: reads, computes, and writes without a condition."""
        read = tasks.CallAwsService.jsonata(
            self,
            "NaiveRead",
            service="dynamodb",
            action="getItem",
            parameters={
                "TableName": self.accounts.table_name,
                "Key": KEY,
                "ConsistentRead": True,
            },
            iam_resources=[self.accounts.table_arn],
            outputs={"input": "{% $states.input %}", "item": "{% $states.result.Item %}"},
        )
        write = tasks.CallAwsService.jsonata(
            self,
            "NaiveWrite",
            service="dynamodb",
            action="putItem",
            parameters={
                "TableName": self.accounts.table_name,
                "Item": "{% $states.input %}",
            },
            iam_resources=[self.accounts.table_arn],
        )
        return read.next(self._compute("Naive")).next(write)

    def _replace(self) -> OptimisticUpdate:
        """Writes what the execution's input says, null included; shows what it was given."""
        scope = Construct(self, "ReplaceTask")
        stop = sfn.Succeed.jsonata(scope, "Enough", outputs="{% $states.input %}")
        give = sfn.Pass(scope, "Give", output_path="$.input.new")
        choice = sfn.Choice.jsonata(scope, "Only reads?")
        choice.when(sfn.Condition.jsonata("{% $exists($states.input.input.only_read) %}"), stop)
        choice.otherwise(give)
        return OptimisticUpdate(
            self, "ReplaceUpdate", table=self.accounts, key=KEY, task=choice.afterwards()
        )
