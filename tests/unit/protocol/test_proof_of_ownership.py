"""An owner_id proves ownership: a log of a request or of an answer must not show it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import ModuleType

import pytest

from leasehold.guarded import guarded_table
from leasehold.protocol import claims, model
from leasehold.protocol.model import AcquireRequest, Grant, HandOff, Waiter

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
    waiter = Waiter(request=request, entered_at_ms=1, expires_at_ms=2)
    grant = Grant.of("a", waiter.as_holder(fencing_token=1, now_ms=1))
    assert OWNER_ID not in repr(HandOff(grant=grant, waiter=waiter, waited_ms=0))
