"""Workflows that change the balance of an account, with and without a check of its version."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fairlock.cdk import OptimisticUpdate
from tests.e2e.guard.stack import Form, Forms
from tests.e2e.workflow_parts import INPUT

KEY: Final = {"account": {"S": "{% $states.input.account %}"}}
THINKING: Final = sfn.WaitTime.duration(Duration.seconds(1))
"""So long between reading and writing that executions started together overlap."""
BALANCE: Final = "$number($states.input.item.balance.N) - $states.input.input.amount"
OVERDRAWN: Final = f"{{% {BALANCE} < -$number($states.input.item.overdraft.N) %}}"
DEBITED: Final = f"{{% $merge([$states.input.item, {{'balance': {{'N': $string({BALANCE})}}}}]) %}}"


class OptimisticForms(Forms):
    """Machines without a guard; the output `AccountsTable` names the table."""

    def declare(self) -> None:
        self.accounts = dynamodb.Table(
            self,
            "Accounts",
            partition_key=dynamodb.Attribute(name="account", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=RemovalPolicy.DESTROY,
        )
        CfnOutput(self, "AccountsTable", value=self.accounts.table_name)
        self.add("Debit", self._debit, language=None)
        self.add("DebitOnce", partial(self._debit, retries=0), language=None)
        self.add("DebitNaive", self._naive_debit, language=None)
        self.add("Replace", self._replace, language=None)

    def _update(self, form: Form, task: sfn.IChainable, **props: Any) -> OptimisticUpdate:  # noqa: ANN401 - props
        return OptimisticUpdate(form, "Update", table=self.accounts, key=KEY, task=task, **props)

    def _debit(self, form: Form, **props: Any) -> OptimisticUpdate:  # noqa: ANN401 - same
        """Takes the amount off the balance; fails with Overdrawn below the overdraft limit."""
        return self._update(form, computes(form), **props)

    def _naive_debit(self, form: Form) -> sfn.IChainable:
        """The control: reads, computes, and writes without a condition."""
        read, write = (
            tasks.CallAwsService.jsonata(
                form,
                action,
                service="dynamodb",
                action=action,
                parameters={"TableName": self.accounts.table_name, **parameters},
                iam_resources=[self.accounts.table_arn],
                outputs=outputs,
            )
            for action, parameters, outputs in (
                (
                    "getItem",
                    {"Key": KEY, "ConsistentRead": True},
                    {"input": INPUT, "item": "{% $states.result.Item %}"},
                ),
                ("putItem", {"Item": INPUT}, None),
            )
        )
        return read.next(computes(form)).next(write)

    def _replace(self, form: Form) -> OptimisticUpdate:
        """Writes what the execution's input says, null included; shows what it was given."""
        stop = sfn.Succeed.jsonata(form, "Enough", outputs=INPUT)
        choice = sfn.Choice.jsonata(form, "Only reads?")
        choice.when(sfn.Condition.jsonata("{% $exists($states.input.input.only_read) %}"), stop)
        choice.otherwise(sfn.Pass(form, "Give", output_path="$.input.new"))
        return self._update(form, choice.afterwards())


def computes(form: Form) -> sfn.Chain:
    """The item with its new balance, after a while."""
    think = sfn.Wait.jsonata(form, "Thinks", time=THINKING)
    choice = sfn.Choice.jsonata(form, "Overdrawn?")
    choice.when(sfn.Condition.jsonata(OVERDRAWN), sfn.Fail(form, "Refuses", error="Overdrawn"))
    choice.otherwise(sfn.Pass.jsonata(form, "Debits", outputs=DEBITED))
    return sfn.Chain.start(think).next(choice.afterwards())
