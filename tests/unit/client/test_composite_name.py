"""Names made of parts: no two lists of parts share one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlock import InvalidRequest, composite_name

PARTS = st.lists(st.text("a/%2F", min_size=1, max_size=4), min_size=1, max_size=3)


def test_parts_are_joined_by_slashes() -> None:
    assert composite_name("customer", "7") == "customer/7"
    assert composite_name("a/b", "c%") == "a%2Fb/c%25"


@given(PARTS, PARTS)
def test_other_parts_make_another_name(some: list[str], others: list[str]) -> None:
    assert (composite_name(*some) == composite_name(*others)) == (some == others)


def test_joined_without_care_other_parts_make_the_same_name() -> None:
    some, others = ("a/b", "c"), ("a", "b/c")
    assert "/".join(some) == "/".join(others)
    assert composite_name(*some) != composite_name(*others)


@pytest.mark.parametrize("parts", [(), (7,), (None, "a"), ("a", "b "), ("x" * 513,)])
def test_what_makes_no_name_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        composite_name(*parts)
