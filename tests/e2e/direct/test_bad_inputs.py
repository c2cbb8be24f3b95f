"""Requests that break a rule, against the deployed functions: typed errors, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.direct.functions import Functions
from tests.support.bad_inputs import ACQUIRES, HEARTBEATS, NAMED, NO_OBJECTS, RELEASES, BadInput

TABLES = {
    "acquire": [*ACQUIRES, *NO_OBJECTS],
    "heartbeat": [*HEARTBEATS, *NO_OBJECTS],
    "release": [*RELEASES, *NO_OBJECTS],
}


@pytest.fixture(scope="module")
def held(functions: Functions) -> Iterator[dict[str, Any]]:
    """A lock that the bad requests name: one that passes by mistake changes it."""
    assert functions.ask("acquire", {**NAMED, "lease_seconds": 600})["acquired"]
    yield functions.item(NAMED["lock_name"])
    functions.ask("release", NAMED)


@pytest.mark.parametrize("operation", TABLES)
def test_bad_input_is_an_invalid_request_and_leaves_the_table_unchanged(
    functions: Functions, held: dict[str, Any], operation: str
) -> None:
    assert functions.item(NAMED["lock_name"]) == held
    before = functions.written()
    assert len(TABLES[operation]) >= 30
    unlike = [bad.name for bad in TABLES[operation] if not _is_refused(functions, operation, bad)]
    assert unlike == []
    assert functions.written() == before


def _is_refused(functions: Functions, operation: str, bad: BadInput) -> bool:
    invoked = functions.invoke(operation, bad.event)
    message = str(invoked.payload.get("errorMessage"))
    field = bad.field or "a field of 0 characters"
    return (
        invoked.function_error == "Unhandled"
        and invoked.error == "InvalidRequest"
        and message.startswith(f"{field}: {bad.rule}")
    )


def test_the_functions_still_work_after_all_those_errors(functions: Functions) -> None:
    """A worker that a bad request had killed would answer with an error of the runtime."""
    for operation in TABLES:
        named = {**NAMED, "lock_name": "after-the-errors"}
        assert functions.invoke(operation, named).function_error is None
