"""What proves that an acquisition is one's own: keys of claims, and owner ids."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.guarded import guarded_table
from fairlock.protocol import claims, model, schema
from fairlock.protocol.grants import acquire_permit
from fairlock.protocol.model import AcquireRequest, Grant, ReleaseRequest, Waiter
from fairlock.protocol.outcomes import HandOff
from fairlock.protocol.table_requests import Delete, Transaction, Update
from fairlock.protocol.waiters import give_up, leave_queue
from tests.support.store_bench import RUN, Bench

# No two acquisitions of an execution share a claim, whatever their lock names and owner ids.


Acquisition = tuple[str, str]
"""A lock name and an owner id."""

LONG: Final = "owner-0123456789"
COLLIDING: Final = (("a", f"{LONG}#{LONG}"), (f"a#{LONG}", LONG))
LONGEST_SORT_KEY_BYTES: Final = 1024

acquisitions = st.tuples(
    st.text(st.sampled_from("a1#"), min_size=1, max_size=12),
    st.text(st.sampled_from("a1#"), min_size=1, max_size=12),
)


def sort_key(acquisition: Acquisition) -> Any:  # noqa: ANN401 - of an item
    lock_name, owner_id = acquisition
    return schema.claim_key(RUN, lock_name=lock_name, owner_id=owner_id)["sk"]["S"]


@example(*COLLIDING)
@example(("a", "1#1"), ("a#1", "1"))
@given(acquisitions, acquisitions)
def test_two_acquisitions_have_one_key_only_if_they_are_the_same(
    one: Acquisition, other: Acquisition
) -> None:
    assert (sort_key(one) == sort_key(other)) == (one == other)


def test_the_longest_key_fits() -> None:
    longest = sort_key(("x" * 512, "y" * 128))
    assert len(longest.encode()) <= LONGEST_SORT_KEY_BYTES


def held_by_one_execution(bench: Bench) -> None:
    for lock_name, owner_id in COLLIDING:
        bench.grant("x", lock_name=lock_name, owner_id=owner_id, execution_arn=RUN)


def test_both_locks_of_an_execution_are_reaped_though_their_names_contain_the_separator(
    bench: Bench,
) -> None:
    held_by_one_execution(bench)
    bench.end()
    bench.reap()
    assert [bench.holders(lock_name) for lock_name, _ in COLLIDING] == [[], []]


@pytest.mark.parametrize("released", [0, 1])
def test_a_release_ends_the_claim_of_its_own_acquisition_only(bench: Bench, released: int) -> None:
    held_by_one_execution(bench)
    lock_name, owner_id = COLLIDING[released]
    bench.release("x", lock_name=lock_name, owner_id=owner_id, execution_arn=RUN)
    remaining = [claim["sk"]["S"] for claim in bench.claims()]
    assert remaining == [sort_key(COLLIDING[1 - released])]


# An owner_id proves ownership: a log of a request or of an answer must not show it.


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
    "kind", [kind for module in (model, claims, guarded_table) for kind in with_owner_ids(module)]
)
def test_the_owner_id_is_not_shown_by_repr(kind: type) -> None:
    assert [field.repr for field in fields(kind) if field.name == "owner_id"] == [False]


def test_nor_by_the_repr_of_what_contains_it() -> None:
    request = AcquireRequest(lock_name="a", owner_id=OWNER_ID)
    waiter = Waiter(request=request, entered_at_ms=1, asked_at_ms=1, expires_at_ms=2)
    grant = Grant.of("a", waiter.as_holder(fencing_token=1, now_ms=1))
    assert OWNER_ID not in repr(HandOff(grant=grant, waiter=waiter, waited_ms=0))


def test_nor_by_the_repr_of_a_request_to_the_table_or_of_its_outcome() -> None:
    asks = AcquireRequest(lock_name="a", owner_id=OWNER_ID)
    leaves = ReleaseRequest(lock_name="a", owner_id=OWNER_ID)
    item: dict[str, Any] = {"last_released": {"S": OWNER_ID}}
    shown: tuple[Any, ...] = (
        acquire_permit(asks, sent_at_ms=1, now_ms=1),
        give_up(leaves, entered_at_ms=1, left_at_ms=1),
        leave_queue(leaves, entered_at_ms=1),
        Written(item),
        ConditionFailed(item),
    )
    assert {type(value) for value in shown} >= {Update, Transaction, Delete}
    for value in shown:
        assert OWNER_ID not in repr(value)
        assert OWNER_ID in str(asdict(value)), "the control: it is in there"
