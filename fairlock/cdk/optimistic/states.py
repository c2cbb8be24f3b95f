"""The states of `OptimisticUpdate`: read, conditional write, and what a conflict leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk.optimistic.expressions import VersionedExpressions
from fairlock.cdk.repeats import (
    ANY_ERROR,
    ERROR_OUTPUT,
    EVALUATION_ERROR,
    never_repeat,
    repeat,
)
from fairlock.cdk.workflow_variable import WorkflowVariable, jsonata
from fairlock.errors import VersionConflict

_CANCELLED: Final = "DynamoDb.TransactionCanceledException"
_NOT_WORTH_REPEATING: Final = (_CANCELLED, EVALUATION_ERROR)
_REPEATS: Final = 5
_LONGEST_PAUSE_SECONDS: Final = 10
_TIMEOUT: Final = Duration.seconds(30)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedStates:
    """Makes the states of one update, which share its variable and the prefix of their names.

    The variable hands on from `read` to `write`: the key, the condition that the item is unchanged,
    its next version, and the request token, which is also the id of the write.
    """

    scope: Construct
    table: dynamodb.ITable
    variable: WorkflowVariable
    expressions: VersionedExpressions

    @property
    def conflict(self) -> str:
        """The error of a conflict in this very update, which must not repeat those of others."""
        return f"{VersionConflict.__name__}.{self.variable.name}"

    def read(self, key: Mapping[str, object]) -> tasks.CallAwsService:
        """Reads the item, strongly consistent; hands on `{input, item}`."""
        read = tasks.CallAwsService.jsonata(
            self.scope,
            self.variable.state_name("Read"),
            service="dynamodb",
            action="getItem",
            parameters={"TableName": self.table.table_name, "Key": key, "ConsistentRead": True},
            iam_action="dynamodb:GetItem",
            iam_resources=[self.table.table_arn],
            assign={self.variable.name: {"key": key, **self.expressions.for_write()}},
            outputs=self.expressions.read_output(),
            task_timeout=sfn.Timeout.duration(_TIMEOUT),
        )
        _repeat_unknown(read)
        return read

    def write(self) -> tasks.CallAwsService:
        """Writes its input in the place of the item that was read, or deletes that item for null.

        A transaction of one write may be repeated under its request token: so a write whose reply
        was lost is not taken for a conflict.
        """
        write = tasks.CallAwsService.jsonata(
            self.scope,
            self.variable.state_name("Write"),
            service="dynamodb",
            action="transactWriteItems",
            parameters={
                "ClientRequestToken": self.variable.jsonata("token"),
                "TransactItems": [self.expressions.transaction(table_name=self.table.table_name)],
            },
            iam_action="dynamodb:PutItem",
            iam_resources=[self.table.table_arn],
            additional_iam_statements=[
                iam.PolicyStatement(
                    actions=["dynamodb:DeleteItem"], resources=[self.table.table_arn]
                )
            ],
            outputs=self.expressions.write_output(),
            task_timeout=sfn.Timeout.duration(_TIMEOUT),
        )
        _repeat_unknown(write)
        write.add_catch(self._conflict(), errors=[_CANCELLED], outputs=ERROR_OUTPUT)
        return write

    def tries(self, body: sfn.IChainable, *, retries: int) -> sfn.Parallel:
        """Repeats the whole update after a conflict, from reading on."""
        tries = sfn.Parallel.jsonata(
            self.scope, self.variable.state_name("Update"), outputs=jsonata("$states.result[0]")
        )
        tries.branch(body)
        tries.add_retry(
            errors=[self.conflict],
            interval=Duration.seconds(1),
            backoff_rate=1.5,
            max_delay=Duration.seconds(_LONGEST_PAUSE_SECONDS),
            max_attempts=retries,
            jitter_strategy=sfn.JitterType.FULL,
        )
        gave_up = self._gave_up(retries=retries)
        tries.add_catch(gave_up, errors=[self.conflict], outputs=ERROR_OUTPUT)
        return tries

    def _conflict(self) -> sfn.Fail:
        """Ends one try. A write that DynamoDB calls invalid is no conflict and is not repeated."""
        invalid = "$contains($states.input.Cause, 'ValidationError')"
        return sfn.Fail.jsonata(
            self.scope,
            self.variable.state_name("Conflict"),
            error=jsonata(f"{invalid} ? $states.input.Error : '{self.conflict}'"),
            cause=jsonata("$states.input.Cause"),
        )

    def _gave_up(self, *, retries: int) -> sfn.Fail:
        return sfn.Fail.jsonata(
            self.scope,
            self.variable.state_name("Gave up"),
            error=VersionConflict.__name__,
            cause=f"the item was changed by others before each of {retries + 1} tries to write it",
        )


def _repeat_unknown(call: tasks.CallAwsService) -> None:
    """Repeats a call whose outcome is unknown: both calls may be made twice."""
    never_repeat(call, _NOT_WORTH_REPEATING)
    repeat(call, ANY_ERROR, most=_REPEATS, longest_pause_seconds=_LONGEST_PAUSE_SECONDS)
