"""`OptimisticUpdate`: reads an item, lets a task change it, writes it if it is still the same.

Its arguments are checked when it is made, and its place in the finished state machine at synth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import jsii
from aws_cdk import Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from fairlock.cdk.fragments import WorkflowVariable, check_place, check_states, is_jsonata
from fairlock.cdk.machines import MachineChecks, Machines, PartOfMachine, not_in_a_machine
from fairlock.cdk.versioned_states import VersionedExpressions, VersionedStates
from fairlock.errors import InvalidRequest
from fairlock.protocol.versions import DEFAULT_VERSION_ATTRIBUTE, write_id_attribute

_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,200}")
_MOST_RETRIES: Final = 100
_KEY_TYPES: Final = frozenset({"S", "N", "B"})


def check_update(
    table: dynamodb.ITable,
    key: Mapping[str, Mapping[str, object]],
    version_attribute: str,
    retries: int,
) -> None:
    """Checks the table, the key, the attribute of the version and the number of retries.

    Raises:
        InvalidRequest: names the field and the rule.
    """
    if not hasattr(table, "table_name"):
        rule = "must be a table of aws_dynamodb, such as Table.from_table_name(…)"
        raise InvalidRequest(field="table", rule=rule, value=table)
    _check_key(key)
    if not isinstance(version_attribute, str) or not _ATTRIBUTE.fullmatch(version_attribute):
        rule = "must be a name of letters, digits and _.- that does not begin with a digit"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)
    if {version_attribute, write_id_attribute(version_attribute)} & set(key):
        rule = "must not be a part of the key"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise InvalidRequest(field="retries", rule="must be a whole number", value=retries)
    if not 0 <= retries <= _MOST_RETRIES:
        rule = f"must be from 0, for a single try, to {_MOST_RETRIES}"
        raise InvalidRequest(field="retries", rule=rule, value=retries)


def _check_key(key: object) -> None:
    if not isinstance(key, Mapping) or not key:
        rule = "must be the item's whole primary key, like {'account': {'S': 'anna'}}"
        raise InvalidRequest(field="key", rule=rule, value=key)
    for name, value in key.items():
        if not isinstance(value, Mapping) or len(value) != 1 or set(value) - _KEY_TYPES:
            rule = "must map each attribute to a value in DynamoDB's form, like {'S': 'text'}"
            raise InvalidRequest(field="key", rule=rule, value={name: value})
        [text] = value.values()
        if not isinstance(text, str) or not text:
            rule = "must have texts that are not empty as its values, also of numbers: {'N': '7'}"
            raise InvalidRequest(field="key", rule=rule, value={name: value})
        if not is_jsonata(text) and _looks_evaluated(text):
            rule = (
                "must not be a path, nor contain one or JSONata within a literal: "
                "write JSONata as a whole, '{% 'customer/' & $states.input.id %}'"
            )
            raise InvalidRequest(field="key", rule=rule, value={name: value})


def _looks_evaluated(text: str) -> bool:
    """Whether somebody means it to be evaluated, which Step Functions would not do."""
    if Token.is_unresolved(text):
        return sfn.JsonPath.is_encoded_json_path(text)
    return any(part in text for part in ("{%", "%}", "$.", "$states"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UpdateInMachine:
    """What the rule has to know of an update."""

    construct: IConstruct
    variable: str

    @property
    def path(self) -> str:
        """The update's path in the app."""
        return self.construct.node.path

    def faults(
        self,
        machines: Machines,
        parts: Sequence[PartOfMachine],  # noqa: ARG002 - of the protocol
    ) -> Iterator[InvalidRequest]:
        """An update has to be in a machine."""
        if self.variable not in machines.placements:
            yield not_in_a_machine("update")


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
