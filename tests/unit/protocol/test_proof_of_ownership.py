"""An owner_id proves ownership: a log of a request or of an answer must not show it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import TYPE_CHECKING, cast

import pytest

from fairlock.aws.lock_table import Cancelled, ConditionFailed, LockTable, Written
from fairlock.guarded import guarded_table
from fairlock.protocol import claims, model
from fairlock.protocol.expressions import Delete, Transaction, Update
from fairlock.protocol.model import AcquireRequest, ReleaseRequest, Waiter
from fairlock.protocol.outcomes import Grant, HandOff
from fairlock.store.context import LockContext
from fairlock.testing.fake_table import MemoryTable
from tests.support.operations import Operations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

OWNER_ID = "an-owner-id-of-36-letters-and-digits"


def with_owner_ids(module: ModuleType) -> list[type]:
    """The dataclasses of a module that have an owner_id."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and is_dataclass(value)
        and value.__module__ == module.__name__
        and "owner_id" in {field.name for field in fields(value)}
    ]


@pytest.mark.parametrize(
    "kind",
    [kind for module in (model, claims, guarded_table) for kind in with_owner_ids(module)],
)
def test_the_owner_id_is_not_shown_by_repr(kind: type) -> None:
    assert [field.repr for field in fields(kind) if field.name == "owner_id"] == [False]


def test_nor_by_the_repr_of_what_contains_it() -> None:
    request = AcquireRequest(lock_name="a", owner_id=OWNER_ID)
    waiter = Waiter(request=request, entered_at_ms=1, asked_at_ms=1, expires_at_ms=2)
    grant = Grant.of("a", waiter.as_holder(fencing_token=1, now_ms=1))
    assert OWNER_ID not in repr(HandOff(grant=grant, waiter=waiter, waited_ms=0))


class RememberingTable(LockTable):
    """Keeps each request and each outcome."""

    def __init__(self) -> None:
        super().__init__(cast("DynamoDBClient", MemoryTable()), "locks")
        self.seen: list[object] = []

    def update(self, update: Update) -> Written | ConditionFailed:
        outcome = super().update(update)
        self.seen += [update, outcome]
        return outcome

    def transact(self, transaction: Transaction) -> Written | Cancelled:
        outcome = super().transact(transaction)
        self.seen += [transaction, outcome]
        return outcome

    def delete(self, delete: Delete) -> bool:
        self.seen.append(delete)
        return super().delete(delete)


def test_nor_by_the_repr_of_a_request_to_the_table_or_of_its_outcome() -> None:
    table = RememberingTable()
    store = Operations(LockContext(table=table))
    others = "another-owner-id-of-32-characters"
    anna = AcquireRequest(lock_name="a", owner_id=OWNER_ID)
    ben = AcquireRequest(lock_name="a", owner_id=others, waits=True)
    for request in (anna, ben):
        store.acquire(request)
    for owner_id in (OWNER_ID, others):
        store.release(ReleaseRequest(lock_name="a", owner_id=owner_id))
    assert {type(value) for value in table.seen} >= {Update, Transaction, Written, ConditionFailed}
    for value in table.seen:
        assert OWNER_ID not in repr(value)
        assert others not in repr(value)
    contents = [getattr(value, "values", getattr(value, "item", None)) for value in table.seen]
    assert OWNER_ID in str(contents), "the control: it is in there"
