"""The error tree, which workflows match on by class name."""

from __future__ import annotations

import pickle

import pytest

import leasehold
from leasehold.errors import (
    InvalidRequest,
    LeaseholdError,
    LockLost,
    LockStoreUnavailable,
    LockWaitTimeout,
    shorten,
)


def test_the_class_names_are_those_that_workflows_match_on() -> None:
    names = {error.__name__ for error in LeaseholdError.__subclasses__()}
    assert names >= {"InvalidRequest", "LockStoreUnavailable", "LockWaitTimeout", "LockLost"}


@pytest.mark.parametrize("kind", [InvalidRequest, LockStoreUnavailable, LockWaitTimeout, LockLost])
def test_each_error_is_a_leasehold_error_and_none_is_a_kind_of_another(kind: type) -> None:
    assert kind.__mro__[1] is LeaseholdError
    assert LeaseholdError.__mro__[1] is Exception


def test_the_errors_can_be_imported_from_the_root() -> None:
    for kind in (InvalidRequest, LockStoreUnavailable, LockWaitTimeout, LockLost, LeaseholdError):
        assert getattr(leasehold, kind.__name__) is kind
        assert kind.__name__ in leasehold.__all__


def test_an_invalid_request_carries_its_parts() -> None:
    error = InvalidRequest(field="limit", rule="must be even", value=3)
    assert (error.field, error.rule, error.value) == ("limit", "must be even", "3")
    assert str(error) == "limit: must be even (got 3)"


def test_a_plain_error_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(LockStoreUnavailable("throttled")))  # noqa: S301 - our own bytes
    assert (type(copy), copy.args) == (LockStoreUnavailable, ("throttled",))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        ("", "''"),
        ("it's", '"it\'s"'),
        ("a\nb", "'a\\nb'"),
        ("\ud800", "'\\ud800'"),
        ("x" * 60, f"'{'x' * 60}'"),
        ("x" * 61, f"'{'x' * 59}… (61 characters)"),
        ("\0" * 60, f"'{(chr(92) + 'x00') * 14}{chr(92)}x0… (60 characters)"),
        ([1] * 20, f"[{'1, ' * 19}1]"),
        ([1] * 21, f"[{'1, ' * 19}1,…"),
        pytest.param(10**5000, "a value of type int that is too large to show", id="digits"),
    ],
)
def test_values_are_shown_as_literals_cut_to_sixty_characters(value: object, shown: str) -> None:
    assert shorten(value) == shown
