"""A fault is no answer: whatever fails at whichever request, a repeat ends as the first call would.

Each operation runs in a world of its own, once undisturbed, and once for each of its requests with
each fault. What it answers under a fault is the undisturbed answer, or an error that says that the
outcome is unknown; after a repeat of the same call, answer and table are the undisturbed ones.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from fairlock import create_table
from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable
from tests.contracts.disturbed import (
    ENDS,
    FAULTS,
    OPERATIONS,
    G,
    Operation,
    T,
    World,
    held,
    outcome_of,
    verify,
    write,
)
from tests.support import TABLE
from tests.support.faulty_table import (
    REQUESTS,
    FaultyTable,
    Killed,
    client_error,
    defects,
    fault,
    unknown_outcomes,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

each_operation = pytest.mark.parametrize("name", OPERATIONS)


@pytest.mark.parametrize("kind", FAULTS)
@each_operation
def test_whatever_fails_the_repeat_ends_as_the_undisturbed_call(name: str, kind: str) -> None:
    verify(name, FAULTS[kind], tells=kind not in ENDS)


@each_operation
def test_an_operation_takes_so_many_requests(name: str) -> None:
    if OPERATIONS[name].requests:
        assert outcome_of(OPERATIONS[name]).calls == OPERATIONS[name].requests


def fails_at_once(name: str, error: Exception) -> Exception:
    """What a call raises if every request fails so; nothing is written."""
    world = World()
    OPERATIONS[name].before(world)
    before = dict(world.client.items)
    world.faulty.will(fault(error, of=REQUESTS))
    with pytest.raises((LockStoreUnavailable, LockStoreMisconfigured, Exception)) as caught:
        OPERATIONS[name].call(world)
    assert world.client.items == before
    return caught.value


@each_operation
def test_a_failure_that_says_nothing_about_the_write_leaves_the_outcome_unknown(name: str) -> None:
    for kind, error in unknown_outcomes().items():
        raised = fails_at_once(name, error)
        assert isinstance(raised, LockStoreUnavailable), kind
        assert "repeat the call" in str(raised), kind


STORE: Final = [name for name in OPERATIONS if not name.startswith("guarded write")]


@pytest.mark.parametrize("name", STORE)
def test_a_defect_of_the_set_up_names_the_table_and_what_to_do(name: str) -> None:
    for code, error in defects().items():
        error.response["ResponseMetadata"]["RetryAttempts"] = 0
        raised = fails_at_once(name, error)
        assert isinstance(raised, LockStoreMisconfigured), code
        assert str(raised).startswith(f"lock table '{TABLE}' in us-east-1: ")
        assert (raised.table_name, raised.region, raised.code) == (TABLE, "us-east-1", code)
        assert raised.__cause__ is error


@pytest.mark.parametrize("name", [*STORE, "guarded write", "guarded write with release"])
def test_a_refused_repeat_leaves_the_outcome_of_the_first_sending_unknown(name: str) -> None:
    """The reply to the first sending got lost, and the credentials are over at the second."""
    error = client_error("ExpiredTokenException")
    assert error.response["ResponseMetadata"]["RetryAttempts"] == 2
    raised = fails_at_once(name, error)
    is_read = isinstance(raised, LockStoreMisconfigured) and OPERATIONS[name].requests[:1] == [G]
    assert isinstance(raised, LockStoreUnavailable) or is_read


def test_control_a_guarded_write_without_a_token_is_made_twice_by_its_repeat() -> None:
    nameless = Operation(partial(write, releases=False, token=None), [T], held)
    assert outcome_of(nameless, FAULTS["lost reply"](1)).sight["ledger"] == {"N": "2"}


# Tables are made by other requests, whose errors are boto3's.

SETS_UP: Final = (
    *("create_table", "describe_table", "describe_time_to_live", "update_time_to_live"),
    *("update_table", "update_continuous_backups"),
)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_that_was_made_half_is_made_whole_by_the_repeat(
    fresh_dynamodb: DynamoDBClient, when: Literal["before", "after"]
) -> None:
    settings = {"deletion_protection": True, "point_in_time_recovery": True}
    for number in range(1, 8):
        name = f"locks-{number}"
        dying: Any = FaultyTable(fresh_dynamodb, fault(Killed(), number, when=when, of=SETS_UP))
        with suppress(Killed):
            create_table(dying, name, **settings)  # type: ignore[arg-type]  # two of them
        create_table(fresh_dynamodb, name, **settings)  # type: ignore[arg-type]  # same
        described = fresh_dynamodb.describe_table(TableName=name)["Table"]
        ttl = fresh_dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert (described["TableStatus"], described["DeletionProtectionEnabled"]) == (
            "ACTIVE",
            True,
        )
        assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "expiry_time")
    assert len(dying.calls) == 6, "the last one ran undisturbed"
