"""The item that makes a transaction of the application depend on the lock."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from fairlock.errors import InvalidRequest
from fairlock.guarded import GuardedWrites, condition_check
from fairlock.protocol.outcomes import Grant
from fairlock.protocol.schema import holder_attribute, lock_key, token_attribute
from tests.support import LOCK, TABLE, owner
from tests.unit.guarded.bench import Bench, deposit

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


def check_of(grant: Grant) -> TransactWriteItemTypeDef:
    return condition_check(
        table_name=TABLE,
        lock_name=grant.lock_name,
        owner_id=grant.owner_id,
        fencing_token=grant.fencing_token,
    )


def reasons(bench: Bench, *items: TransactWriteItemTypeDef) -> list[str]:
    """Sends a transaction of the application's own; an empty list if it was committed."""
    try:
        bench.inner.transact_write_items(TransactItems=list(items))
    except ClientError as error:
        return [reason["Code"] for reason in error.response["CancellationReasons"]]
    return []


def test_it_names_the_holder_and_its_token_and_nothing_else() -> None:
    check = condition_check(
        table_name=TABLE, lock_name=LOCK, owner_id=owner("anna"), fencing_token=17
    )
    assert check == {
        "ConditionCheck": {
            "TableName": TABLE,
            "Key": lock_key(LOCK),
            "ConditionExpression": "attribute_exists(#mine) AND #guard_token = :guard_token "
            "AND attribute_not_exists(#guarded.#h_shared)",
            "ExpressionAttributeNames": {
                "#mine": holder_attribute(owner("anna")),
                "#guard_token": token_attribute(owner("anna")),
                "#guarded": holder_attribute(owner("anna")),
                "#h_shared": "s",
            },
            "ExpressionAttributeValues": {":guard_token": {"N": "17"}},
        }
    }


def test_a_holder_passes(bench: Bench) -> None:
    grant = bench.granted("anna")
    assert reasons(bench, check_of(grant), deposit("x")) == []
    assert bench.balance("x") == 1


def test_an_overrun_lease_that_nobody_took_over_passes(bench: Bench) -> None:
    grant = bench.granted("anna", lease_ms=1_000)
    bench.clock.advance(3600)
    assert reasons(bench, check_of(grant), deposit("x")) == []


def test_a_holder_whose_place_was_taken_over_does_not_pass(bench: Bench) -> None:
    stale = bench.granted("anna", lease_ms=1_000)
    bench.clock.advance(10)
    bench.granted("ben")
    assert reasons(bench, check_of(stale), deposit("x")) == ["ConditionalCheckFailed", "None"]
    assert bench.balance("x") is None


def test_who_has_released_does_not_pass(bench: Bench) -> None:
    grant = bench.granted("anna")
    bench.release("anna")
    assert reasons(bench, check_of(grant), deposit("x")) == ["ConditionalCheckFailed", "None"]


def test_an_older_token_of_the_same_owner_does_not_pass(bench: Bench) -> None:
    older = bench.granted("anna", lease_ms=1_000)
    bench.clock.advance(10)
    bench.granted("ben", lease_ms=1_000)
    bench.clock.advance(10)
    newer = bench.granted("anna")
    assert newer.fencing_token > older.fencing_token
    assert reasons(bench, check_of(older), deposit("x")) == ["ConditionalCheckFailed", "None"]
    assert reasons(bench, check_of(newer), deposit("x")) == []


def test_two_locks_can_be_checked_in_one_transaction(bench: Bench) -> None:
    first, second = bench.granted("anna"), bench.granted("anna", lock_name="other")
    assert reasons(bench, check_of(first), check_of(second), deposit("x")) == []
    bench.release("anna")
    codes = reasons(bench, check_of(second), check_of(first), deposit("x"))
    assert codes == ["None", "ConditionalCheckFailed", "None"]
    assert bench.balance("x") == 1


@pytest.mark.parametrize("guarded", [True, False])
def test_only_the_check_keeps_a_stale_holder_from_writing(bench: Bench, *, guarded: bool) -> None:
    stale = bench.granted("anna", lease_ms=1_000)
    bench.clock.advance(10)
    bench.granted("ben")
    reasons(bench, *([check_of(stale)] if guarded else []), deposit("x"))
    assert bench.balance("x") == (None if guarded else 1)


class Name(str, Enum):  # noqa: UP042 - StrEnum has no other text; programs have both
    LOCK = LOCK


def test_a_name_of_an_enumeration_is_its_text() -> None:
    by_text, by_member = (
        condition_check(table_name=TABLE, lock_name=name, owner_id=owner("anna"), fencing_token=17)
        for name in (LOCK, Name.LOCK)
    )
    assert by_text == by_member


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table_name", ""),
        ("table_name", None),
        ("lock_name", ""),
        ("lock_name", 7),
        ("owner_id", "short"),
        ("owner_id", None),
        ("fencing_token", 0),
        ("fencing_token", "17"),
    ],
)
def test_an_argument_that_breaks_its_rule_is_refused_by_name(
    bench: Bench,
    field: str,
    value: Any,  # noqa: ANN401 - anything
) -> None:
    good: dict[str, Any] = {"lock_name": LOCK, "owner_id": owner("anna"), "fencing_token": 17}
    with pytest.raises(InvalidRequest) as caught:
        condition_check(**{"table_name": TABLE, **good, field: value})
    assert caught.value.field == field
    if field != "table_name":
        with pytest.raises(InvalidRequest):
            GuardedWrites(bench.inner, table_name=TABLE, **{**good, field: value})
