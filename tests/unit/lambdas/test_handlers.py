"""The Lambda entry points: what they answer, what they raise, and what they leave in the table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from botocore.session import Session, get_session

from fairlock.errors import InvalidRequest, LockStoreMisconfigured, LockStoreUnavailable
from lambdas import acquire, force_release, heartbeat, inspect, reap, release, runtime
from tests.support import TABLE, LambdaContextStub, lines, logged
from tests.support.bad_inputs import (
    ACQUIRES,
    HEARTBEATS,
    NAMED,
    NO_OBJECTS,
    RELEASES,
    VALID_EXECUTION,
    VALID_OWNER,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


Handler = Callable[[Any, Any], dict[str, Any]]
HANDLERS: dict[str, Handler] = {
    "acquire": acquire.handler,
    "heartbeat": heartbeat.handler,
    "release": release.handler,
}
Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("lambda_environment")
CONTEXT = LambdaContextStub()
RIVAL = "rival-0123456789"


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
    ("name", "table"), [("acquire", ACQUIRES), ("heartbeat", HEARTBEATS), ("release", RELEASES)]
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
def test_a_table_that_does_not_answer_is_raised_under_the_name_that_workflows_match_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    for handler in HANDLERS.values():
        with pytest.raises(LockStoreUnavailable):
            handler(dict(NAMED), CONTEXT)
    by_force = {"fencing_token": 7, "requested_by": "olga", "reason": "it hangs"}
    with pytest.raises(LockStoreUnavailable):
        force_release.handler({"lock_name": "a", **by_force}, CONTEXT)


@pytest.mark.usefixtures("over_botocore")
def test_a_missing_table_is_a_defect_and_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "nowhere")
    told = "lock table 'nowhere' in us-east-1: there is no such table"
    for handler in HANDLERS.values():
        with pytest.raises(LockStoreMisconfigured, match=told):
            handler(dict(NAMED), CONTEXT)


ANNA = {"lock_name": "customer/1", "owner_id": "5f0e7c1e-anna-4c57-9d43-000000000001"}
BEN = {"lock_name": "customer/1", "owner_id": "77aa01f2-ben_-4a1b-8b1e-000000000002"}


@pytest.mark.usefixtures("over_botocore")
def test_a_call_sends_the_requests_of_its_operation_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []

    def session() -> Session:
        made = get_session()
        made.register("request-created", lambda **told: sent.append(told["operation_name"]))
        return made

    monkeypatch.setattr(runtime, "get_session", session)

    def requests_of(name: str, owner: dict[str, str], **fields: object) -> list[str]:
        sent.clear()
        HANDLERS[name]({**owner, **fields}, CONTEXT)
        return [*sent]

    one = ["UpdateItem"]
    for owner in (ANNA, ANNA, BEN):  # Granted, repeated, refused.
        assert requests_of("acquire", owner) == one
    assert [requests_of("heartbeat", owner) for owner in (ANNA, BEN)] == [one, one]
    assert requests_of("heartbeat", ANNA, lease_seconds=1) == one * 2, "its lease would end sooner"
    for owner in (BEN, ANNA, ANNA):  # Not held, released, repeated.
        assert requests_of("release", owner) == one
    assert requests_of("acquire", BEN) == one, "a lock that was used before"


# Logs of the handlers: JSON lines that say what happened and never who can prove it.


def run_all_operations() -> None:
    for owner in (ANNA, BEN):
        acquire.handler({**owner, "owner_name": "billing"}, CONTEXT)
        acquire.handler(dict(owner), CONTEXT)
        heartbeat.handler(dict(owner), CONTEXT)
    for owner in (ANNA, BEN, ANNA):
        release.handler(dict(owner), CONTEXT)
        heartbeat.handler(dict(owner), CONTEXT)
        acquire.handler(dict(owner), CONTEXT)


def test_no_line_of_any_operation_holds_an_owner_id(capsys: Output) -> None:
    run_all_operations()
    out, err = capsys.readouterr()
    assert len(out.splitlines()) > 20
    assert err == ""
    for owner in (ANNA, BEN):
        assert owner["owner_id"] not in out
        assert owner["owner_id"].split("-", 1)[1] not in out
        assert hashlib.sha256(owner["owner_id"].encode()).hexdigest()[:8] not in out


def test_an_acquisition_is_named_by_its_lock_and_its_fencing_token(capsys: Output) -> None:
    token = acquire.handler({**ANNA, "owner_name": "anna's host"}, CONTEXT)["fencing_token"]
    acquire.handler({**BEN, "execution_arn": VALID_EXECUTION}, CONTEXT)
    release.handler(dict(ANNA), CONTEXT)
    release.handler(dict(BEN), CONTEXT)
    found = logged(lines(capsys))
    assert [(line["level"], line["message"], line.get("fencing_token")) for line in found] == [
        ("INFO", "granted", token),
        ("INFO", "refused", None),
        ("INFO", "released", token),
        ("WARNING", "not held", None),
    ]
    assert (found[0]["owner_name"], found[1]["execution_arn"]) == ("anna's host", VALID_EXECUTION)
    assert {line["lock_name"] for line in found} == {"customer/1"}
    assert {line["service"] for line in found} == {"fairlock"}
    assert {line["function_request_id"] for line in found} == {CONTEXT.aws_request_id}


def test_an_owner_id_that_the_function_made_is_not_logged_either(capsys: Output) -> None:
    answer = acquire.handler({"lock_name": "customer/2"}, CONTEXT)
    out, err = capsys.readouterr()
    assert answer["owner_id"] not in out + err


def test_invalid_requests_log_nothing_of_their_own(capsys: Output) -> None:
    for bad in ACQUIRES:
        with pytest.raises(InvalidRequest):
            acquire.handler(bad.event, CONTEXT)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("field", ["ownerid", "owner_id "])
def test_an_owner_id_in_a_misspelled_field_is_not_shown(field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        release.handler({"lock_name": "x", field: ANNA["owner_id"]}, CONTEXT)
    assert ANNA["owner_id"] not in str(caught.value)


def test_an_owner_id_that_breaks_its_rule_is_not_shown() -> None:
    """It may be the proof of ownership of a lock with one character too many."""
    with pytest.raises(InvalidRequest) as caught:
        release.handler({"lock_name": "x", "owner_id": f"{ANNA['owner_id']}\n"}, CONTEXT)
    assert ANNA["owner_id"] not in str(caught.value)


def test_a_message_that_could_not_be_worked_off_tells_why(capsys: Output) -> None:
    """It may end in the dead-letter queue, days before another caller looks."""
    record = {"messageId": "1", "eventSource": "aws:sqs", "body": "{}"}
    failures = reap.handler({"Records": [record]}, CONTEXT)["batchItemFailures"]
    assert failures == [{"itemIdentifier": "1"}]
    [line] = logged(lines(capsys))
    assert (line["level"], line["exception_name"]) == ("WARNING", "InvalidRequest")
    assert "must be an Execution Status Change event of Step Functions" in line["exception"]


# What a caller of the functions reads of a request that breaks a rule.

FAILING_HANDLERS = [acquire.handler, heartbeat.handler, release.handler, force_release.handler]


@pytest.mark.parametrize("handler", [*FAILING_HANDLERS, inspect.handler])
def test_each_function_tells_field_rule_and_value_as_data(handler: Any) -> None:  # noqa: ANN401 - a handler
    with pytest.raises(InvalidRequest) as caught:
        handler({"lock_name": 7}, LambdaContextStub())
    assert type(caught.value).__name__ == "InvalidRequest"  # By which Lambda reports it.
    told, data = str(caught.value).splitlines()
    rule = caught.value.rule
    assert json.loads(data) == {"field": "lock_name", "rule": rule, "value": "7"}
    assert told == f"lock_name: {rule} (got 7)"
