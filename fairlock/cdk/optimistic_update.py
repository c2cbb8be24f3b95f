"""`OptimisticUpdate`: reads an item, lets a task change it, writes it if it is still the same.

Step Functions spells the types of attribute values as the AWS SDK for Java does (`Bool`, `Nul`,
`Ss`), unlike DynamoDB (`BOOL`, `NULL`, `SS`). So an item is translated after it was read, and back
before it is written: as text, by regular expressions, because Step Functions ends an evaluation
that is about 100 calls deep (https://github.com/floci-io/floci/issues/2737) or takes a second.
"""

from __future__ import annotations

import json
import math
import re
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
    UNCHANGED,
    Fragment,
    WorkflowVariable,
    check_item_key,
    check_place,
    check_states,
    is_whole,
    jsonata,
    never_repeat,
    repeat,
    require,
)
from fairlock.cdk.machines import MachineChecks, PartOfMachine
from fairlock.errors import VersionConflict, explained
from fairlock.protocol import versions
from fairlock.protocol.versions import DEFAULT_VERSION_ATTRIBUTE, write_id_attribute

_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,200}")
_MOST_RETRIES: Final = 100


def check_update(
    table: dynamodb.ITable,
    key: Mapping[str, Mapping[str, object]],
    version_attribute: str,
    retries: int,
) -> None:
    """Checks the table, the key, the attribute of the version and the number of retries."""
    rule = "must be a table of aws_dynamodb, such as Table.from_table_name(…)"
    require("table", hasattr(table, "table_name"), rule, table)
    check_item_key(key)
    is_name = isinstance(version_attribute, str) and _ATTRIBUTE.fullmatch(version_attribute)
    rule = "must be a name of letters, digits and _.- that does not begin with a digit"
    require("version_attribute", is_name, rule, version_attribute)
    is_in_key = {version_attribute, write_id_attribute(version_attribute)} & set(key)
    require("version_attribute", not is_in_key, "must not be a part of the key", version_attribute)
    require("retries", is_whole(retries, -math.inf, math.inf), "must be a whole number", retries)
    rule = f"must be from 0, for a single try, to {_MOST_RETRIES}"
    require("retries", is_whole(retries, 0, _MOST_RETRIES), rule, retries)


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
    """The expressions of one update."""

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
        stamps = (
            f"{{'{self.version}': {{'N': {self.variable}.next}},"
            f" '{write_id_attribute(self.version)}': {{'S': {self.variable}.token}}}}"
        )
        return f"$merge([$states.input, {self.variable}.key, {stamps}])"

    def _unchanged(self) -> str:
        number = f"{_ITEM_READ}.`{self.version}`"
        write_id = f"{_ITEM_READ}.`{write_id_attribute(self.version)}`"
        version_id = write_id_attribute(self.version)
        names = {"#key": self.key_name, "#version": self.version, "#write_id": version_id}
        values = {":version": number, ":write_id": write_id}

        def check(condition: str) -> str:
            # With the names that it uses: DynamoDB refuses others.
            used = {
                placeholder: name for placeholder, name in names.items() if placeholder in condition
            }
            shown = ", ".join(
                f"'{name}': {value}" for name, value in values.items() if name in condition
            )
            return (
                f"{{'ConditionExpression': {json.dumps(condition)},"
                f" 'ExpressionAttributeNames': {json.dumps(used)}"
                + (f", 'ExpressionAttributeValues': {{{shown}}}" if shown else "")
                + "}"
            )

        return jsonata(
            f"$exists({number}) ? ($exists({write_id}) ? {check(versions.SAME_WRITE)}"
            f" : {check(versions.SAME_VERSION)}) : $exists({_ITEM_READ}) ?"
            f" {check(versions.THERE_WITHOUT_VERSION)} : {check(versions.NOT_THERE)}"
        )


def _translated(item: str, spelling: Mapping[str, str]) -> str:
    replaced = "".join(f" ~> $replace({old}, '{new}')" for old, new in spelling.items())
    return f"$parse($string({item}){replaced})"


_CANCELLED: Final = "DynamoDb.TransactionCanceledException"
_IN_PASSING: Final = "/TransactionConflict|ThrottlingError|ProvisionedThroughputExceeded/"
"""Reasons for a cancellation that say nothing of the write's condition."""
_SENT_AGAIN_MS: Final = 120_000
"""How long a write is sent again after its first cancellation. DynamoDB knows its request token for
ten minutes. Before and after these two minutes its repeats may take three and a half each."""
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

        A transaction may be repeated under its request token: a lost reply is no conflict.
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
        self._send_again_in_passing(write)
        return write

    def _send_again_in_passing(self, write: tasks.CallAwsService) -> None:
        """Sends a cancelled write again as it is, unless the reason is final.

        An earlier sending, without a reply, may still happen when a busy item or table cancels this
        one: to read and compute again could make the change twice.
        """
        since = self.variable.field("cancelled_ms")
        elapsed_ms = f"($millis() - {since})"
        cancelled = self.variable.merged(
            f"'cause': $states.errorOutput.Cause, "
            f"'cancelled_ms': $exists({since}) ? {since} : $millis()"
        )
        in_passing = f"$contains({self.variable.field('cause')}, {_IN_PASSING})"
        pause = f"$random() * $min([{_LONGEST_PAUSE_SECONDS}, 1 + {elapsed_ms} / 1000])"
        wait = sfn.Wait.jsonata(
            self.scope,
            self.variable.state_name("Wait"),
            time=sfn.WaitTime.seconds(jsonata(f"$ceil({pause})")),
        )
        choice = sfn.Choice.jsonata(self.scope, self.variable.state_name("In passing?"))
        again = jsonata(f"{in_passing} and {elapsed_ms} < {_SENT_AGAIN_MS}")
        choice.when(sfn.Condition.jsonata(again), wait.next(write)).otherwise(self._conflict())
        assign = {self.variable.name: jsonata(cancelled)}
        write.add_catch(choice, errors=[_CANCELLED], outputs=UNCHANGED, assign=assign)

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
        gave_up = sfn.Fail.jsonata(
            self.scope,
            self.variable.state_name("Gave up"),
            error=VersionConflict.__name__,
            cause=f"the item was changed by others before each of {retries + 1} tries to write it",
        )
        tries.add_catch(gave_up, errors=[self.conflict], outputs=ERROR_OUTPUT)
        return tries

    def _conflict(self) -> sfn.Fail:
        """Ends one try. Only a condition that was false is a conflict, and leads to another try."""
        cause = self.variable.field("cause")
        is_conflict = f"$contains({cause}, 'ConditionalCheckFailed')"
        return sfn.Fail.jsonata(
            self.scope,
            self.variable.state_name("Conflict"),
            error=jsonata(f"{is_conflict} ? '{self.conflict}' : '{_CANCELLED}'"),
            cause=jsonata(cause),
        )


def _repeat_unknown(call: tasks.CallAwsService) -> None:
    """Repeats a call whose outcome is unknown: both calls may be made twice."""
    never_repeat(call, _NOT_WORTH_REPEATING)
    repeat(call, ANY_ERROR, most=_REPEATS, longest_pause_seconds=_LONGEST_PAUSE_SECONDS)


_DEFAULT_RETRIES: Final = 10


class OptimisticUpdate(Fragment):
    """Changes one DynamoDB item by a task, and repeats that until no other writer interferes.

        OptimisticUpdate(self, "Debit", table=accounts,
            key={"account": {"S": "{% $states.input.account %}"}},
            task=tasks.LambdaInvoke.jsonata(self, "Compute", lambda_function=compute,
                payload=sfn.TaskInput.from_object("{% $states.input %}"),
                outputs="{% $states.result.Payload %}"))

    Guarantees: each new item was computed from the item that it replaces; no concurrent update is
    lost, and none is written twice, even if the reply to a write gets lost.

    Not guaranteed: that the task runs once. A conflict repeats everything from reading on, so the
    task must only compute; for work that must happen once, use a `LockGuard`. Writers that use
    neither this construct nor `fairlock.optimistic` must raise the version as well.

    The input is any object. The task gets `{"input": the input, "item": the item, or null}` and
    returns the whole new item, or null to delete it. Items are in DynamoDB's own form
    (`{"balance": {"N": "70"}}`), in both directions. The output is the item as it was written, with
    its version, or null. A task that ends in a Succeed of its own ends the update without a write.
    Input and item together have at most 256 KiB.

    Errors: `VersionConflict` after the last try, nothing was written; the task's own errors, by
    their names; those of DynamoDB (`DynamoDb.…`), as for any task: after one of the write, read the
    item before you repeat the change.

    Works in Standard and Express workflows, with JSONPath and JSONata. Uncontended it costs one
    read, one write (at the price of a transaction) and three state transitions besides the task.
    The machine may get, put and delete items of this table; if it is encrypted with a key of your
    own, grant that to the machine.
    """

    @explained
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
        self._first = tries = states.tries(body, retries=retries)
        self._last = [tries]
        MachineChecks.add(PartOfMachine(construct=self, kind="update", variable=variable.name))
