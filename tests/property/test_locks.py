"""The searches with random requests, and the mutants that they have to find."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from fairlock.protocol import outcomes
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.interpreter import placeholders
from tests.property.lock_machine import LockMachine
from tests.property.queue_machine import QueueMachine
from tests.property.reference_locks import Bench, Mutation
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


Request = dict[str, Any]


def _in_condition(pattern: str, replacement: str = "") -> Mutation:
    return _in_updates(lambda update: _edited(update, "ConditionExpression", pattern, replacement))


def _in_change(pattern: str, replacement: str = "") -> Mutation:
    return _in_updates(lambda update: _edited(update, "UpdateExpression", pattern, replacement))


def _in_updates(edit: Callable[[Request], Request]) -> Mutation:
    """Edits updates, also those within transactions."""

    def mutate(name: str, request: Request) -> Request:
        if name == "update_item":
            return edit(request)
        if name == "transact_write_items":
            if "Update" not in request["TransactItems"][0]:
                return request
            state, other = request["TransactItems"]
            return {**request, "TransactItems": [{"Update": edit(state["Update"])}, other]}
        return request

    return mutate


def _edited(update: Request, expression: str, pattern: str, replacement: str) -> Request:
    text = re.sub(pattern, replacement, update[expression])
    if text == update[expression]:
        return update
    edited = {**update, expression: text}
    # DynamoDB would refuse placeholders that the edit left unused.
    used = placeholders(edited["UpdateExpression"], edited["ConditionExpression"])
    parts = ("ExpressionAttributeNames", "ExpressionAttributeValues")
    return edited | {
        part: {name: value for name, value in update[part].items() if name in used}
        for part in parts
    }


def _first_token(update: Request) -> Request:
    values = update["ExpressionAttributeValues"]
    if ":seed" not in values:
        return update
    return {**update, "ExpressionAttributeValues": {**values, ":seed": {"N": "0"}}}


def _leave_waiter(name: str, request: Request) -> Request:
    if name != "transact_write_items" or "Update" not in request["TransactItems"][0]:
        return request
    if "Delete" not in request["TransactItems"][1]:
        return request
    return {**request, "TransactItems": request["TransactItems"][:1]}


MUTANTS: dict[str, Mutation] = {
    "the limit is compared with <>, and with no one else's": _in_condition(
        r"\(#held < :limit AND #limit = :limit\)", "#held <> :limit"
    ),
    "the first write ignores the limit in force": _in_condition(r" AND #limit = :limit"),
    "the limit in force is never lowered": _in_change(
        r"#limit = :limit", "#limit = if_not_exists(#limit, :limit)"
    ),
    "the limit is compared with <=": _in_condition(r"#held < :limit", "#held <= :limit"),
    "a delayed duplicate may acquire again": _in_condition(
        r" AND \(attribute_not_exists\(#last_released\) OR #last_released <> :me\)"
        r" AND \(attribute_not_exists\(#last_given_up\) OR #last_given_up <> :me\)"
    ),
    "a holder may acquire again": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
    "a takeover ignores a heartbeat in between": _in_condition(
        r" AND #over\d+\.#h_revision = :seen\d+"
    ),
    "a release needs no permit": _in_condition(
        r"^attribute_exists\(#mine\) AND (?=attribute_not_exists\(#contended)",
        "attribute_exists(#held) AND ",
    ),
    "a release does not count": _in_change(r"#held = #held - :one, "),
    "a token counter belongs to an owner": _in_change(
        r"#fencing_token = if_not_exists\(#fencing_token, (:\w+)\)",
        r"#fencing_token = if_not_exists(#my_token, \1)",
    ),
    "a heartbeat leaves the revision": _in_change(r"#mine\.#h_revision = [^,]+, "),
    "a new lock starts its tokens at one": _in_updates(_first_token),
}
QUEUE_MUTANTS: dict[str, Mutation] = {
    "joining does not flag the lock": _in_change(r"#contended = :yes, "),
    "an acquire overtakes the queue": _in_condition(r" AND attribute_not_exists\(#contended\)"),
    "a hand-off leaves the waiter in the queue": _leave_waiter,
    "a holder may join the queue": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
}


# The protocol at random, against reference locks.


def test_any_order_of_calls_faults_and_clocks_gives_the_answers_of_the_reference() -> None:
    class InMemory(LockMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable()))

    run_state_machine_as_test(InMemory, settings=settings(max_examples=100, stateful_step_count=40))


def test_motos_dynamodb_gives_the_same_answers(dynamodb: DynamoDBClient) -> None:
    """Else the table in memory, on which the other examples ran, would be a wrong DynamoDB."""

    def make_bench() -> Bench:
        for item in dynamodb.scan(TableName=TABLE)["Items"]:
            key = {name: item[name] for name in ("pk", "sk")}
            dynamodb.delete_item(TableName=TABLE, Key=key)
        return Bench(dynamodb)

    class OverMoto(LockMachine):
        pass

    OverMoto.make_bench = staticmethod(make_bench)
    run_state_machine_as_test(OverMoto, settings=settings(max_examples=4, stateful_step_count=25))


# The queue at random, against what must hold of the table.


def test_any_order_of_arrivals_releases_and_deaths_serves_everybody_in_order() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=40, stateful_step_count=40)
    )


# The property test can fail: each wrong protocol is found by the same machine.

BUDGET = settings(
    max_examples=150,
    stateful_step_count=40,
    phases=[Phase.generate],  # no one reads the counterexample, so it need not be short
    report_multiple_bugs=False,
    print_blob=False,
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_protocol_is_found(name: str) -> None:
    benches: list[Bench] = []

    class Wrong(LockMachine):
        @staticmethod
        def make_bench() -> Bench:
            benches.append(Bench(MemoryTable(), mutate=MUTANTS[name]))
            return benches[-1]

    # A wrong protocol may also leave an item that makes no sense to the store.
    with pytest.raises((AssertionError, KeyError, LockItemMalformed)):
        run_state_machine_as_test(Wrong, settings=BUDGET)
    assert benches[-1].client.mutated, "the wrong request was never sent"


@pytest.mark.parametrize("name", QUEUE_MUTANTS)
def test_a_wrong_queue_is_found(name: str) -> None:
    class Wrong(QueueMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable(), mutate=QUEUE_MUTANTS[name]))

    # Or the store goes round in circles until its retry budget ends.
    with pytest.raises((AssertionError, KeyError, LockItemMalformed, LockStoreUnavailable)):
        run_state_machine_as_test(Wrong, settings=BUDGET)


def test_a_contender_that_does_not_wait_for_the_end_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_over(expires_at_ms: int, *, date_ms: int) -> bool:
        return date_ms >= expires_at_ms - 1_500

    monkeypatch.setattr(outcomes, "is_over", is_over)

    class Hasty(LockMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable()))

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Hasty, settings=BUDGET)
