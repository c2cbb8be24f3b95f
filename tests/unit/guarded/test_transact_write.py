"""Writes under a lock that goes on being held."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlock.errors import (
    InvalidRequest,
    LockLost,
    LockStoreMisconfigured,
    TransactionRefused,
)
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.model import Grant
from fairlock.protocol.schema import lock_key
from testbed.localaws import LocalAws
from tests.support import LOCK, TABLE
from tests.support.faulty_table import FaultyTable, client_error, fault
from tests.unit.guarded.conftest import Bench, deposit, open_account, taken_over_twice

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

Items = list["TransactWriteItemTypeDef"]

SHAPE = "item {} must be a dict with one of Put, Update, Delete, ConditionCheck"
PLACE = "item {} must have a TableName, and an Item or a Key"


def test_the_writes_of_a_holder_are_committed_together_and_the_lock_stays(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.writes(grant).transact_write([deposit("x", 3), deposit("y", 4)])
    assert (bench.balance("x"), bench.balance("y")) == (3, 4)
    assert bench.holders() == ["anna"]


def test_a_context_is_made_from_the_client_if_none_is_given(bench: Bench) -> None:
    grant = bench.grant("anna")
    writes = GuardedWrites(
        bench.client,
        table_name=TABLE,
        lock_name=LOCK,
        owner_id=grant.owner_id,
        fencing_token=grant.fencing_token,
    )
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, [])


def taken_over(bench: Bench) -> Grant:
    stale = bench.grant("anna", lease_ms=1_000)
    bench.clock.advance(10)
    bench.grant("ben")
    return stale


def granted_again(bench: Bench) -> Grant:
    """To the same owner."""
    return taken_over_twice(bench)[0]


def deleted(bench: Bench) -> Grant:
    grant = bench.grant("anna")
    bench.client.delete_item(TableName=TABLE, Key=key_of_the_lock())
    return grant


@pytest.mark.parametrize("gone", [taken_over, granted_again, deleted])
@pytest.mark.parametrize("release", [False, True])
def test_a_grant_that_is_gone_is_a_lost_lock_rather_than_an_item_refused(
    bench: Bench, gone: Callable[[Bench], Grant], *, release: bool
) -> None:
    bench.client.transact_write_items(TransactItems=[open_account("x", 5)])
    grant = gone(bench)
    before = bench.holders()
    with pytest.raises(LockLost, match=f"'{LOCK}' is not held any more under fencing token"):
        bench.writes(grant).transact_write([deposit("y"), open_account("x")], release=release)
    assert (bench.balance("y"), bench.holders()) == (None, before)


@pytest.mark.parametrize("release", [False, True])
def test_a_refused_item_is_named_by_the_callers_index_and_nothing_is_written(
    bench: Bench, *, release: bool
) -> None:
    """And the lock and its queue stay as they are."""
    grant = bench.grant("anna")
    bench.writes(grant).transact_write([open_account("x", 5)])
    bench.waits("ben")
    items = [deposit("y"), open_account("x"), deposit("z")]
    with pytest.raises(TransactionRefused) as caught:
        bench.writes(grant).transact_write(items, release=release)
    assert caught.value.failed == (1,)
    codes = [reason.code for reason in caught.value.reasons]
    assert codes == ["None", "ConditionalCheckFailed", "None"]
    assert caught.value.reasons[1].item == {"account": {"S": "x"}, "balance": {"N": "5"}}
    assert str(caught.value) == (
        "the transaction was refused and nothing was written (item 1: ConditionalCheckFailed)"
    )
    assert (bench.balance("y"), bench.balance("z")) == (None, None)
    assert (bench.holders(), bench.waiters()) == (["anna"], ["ben"])


def key_of_the_lock() -> dict[str, Any]:
    return dict(lock_key(LOCK))


@pytest.mark.parametrize("table", [TABLE, f"arn:aws:dynamodb:us-east-1:123456789012:table/{TABLE}"])
@pytest.mark.parametrize(
    "write",
    [
        lambda table: {"Delete": {"TableName": table, "Key": key_of_the_lock()}},
        lambda table: {"Put": {"TableName": table, "Item": key_of_the_lock()}},
        lambda table: {"ConditionCheck": {"TableName": table, "Key": key_of_the_lock()}},
    ],
)
def test_an_item_of_the_lock_itself_is_refused_by_name(
    bench: Bench, table: str, write: Callable[[str], dict[str, Any]]
) -> None:
    grant = bench.grant("anna")
    with pytest.raises(InvalidRequest) as caught:
        bench.writes(grant).transact_write(cast("Items", [deposit("x"), write(table)]))
    assert (caught.value.field, caught.value.rule) == (
        "items",
        "item 1 must not be one of the lock's own items in the lock table",
    )


def test_an_item_of_the_same_key_in_another_table_is_the_applications_own(bench: Bench) -> None:
    grant = bench.grant("anna")
    writes = bench.writes(grant)
    other_lock = bench.grant("anna", lock_name="other")
    check = bench.writes(other_lock).condition_check()
    elsewhere = {"Delete": {"TableName": "ledger-of-locks", "Key": key_of_the_lock()}}
    writes.transact_write([deposit("x"), check])
    with pytest.raises(LockStoreMisconfigured, match=r"'ledger-of-locks'.* was refused"):
        writes.transact_write(cast("Items", [elsewhere]))


@pytest.mark.parametrize(
    ("items", "release", "rule"),
    [
        ([], False, "must be 1 to 99 writes"),
        ([deposit(str(i)) for i in range(100)], False, "must be 1 to 99 writes"),
        (
            [deposit(str(i)) for i in range(99)],
            True,
            "must be 1 to 98 writes when the lock is released with them",
        ),
        ([deposit("x"), {"Get": {}}], False, SHAPE.format(1)),
        ([deposit("x") | open_account("x")], False, SHAPE.format(0)),
        (["deposit"], False, SHAPE.format(0)),
        ("deposit", False, "must be a list of writes, as for boto3's transact_write_items"),
        ([{"Put": None}], False, PLACE.format(0)),
        ([{"Put": {"TableName": 5, "Item": {}}}], False, PLACE.format(0)),
        ([{"Delete": {"TableName": "ledger"}}], True, PLACE.format(0)),
    ],
)
def test_items_that_break_a_rule_are_refused_before_anything_is_sent(
    bench: Bench, items: Items, rule: str, *, release: bool
) -> None:
    grant = bench.grant("anna")
    counting = FaultyTable(bench.client)
    with pytest.raises(InvalidRequest) as caught:
        bench.writes(grant, counting).transact_write(items, release=release)
    assert (caught.value.field, caught.value.rule) == ("items", rule)
    assert counting.calls == []


@pytest.mark.parametrize(("most", "release"), [(99, False), (98, True)])
def test_as_many_items_as_the_rule_allows_are_committed(
    bench: Bench, most: int, *, release: bool
) -> None:
    grant = bench.grant("anna")
    bench.waits("ben")
    items = [deposit(str(i)) for i in range(most)]
    bench.writes(grant).transact_write(items, release=release)
    assert bench.balance(str(most - 1)) == 1
    assert bench.holders() == (["ben"] if release else ["anna"])


def test_a_transaction_that_another_one_is_in_the_way_of_is_sent_again(bench: Bench) -> None:
    grant = bench.grant("anna")
    conflict = client_error("TransactionConflictException")
    faulty = FaultyTable(bench.client, fault(conflict, [1, 2]))
    bench.writes(grant, faulty).transact_write([deposit("x")])
    assert bench.balance("x") == 1


def test_what_dynamodb_finds_invalid_is_an_invalid_request(bench: Bench) -> None:
    grant = bench.grant("anna")
    with pytest.raises(InvalidRequest, match=r"^items: .* multiple operations on one item"):
        bench.writes(grant).transact_write([deposit("x"), deposit("x")])


def test_items_are_checked_also_for_a_client_that_does_not(bench: Bench, aws: LocalAws) -> None:
    """The clients that `LockClient` makes send what they are given."""
    counting = FaultyTable(aws.client("dynamodb", parameter_validation=False))
    malformed: Any = {"Put": {"TableName": "ledger", "Item": {"account": {"S": 5}}}}
    with pytest.raises(InvalidRequest):
        bench.writes(bench.grant("anna"), counting).transact_write([malformed])
    assert counting.calls == []


def test_a_defect_of_our_own_write_is_not_blamed_on_the_callers_items(bench: Bench) -> None:
    grant = bench.grant("anna")
    response: Any = {
        "Error": {"Code": "TransactionCanceledException", "Message": "no"},
        "CancellationReasons": [{"Code": "ValidationError"}, {"Code": "None"}],
    }
    cancelled = bench.client.exceptions.TransactionCanceledException(response, "TransactWriteItems")
    faulty = FaultyTable(bench.client, fault(cancelled))
    with pytest.raises(LockStoreMisconfigured, match="TransactionCanceledException"):
        bench.writes(grant, faulty).transact_write([deposit("x")])
    assert bench.balance("x") is None
