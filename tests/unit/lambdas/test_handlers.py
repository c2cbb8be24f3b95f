"""The Lambda entry points: what they answer, what they raise, and what they leave in the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.errors import InvalidRequest, LockStoreMisconfigured, LockStoreUnavailable
from lambdas import acquire, heartbeat, release
from tests.support import TABLE
from tests.support.bad_inputs import ACQUIRES, HEARTBEATS, NAMED, NO_OBJECTS, RELEASES, VALID_OWNER
from tests.support.lambda_context import LambdaContextStub

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Handler = Callable[[Any, Any], dict[str, Any]]
HANDLERS: dict[str, Handler] = {
    "acquire": acquire.handler,
    "heartbeat": heartbeat.handler,
    "release": release.handler,
}
CONTEXT = LambdaContextStub()
RIVAL = "rival-0123456789"

pytestmark = pytest.mark.usefixtures("lambda_environment")


def test_acquire_heartbeat_and_release_answer_as_the_contract_says(
    dynamodb: DynamoDBClient,
) -> None:
    granted = acquire.handler({**NAMED, "lease_seconds": 90}, CONTEXT)
    token, acquired_at = granted["fencing_token"], granted["acquired_at"]
    assert granted == {
        "acquired": True,
        "lock_name": "nightly-report",
        "owner_id": VALID_OWNER,
        "fencing_token": token,
        "lease_seconds": 90,
        "acquired_at": acquired_at,
        "expires_in_seconds": granted["expires_in_seconds"],
    }
    renewed = heartbeat.handler(dict(NAMED), CONTEXT)
    assert renewed == {
        "renewed": True,
        "lock_name": "nightly-report",
        "owner_id": VALID_OWNER,
        "fencing_token": token,
        "lease_seconds": 90,
        "acquired_at": acquired_at,
        "expires_in_seconds": renewed["expires_in_seconds"],
    }
    assert renewed["expires_in_seconds"] > 0.9 * renewed["lease_seconds"]
    assert release.handler(dict(NAMED), CONTEXT) == {
        "released": True,
        "lock_name": "nightly-report",
        "owner_id": VALID_OWNER,
    }
    item = dynamodb.scan(TableName=TABLE)["Items"][0]
    assert item["held"] == {"N": "0"}
    assert not [name for name in item if name.startswith(("holder:", "token:", "h:", "t:"))]


def test_a_busy_lock_is_refused_without_the_holders_owner_id() -> None:
    granted = acquire.handler({**NAMED, "owner_name": "anna"}, CONTEXT)
    refused = acquire.handler({"lock_name": "nightly-report", "owner_id": RIVAL}, CONTEXT)
    assert refused == {
        "acquired": False,
        "lock_name": "nightly-report",
        "owner_id": RIVAL,
        "reason": "HELD",
        "holders": [
            {
                "owner_name": "anna",
                "acquired_at": granted["acquired_at"],
                "expires_at": refused["holders"][0]["expires_at"],
            }
        ],
        "retry_after_seconds": 1,
    } | {"retry_after_seconds": refused["retry_after_seconds"]}
    assert 1 <= refused["retry_after_seconds"] <= 2


def test_who_does_not_hold_the_lock_is_told_so() -> None:
    answer = {"lock_name": "nightly-report", "owner_id": VALID_OWNER, "reason": "NOT_HELD"}
    assert heartbeat.handler(dict(NAMED), CONTEXT) == {"renewed": False, **answer}
    assert release.handler(dict(NAMED), CONTEXT) == {"released": False, **answer}


@pytest.mark.parametrize(
    ("name", "table"),
    [("acquire", ACQUIRES), ("heartbeat", HEARTBEATS), ("release", RELEASES)],
)
def test_an_invalid_request_writes_nothing(
    dynamodb: DynamoDBClient, name: str, table: list[Any]
) -> None:
    acquire.handler(dict(NAMED), CONTEXT)
    before = dynamodb.scan(TableName=TABLE)["Items"]
    for bad in [*table, *NO_OBJECTS]:
        with pytest.raises(InvalidRequest):
            HANDLERS[name](bad.event, CONTEXT)
    assert dynamodb.scan(TableName=TABLE)["Items"] == before


@pytest.mark.usefixtures("over_botocore")
@pytest.mark.parametrize("name", HANDLERS)
def test_a_table_that_does_not_answer_is_raised_under_the_name_that_workflows_match_on(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    with pytest.raises(LockStoreUnavailable):
        HANDLERS[name](dict(NAMED), CONTEXT)


@pytest.mark.usefixtures("over_botocore")
@pytest.mark.parametrize("name", HANDLERS)
def test_a_missing_table_is_a_defect_and_not_an_answer(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "nowhere")
    told = "lock table 'nowhere' in us-east-1: there is no such table"
    with pytest.raises(LockStoreMisconfigured, match=told):
        HANDLERS[name](dict(NAMED), CONTEXT)


def test_readers_share_a_lock_and_one_of_them_cannot_become_a_writer() -> None:
    shared = {"lock_name": "nightly-report", "shared": True}
    first = acquire.handler({**shared, "owner_id": VALID_OWNER}, CONTEXT)
    assert first["acquired"]
    assert acquire.handler({**shared, "owner_id": RIVAL}, CONTEXT)["acquired"]
    writer = {**shared, "shared": False, "owner_id": "writer-0123456789"}
    assert acquire.handler(writer, CONTEXT)["reason"] == "HELD"
    with pytest.raises(InvalidRequest, match=r"^shared: must be true: this owner_id shares"):
        acquire.handler({**shared, "shared": False, "owner_id": RIVAL}, CONTEXT)
    with pytest.raises(InvalidRequest, match=r"^shared: must be true or false"):
        acquire.handler({**shared, "shared": "yes"}, CONTEXT)
