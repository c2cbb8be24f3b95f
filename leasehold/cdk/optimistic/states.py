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

from leasehold.cdk.optimistic.expressions import VersionedExpressions
from leasehold.cdk.workflow_variable import GuardVariable, jsonata
from leasehold.errors import VersionConflict

_CANCELLED: Final = "DynamoDb.TransactionCanceledException"
_NOT_WORTH_REPEATING: Final = (_CANCELLED, "States.QueryEvaluationError")
_REPEATS: Final = 5
_LONGEST_PAUSE: Final = Duration.seconds(10)
_TIMEOUT: Final = Duration.seconds(30)
_ERROR_OUTPUT: Final = jsonata("$states.errorOutput")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedStates:
    """Makes the states of one update, which share its variable and the prefix of their names.

    The variable holds what `write` must know of what `read` has seen: the key, the condition that
    the item is unchanged, its next version, and the request token, which is also the id of the
    write.
    """

    scope: Construct
    table: dynamodb.ITable
    variable: GuardVariable
    expressions: VersionedExpressions

    @property
    def conflict(self) -> str:
        """The name of a conflict inside of this update: it shall not repeat those of others."""
        return f"{VersionConflict.__name__}.{self.variable.name}"

    def read(self, key: Mapping[str, object]) -> tasks.CallAwsService:
        """Reads the item, strongly consistent; hands on `{input, item}`."""
        read = tasks.CallAwsService.jsonata(
            self.scope,
            "Read",
            state_name=self.variable.state_name("Read"),
            service="dynamodb",
            action="getItem",
            parameters={"TableName": self.table.table_name, "Key": key, "ConsistentRead": True},
            iam_action="dynamodb:GetItem",
            iam_resources=[self.table.table_arn],
            assign={self.variable.name: {"key": key, **self.expressions.seen()}},
            outputs=self.expressions.read_output(),
            task_timeout=sfn.Timeout.duration(_TIMEOUT),
        )
        _repeat_unknown(read)
        return read

    def write(self) -> tasks.CallAwsService:
        """Writes its input in the place of what was read, or deletes that if the input is null.

        A transaction of one write, because it may be repeated under its request token: a write
        whose reply got lost is not taken for somebody else's.
        """
        write = tasks.CallAwsService.jsonata(
            self.scope,
            "Write",
            state_name=self.variable.state_name("Write"),
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
        write.add_catch(self._conflict(), errors=[_CANCELLED], outputs=_ERROR_OUTPUT)
        return write

    def tries(self, body: sfn.IChainable, *, retries: int) -> sfn.Parallel:
        """Does it all again after a conflict, from reading on."""
        tries = sfn.Parallel.jsonata(
            self.scope,
            "Update",
            state_name=self.variable.state_name("Update"),
            outputs=jsonata("$states.result[0]"),
        )
        tries.branch(body)
        tries.add_retry(
            errors=[self.conflict],
            interval=Duration.seconds(1),
            backoff_rate=1.5,
            max_delay=_LONGEST_PAUSE,
            max_attempts=retries,
            jitter_strategy=sfn.JitterType.FULL,
        )
        gave_up = self._gave_up(retries=retries)
        tries.add_catch(gave_up, errors=[self.conflict], outputs=_ERROR_OUTPUT)
        return tries

    def _conflict(self) -> sfn.Fail:
        """Ends one try. A write that DynamoDB finds invalid is no conflict and not tried again."""
        invalid = "$contains($states.input.Cause, 'ValidationError')"
        return sfn.Fail.jsonata(
            self.scope,
            "Conflict",
            state_name=self.variable.state_name("Conflict"),
            error=jsonata(f"{invalid} ? $states.input.Error : '{self.conflict}'"),
            cause=jsonata("$states.input.Cause"),
        )

    def _gave_up(self, *, retries: int) -> sfn.Fail:
        return sfn.Fail.jsonata(
            self.scope,
            "GaveUp",
            state_name=self.variable.state_name("Gave up"),
            error=VersionConflict.__name__,
            cause=f"the item was changed by others before each of {retries + 1} tries to write it",
        )


def _repeat_unknown(call: tasks.CallAwsService) -> None:
    """Repeats what failed with an unknown outcome, which both calls may be."""
    call.add_retry(errors=list(_NOT_WORTH_REPEATING), max_attempts=0)
    call.add_retry(
        errors=["States.ALL"],
        interval=Duration.seconds(1),
        backoff_rate=2,
        max_delay=_LONGEST_PAUSE,
        max_attempts=_REPEATS,
        jitter_strategy=sfn.JitterType.FULL,
    )
