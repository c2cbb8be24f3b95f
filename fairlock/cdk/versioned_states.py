"""The states of `OptimisticUpdate`: read, conditional write, and what a conflict leads to.

Their JSONata translates items, chooses conditions and makes writes. Step Functions spells the types
of attribute values as the AWS SDK for Java does (`Bool`, `Nul`, `Ss`), unlike DynamoDB itself
(`BOOL`, `NULL`, `SS`). So an item is translated after it was read, and back before it is written.

The item is translated as text, by regular expressions. Step Functions ends an evaluation that is
about 100 calls deep or takes a second (https://github.com/floci-io/floci/issues/2737 measured the
depth): a recursive function would not reach the 32 levels of nesting that DynamoDB allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk.fragments import (
    ANY_ERROR,
    ERROR_OUTPUT,
    EVALUATION_ERROR,
    WorkflowVariable,
    jsonata,
    never_repeat,
    repeat,
)
from fairlock.errors import VersionConflict
from fairlock.protocol import versions

_TO_DYNAMODB: Final = {
    r'/"Bool":([tf])/': '"BOOL":$1',
    r'/"Nul":([tf])/': '"NULL":$1',
    r'/"([SNB])s":\[/': '"$1S":[',
}
"""The value tells a type from an attribute of the same name, whose value is an object. Texts do not
match: each quotation mark in a text has a backslash before it."""
_TO_JAVA: Final = {
    r'/"BOOL":([tf])/': '"Bool":$1',
    r'/"NULL":([tf])/': '"Nul":$1',
    r'/"([SNB])S":\[/': '"$1s":[',
}
_ITEM_READ: Final = "$states.result.Item"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedExpressions:
    """The expressions of one update.

    Attributes:
        variable: the expression of the variable that `read` assigns for `write`.
        key_name: one attribute of the primary key.
        version: the attribute of the version.
    """

    variable: str
    key_name: str
    version: str

    def read_output(self) -> str:
        """The task's input: the input of the update, and the item or null."""
        item = f"$exists({_ITEM_READ}) ? {_translated(_ITEM_READ, _TO_DYNAMODB)} : null"
        return jsonata(f"{{'input': $states.input, 'item': {item}}}")

    def for_write(self) -> dict[str, str]:
        """What `write` needs of the item that was read, besides the key."""
        number = f"{_ITEM_READ}.`{self.version}`"
        return {
            "token": jsonata("$uuid()"),
            "next": jsonata(f"$exists({number}) ? $string($number({number}.N) + 1) : '1'"),
            "unchanged": self._unchanged(),
        }

    def transaction(self, *, table_name: str) -> str:
        """The one write: a put, or a delete if the task returned null."""
        there = f"{{'TableName': '{table_name}'}}, {self.variable}.unchanged"
        put = f"$merge([{there}, {{'Item': {_translated(self._stamped(), _TO_JAVA)}}}])"
        delete = f"$merge([{there}, {{'Key': {self.variable}.key}}])"
        return jsonata(f"$states.input = null ? {{'Delete': {delete}}} : {{'Put': {put}}}")

    def write_output(self) -> str:
        """The item as it was written, or null."""
        return jsonata(f"$states.input = null ? null : {self._stamped()}")

    def _stamped(self) -> str:
        """The task's item under its key, with its version and the id of this write."""
        stamps = (
            f"{{'{self.version}': {{'N': {self.variable}.next}},"
            f" '{versions.write_id_attribute(self.version)}': {{'S': {self.variable}.token}}}}"
        )
        return f"$merge([$states.input, {self.variable}.key, {stamps}])"

    def _unchanged(self) -> str:
        """The condition that the item is still the one that was read."""
        number = f"{_ITEM_READ}.`{self.version}`"
        write_id = f"{_ITEM_READ}.`{versions.write_id_attribute(self.version)}`"
        names = {
            "#key": self.key_name,
            "#version": self.version,
            "#write_id": versions.write_id_attribute(self.version),
        }
        same_write = _check(versions.SAME_WRITE, names, {":version": number, ":write_id": write_id})
        same_version = _check(versions.SAME_VERSION, names, {":version": number})
        without_version = _check(versions.THERE_WITHOUT_VERSION, names)
        absent = _check(versions.NOT_THERE, names)
        return jsonata(
            f"$exists({number}) ? ($exists({write_id}) ? {same_write} : {same_version})"
            f" : $exists({_ITEM_READ}) ? {without_version} : {absent}"
        )


def _check(condition: str, names: dict[str, str], values: dict[str, str] | None = None) -> str:
    """A condition with the names that it uses: DynamoDB refuses others."""
    used = {placeholder: name for placeholder, name in names.items() if placeholder in condition}
    shown = ", ".join(f"'{placeholder}': {value}" for placeholder, value in (values or {}).items())
    return (
        f"{{'ConditionExpression': {json.dumps(condition)},"
        f" 'ExpressionAttributeNames': {json.dumps(used)}"
        + (f", 'ExpressionAttributeValues': {{{shown}}}" if values else "")
        + "}"
    )


def _translated(item: str, spelling: Mapping[str, str]) -> str:
    replaced = "".join(f" ~> $replace({old}, '{new}')" for old, new in spelling.items())
    return f"$parse($string({item}){replaced})"


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
