"""No two acquisitions of an execution share a claim, whatever their lock names and owner ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlock.protocol import schema
from fairlock.protocol.model import AcquireRequest, ReleaseRequest
from fairlock.protocol.outcomes import Grant
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock
from tests.support.store_bench import RUN, Bench

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


def plainly_joined(
    execution_arn: str, *, lock_name: str, owner_id: str
) -> dict[str, dict[str, str]]:
    """The key without the length."""
    partition = schema.partition_of_execution(execution_arn)
    return {"pk": {"S": partition}, "sk": {"S": f"LOCK#{lock_name}#{owner_id}"}}


@contextmanager
def keys_plainly_joined() -> Iterator[None]:
    with patch.object(schema, "claim_key", plainly_joined):
        yield


@example(*COLLIDING)
@example(("a", "1#1"), ("a#1", "1"))
@given(acquisitions, acquisitions)
def test_two_acquisitions_have_one_key_only_if_they_are_the_same(
    one: Acquisition, other: Acquisition
) -> None:
    assert (sort_key(one) == sort_key(other)) == (one == other)


def test_keys_that_are_plainly_joined_collide() -> None:
    """The negative control of the test above."""
    with keys_plainly_joined():
        assert sort_key(COLLIDING[0]) == sort_key(COLLIDING[1])


def test_the_longest_key_fits() -> None:
    longest = sort_key(("x" * 512, "y" * 128))
    assert len(longest.encode()) <= LONGEST_SORT_KEY_BYTES


def reaped(clock: FakeClock) -> list[list[str]]:
    """Who holds two locks after the end of the execution that held both."""
    bench = Bench(MemoryTable(), clock)
    for lock_name, owner_id in COLLIDING:
        request = AcquireRequest(
            lock_name=lock_name, owner_id=owner_id, owner_name=lock_name, execution_arn=RUN
        )
        assert isinstance(bench.store().acquire(request), Grant)
    bench.end()
    bench.reap()
    return [bench.holders(lock_name) for lock_name, _ in COLLIDING]


def test_both_locks_of_an_execution_are_reaped_though_their_names_contain_the_separator(
    clock: FakeClock,
) -> None:
    assert reaped(clock) == [[], []]


def test_with_keys_that_are_plainly_joined_one_of_the_locks_stays_taken(clock: FakeClock) -> None:
    with keys_plainly_joined():
        assert reaped(clock) == [["a"], []]


@pytest.mark.parametrize("released", [0, 1])
def test_a_release_ends_the_claim_of_its_own_acquisition_only(
    clock: FakeClock, released: int
) -> None:
    bench = Bench(MemoryTable(), clock)
    for lock_name, owner_id in COLLIDING:
        bench.store().acquire(
            AcquireRequest(
                lock_name=lock_name, owner_id=owner_id, owner_name="x", execution_arn=RUN
            )
        )
    lock_name, owner_id = COLLIDING[released]
    bench.store().release(ReleaseRequest(lock_name=lock_name, owner_id=owner_id, execution_arn=RUN))
    remaining = [claim["sk"]["S"] for claim in bench.claims()]
    assert remaining == [sort_key(COLLIDING[1 - released])]
