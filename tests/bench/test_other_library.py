"""The documents' stand-in for the other lock client has its names and arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from bench.systems import other_library
from tests.support import old_lock_client as stand_in

CALLED = (
    (stand_in.DynamoDBLockClient, "__init__"),
    (stand_in.DynamoDBLockClient, "acquire_lock"),
    (stand_in.DynamoDBLock, "release"),
    (stand_in.DynamoDBLockError, "__init__"),
)


@pytest.fixture
def library() -> Any:  # noqa: ANN401 - it has no types
    try:
        return other_library()
    except ModuleNotFoundError:
        pytest.skip("python_dynamodb_lock is installed by make bench only")


@pytest.mark.parametrize(("kind", "method"), CALLED, ids=str)
def test_each_argument_that_the_documents_give_exists(
    library: Any,  # noqa: ANN401 - same
    kind: type,
    method: str,
) -> None:
    there = inspect.signature(getattr(getattr(library, kind.__name__), method)).parameters
    assert set(inspect.signature(getattr(kind, method)).parameters) <= set(there)


def test_a_lock_that_was_not_granted_in_time_has_this_code(library: Any) -> None:  # noqa: ANN401 - same
    ours = stand_in.DynamoDBLockError.ACQUIRE_TIMEOUT
    assert ours == library.DynamoDBLockError.ACQUIRE_TIMEOUT
