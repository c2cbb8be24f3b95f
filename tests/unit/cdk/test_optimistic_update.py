"""The definition that an optimistic update leaves in a state machine, and its expressions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import OptimisticUpdate
from fairlock.optimistic import DEFAULT_RETRIES
from tests.unit.cdk import guard_forms
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.template import (
    Json,
    Scope,
    as_java,
    evaluate,
    happy_path,
    machine_of,
    repeated,
    statements,
    template_of,
)

TABLE = "accounts"
KEY = {"account": {"S": "{% $states.input.account %}"}}


@pytest.fixture(scope="module")
def template(new_app: NewApp) -> Json:
    """A machine with one update around a chain, and one with a pair, one of them nested."""
    stack = Stack(new_app(), "Updates")
    debits, pair = Construct(stack, "Debits"), Construct(stack, "Pair")
    chain = sfn.Pass(debits, "Look").next(sfn.Pass(debits, "Compute"))
    guard_forms.machine(debits, update(debits, "Debit", chain).next(sfn.Pass(debits, "Done")))
    inner = update(pair, "Inner", sfn.Pass(pair, "Compute"), retries=0)
    after = update(pair, "After", sfn.Pass(pair, "More"))
    guard_forms.machine(pair, update(pair, "Outer", inner).next(after))
    return template_of(stack)


def update(scope: Construct, name: str, task: sfn.IChainable, **props: Any) -> OptimisticUpdate:  # noqa: ANN401 - props
    table = dynamodb.Table.from_table_name(scope, f"{name}Table", TABLE)
    return OptimisticUpdate(scope, name, **{"table": table, "key": KEY, "task": task, **props})


@pytest.fixture(scope="module")
def machine(template: Json) -> Scope:
    return machine_of(template, "Debits")


@pytest.fixture(scope="module")
def branch(machine: Scope) -> Scope:
    return next(machine.inner())


@pytest.fixture(scope="module")
def variable(branch: Scope) -> str:
    return branch.variable


def test_only_a_conflict_begins_it_again_with_full_jitter(machine: Scope, variable: str) -> None:
    path = ["Debit: Update", "Debit: Read", "Look", "Compute", "Debit: Write", "Done"]
    assert happy_path(machine) == path, "three transitions besides the task"
    update = machine.states["Debit: Update"]
    conflict = f"VersionConflict.{variable}"
    assert update["Retry"] == [repeated(conflict, most=DEFAULT_RETRIES, longest=10, rate=1.5)]
    [rule] = update["Catch"]
    assert (rule["ErrorEquals"], rule["Next"]) == ([conflict], "Debit: Gave up")
    gave_up = machine.states["Debit: Gave up"]
    assert (gave_up["Error"], gave_up["Cause"]) == (
        "VersionConflict",
        "the item was changed by others before each of 11 tries to write it",
    )


def test_the_read_is_consistent_and_the_write_a_transaction_and_both_are_repeated_with_jitter(
    branch: Scope, variable: str
) -> None:
    read, write = branch.states["Debit: Read"], branch.states["Debit: Write"]
    never = ["DynamoDb.TransactionCanceledException", "States.QueryEvaluationError"]
    every = repeated("States.ALL", most=5, longest=10)
    for call in (read, write):
        assert call["Retry"] == [{"ErrorEquals": never, "MaxAttempts": 0}, every]
    assert read["Arguments"] == {"TableName": TABLE, "Key": KEY, "ConsistentRead": True}
    assert read["Resource"].endswith(":states:::aws-sdk:dynamodb:getItem")
    assert read["Assign"][variable]["token"] == "{% $uuid() %}"
    assert write["Resource"].endswith(":states:::aws-sdk:dynamodb:transactWriteItems")
    assert write["Arguments"]["ClientRequestToken"] == f"{{% ${variable}.token %}}"
    assert len(write["Arguments"]["TransactItems"]) == 1


API_ITEM: Json = {
    "account": {"S": "anna"},
    "balance": {"N": "12345678901234567890.123456789"},
    "open": {"BOOL": True},
    "closed": {"NULL": True},
    "tags": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1"]},
    "bytes": {"BS": ["YQ=="]},
    "one": {"B": "YQ=="},
    "empty list": {"L": []},
    "empty map": {"M": {}},
    "single": {"L": [{"BOOL": False}]},
    "nested": {"L": [{"M": {"Bool": {"L": [{"L": []}, {"NULL": True}]}}}, {"S": ""}]},
}
JAVA_ITEM = as_java(API_ITEM)
VERSIONED = {**JAVA_ITEM, "version": {"N": "7"}}
STAMPED = {**VERSIONED, "version_id": {"S": "x"}}
NAMES = {"#version": "version", "#write_id": "version_id"}


def read_states(item: Json | None) -> Json:
    result = {} if item is None else {"Item": item}
    return {"input": {"account": "anna"}, "result": result}


def test_the_task_gets_the_input_and_the_item_as_dynamodb_spells_it(branch: Scope) -> None:
    for item, task_gets in ((None, None), (JAVA_ITEM, API_ITEM)):
        output = evaluate(branch.states["Debit: Read"]["Output"], states=read_states(item))
        assert json.loads(json.dumps(output)) == {"input": {"account": "anna"}, "item": task_gets}


KEY_NAME = {"#key": "account"}
SAME, SEVEN = "#version = :version", {":version": {"N": "7"}}
WITHOUT = "attribute_exists(#key) AND attribute_not_exists(#version)"
SEEN: list[tuple[Json | None, str, Json, Json, str]] = [
    # The item, and what the write does: its condition with names and values, the next version.
    (None, "attribute_not_exists(#key)", KEY_NAME, {}, "1"),
    (JAVA_ITEM, WITHOUT, {**KEY_NAME, "#version": "version"}, {}, "1"),
    (VERSIONED, f"{SAME} AND attribute_not_exists(#write_id)", NAMES, SEVEN, "8"),
    (STAMPED, f"{SAME} AND #write_id = :write_id", NAMES, {**SEVEN, ":write_id": {"S": "x"}}, "8"),
]


def test_the_condition_is_that_the_item_is_as_it_was_read(branch: Scope, variable: str) -> None:
    seen = branch.states["Debit: Read"]["Assign"][variable]
    assert seen["key"] == KEY
    for item, condition, names, values, next_version in SEEN:
        states = read_states(item)
        found = evaluate(seen["unchanged"], states=states)
        assert found.pop("ExpressionAttributeValues", {}) == values
        assert found == {"ConditionExpression": condition, "ExpressionAttributeNames": names}
        assert evaluate(seen["next"], states=states) == next_version


def test_what_the_task_returns_is_put_with_the_next_version_and_null_deletes(
    branch: Scope, variable: str
) -> None:
    unchanged = {"ConditionExpression": "c", "ExpressionAttributeNames": KEY_NAME}
    key = {"account": {"S": "anna"}}
    seen = {"key": key, "token": "t", "next": "8", "unchanged": unchanged}
    write = branch.states["Debit: Write"]
    [transaction] = write["Arguments"]["TransactItems"]
    under = {"TableName": TABLE, **unchanged}
    stamps = {"version": {"N": "8"}, "version_id": {"S": "t"}}
    put = {"Put": {**under, "Item": {**JAVA_ITEM, **stamps}}}
    delete = {"Delete": {**under, "Key": key}}
    elsewhere = {**API_ITEM, "account": {"S": "ben"}, "version": {"N": "99"}}
    for returned, sent, leaves in (
        (elsewhere, put, {**API_ITEM, **stamps}),
        (None, delete, None),
    ):
        given: Json = {"states": {"input": returned}, "variables": {variable: seen}}
        assert evaluate(transaction, **given) == sent
        assert evaluate(write["Output"], **given) == leaves


def test_a_machine_may_get_put_and_delete_items_of_this_table_only(template: Json) -> None:
    found = statements(template, "DebitsMachine")
    actions = [f"dynamodb:{name}" for name in ("GetItem", "PutItem", "DeleteItem")]
    assert [statement["Action"] for statement in found] == actions
    assert all(json.dumps(each["Resource"]).count(f":table/{TABLE}") == 1 for each in found)


def test_two_updates_fit_into_one_machine_and_into_each_other(template: Json) -> None:
    machine = machine_of(template, "Pair")
    names = [name for name, _ in machine.all_states()]
    assigned = [name for scope in machine.all_scopes() for name in scope.assigned()]
    parallels = [state for _, state in machine.all_states() if state["Type"] == "Parallel"]
    retried = [str(each["Retry"][0]["ErrorEquals"]) for each in parallels]
    assert len(names) == len(set(names))
    assert len(assigned) == len(set(assigned)) == 3
    assert len(retried) == len(set(retried)) == 3
