"""`OptimisticUpdate`: reads an item, lets a task change it, writes it if it is still the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import jsii
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.construct_arguments import check_place, check_states
from fairlock.cdk.machine_checks import MachineChecks
from fairlock.cdk.optimistic.arguments import check_update
from fairlock.cdk.optimistic.expressions import VersionedExpressions
from fairlock.cdk.optimistic.machine_rules import UpdateInMachine
from fairlock.cdk.optimistic.states import VersionedStates
from fairlock.cdk.workflow_variable import WorkflowVariable
from fairlock.protocol.versions import DEFAULT_VERSION_ATTRIBUTE

_DEFAULT_RETRIES: Final = 10


class OptimisticUpdate(sfn.StateMachineFragment):
    """Changes one DynamoDB item by a task, and repeats that until no other writer interferes.

        OptimisticUpdate(self, "Debit", table=accounts,
            key={"account": {"S": "{% $states.input.account %}"}},
            task=tasks.LambdaInvoke.jsonata(self, "Compute", lambda_function=compute,
                payload=sfn.TaskInput.from_object("{% $states.input %}"),
                outputs="{% $states.result.Payload %}"))

    Guarantees: each new item was computed from the item that it replaces; no concurrent update is
    lost, and none is written twice, also if the reply to a write gets lost.

    Not guaranteed: that the task runs once. A conflict repeats everything from reading on, so the
    task must only compute; for work that must happen once, use a `LockGuard`. Writers that use
    neither this construct nor `fairlock.optimistic` must raise the version as well.

    The input is any object. The task gets `{"input": the input, "item": the item, or null}` and
    returns the whole new item, or null to delete it. Items are in DynamoDB's own form
    (`{"balance": {"N": "70"}}`), in both directions: any other would lose digits, sets or bytes.
    The output is the item as it was written, with its version, or null. A task that ends in a
    Succeed of its own ends the update without a write.

    Errors: `VersionConflict` after the last try, nothing was written; the task's own errors, by
    their names; those of DynamoDB (`DynamoDb.…`), as for any task. The input and the item, in
    DynamoDB's form, are together at most 256 KiB, like all payloads of Step Functions. Items may be
    nested as deeply as DynamoDB allows, 32 levels. Works in Standard and Express workflows, with
    JSONPath and JSONata.

    Uncontended it costs one read, one write (at the price of a transaction) and three state
    transitions besides the task. The machine may get, put and delete items of this table; if it is
    encrypted with a key of your own, grant that to the machine.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        table: dynamodb.ITable,
        key: Mapping[str, Mapping[str, object]],
        task: sfn.IChainable,
        version_attribute: str = DEFAULT_VERSION_ATTRIBUTE,
        retries: int = _DEFAULT_RETRIES,
    ) -> None:
        """Declares the update.

        Args:
            scope: the parent construct.
            construct_id: prefixes the names of the update's states.
            table: the item's table.
            key: the item's whole primary key in DynamoDB's form; values may be JSONata over the
                input.
            task: a state, chain or fragment that turns `{input, item}` into the new item.
            version_attribute: the attribute of the item's version, a number; the attribute of this
                name and `_id` holds the id of the write. Items without a version get version 1.
            retries: how many more times to try after a conflict, at most 100; before each is a
                pause with full jitter, of up to 1 s at first and 10 s in the end.

        Raises:
            InvalidRequest: an argument breaks its rule.
        """
        check_place(scope, construct_id)
        check_states("task", task)
        check_update(table, key, version_attribute, retries)
        super().__init__(scope, construct_id)
        variable = WorkflowVariable.of(scope, construct_id, prefix="item")
        states = VersionedStates(
            scope=self,
            table=table,
            variable=variable,
            expressions=VersionedExpressions(
                variable=f"${variable.name}", key_name=next(iter(key)), version=version_attribute
            ),
        )
        body = sfn.Chain.start(states.read(key)).next(task).next(states.write())
        self._tries = states.tries(body, retries=retries)
        MachineChecks.add(self, UpdateInMachine(construct=self, variable=variable.name))

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        """Where the update begins."""
        return self._tries

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        """Where the update ends after the item was written."""
        return [self._tries]
