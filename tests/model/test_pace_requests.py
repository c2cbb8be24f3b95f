"""Each form of a reservation does the same to the table in memory as to moto's DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from fairlock.aws.lock_table import ConditionFailed, LockTable, Written
from fairlock.protocol.expressions import Update
from fairlock.protocol.pace import AwsTime, PaceRequest, PaceState, reserve_idle, reserve_next
from fairlock.protocol.schema import pace_key
from fairlock.testing.fake_table import MemoryTable
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_S: Final = 1_000_000
NOW: Final = AwsTime(1_900_000_000 * _S, 1_900_000_002 * _S)
ME: Final = "my-reservation-id"
REQUEST: Final = PaceRequest(
    name="vendor", reservation_id=ME, interval_us=6 * _S, max_wait_us=30 * _S
)


def stored(seconds: float, reservation_id: str = "another-reservation") -> PaceState:
    next_us = NOW.early_us + round(seconds * _S)
    return PaceState(next_us=next_us, slot_us=next_us - 6 * _S, reservation_id=reservation_id)


STATES: Final[dict[str, PaceState | None]] = {
    "no item": None,
    "long ago": stored(-1_000),
    "now": stored(0),
    "in a moment": stored(0.000_001),
    "as late as allowed": stored(30),
    "too late": stored(30.000_001),
    "mine, past": stored(-1, ME),
    "mine, to come": stored(10, ME),
}
FORMS: Final[dict[str, Callable[..., Update]]] = {"idle": reserve_idle, "next": reserve_next}
WRITTEN: Final = {
    ("idle", False): {"no item", "long ago", "now"},
    ("next", False): {"long ago", "now", "in a moment", "as late as allowed"},
    ("idle", True): {"no item", "long ago", "now", "mine, past"},
    ("next", True): {"long ago", "now", "in a moment", "as late as allowed", "mine, past"}
    | {"mine, to come"},
}


def item(state: PaceState) -> dict[str, Any]:
    return {
        **pace_key("vendor"),
        "next_slot_us": {"N": str(state.next_us)},
        "slot_us": {"N": str(state.slot_us)},
        "reservation_id": {"S": state.reservation_id},
        "expiry_time": {"N": "1"},
    }


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STATES)
def test_a_reservation_does_the_same_as_on_moto(
    dynamodb: DynamoDBClient, name: str, form: str, *, again: bool
) -> None:
    state = STATES[name]
    update = FORMS[form](REQUEST, NOW, over=state if again else None)
    memory = MemoryTable()
    for table in (memory, dynamodb):
        if state is not None:
            cast("Any", table).put_item(TableName=TABLE, Item=item(state))
    answers = [LockTable(cast("Any", table), TABLE).update(update) for table in (memory, dynamodb)]
    assert answers[0] == answers[1]
    is_expected = name in WRITTEN[(form, again)]
    assert isinstance(answers[0], Written if is_expected else ConditionFailed)
    assert list(memory.items.values()) == dynamodb.scan(TableName=TABLE)["Items"]
