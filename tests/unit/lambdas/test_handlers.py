"""The Lambda entry points: what they answer, raise, log, and leave in the table."""

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
    BEAT,
    HEARTBEATS,
    NAMED,
    NO_OBJECTS,
    RELEASES,
    VALID_EXECUTION,
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
BY_FORCE = {"requested_by": "olga", "reason": "it hangs"}
ANNA = {"lock_name": "customer/1", "owner_id": "5f0e7c1e-anna-4c57-9d43-000000000001"}
BEN = {"lock_name": "customer/1", "owner_id": "77aa01f2-ben_-4a1b-8b1e-000000000002"}


def test_acquire_heartbeat_and_release_answer_as_the_contract_says(
    dynamodb: DynamoDBClient,
) -> None:
    granted = acquire.handler({**NAMED, "lease_seconds": 90}, CONTEXT)
    lease = {
        **NAMED,
        "fencing_token": granted["fencing_token"],
        "lease_seconds": 90,
        "acquired_at": granted["acquired_at"],
        "expires_in_seconds": granted["expires_in_seconds"],
    }
    assert granted == {"acquired": True, **lease}
    renewed = heartbeat.handler(dict(NAMED), CONTEXT)
    left = renewed["expires_in_seconds"]
    assert renewed == {"renewed": True, **lease, "expires_in_seconds": left}
    assert left > 0.9 * 90
    assert release.handler(dict(NAMED), CONTEXT) == {"released": True, **NAMED}
    item = dynamodb.scan(TableName=TABLE)["Items"][0]
    assert item["held"] == {"N": "0"}
    assert not [name for name in item if name.startswith(("holder:", "token:", "h:", "t:"))]


def test_a_busy_lock_is_refused_without_the_holders_owner_id() -> None:
    granted = acquire.handler({**ANNA, "owner_name": "anna"}, CONTEXT)
    refused = acquire.handler(dict(BEN), CONTEXT)
    expires_at, retry_after = refused["holders"][0]["expires_at"], refused["retry_after_seconds"]
    acquired_at = granted["acquired_at"]
    assert refused == {
        "acquired": False,
        **BEN,
        "reason": "HELD",
        "holders": [{"owner_name": "anna", "acquired_at": acquired_at, "expires_at": expires_at}],
        "retry_after_seconds": retry_after,
    }
    assert 1 <= retry_after <= 2


def test_who_does_not_hold_the_lock_is_told_so() -> None:
    answer = {**NAMED, "reason": "NOT_HELD"}
    assert heartbeat.handler(dict(NAMED), CONTEXT) == {"renewed": False, **answer}
    assert release.handler(dict(NAMED), CONTEXT) == {"released": False, **answer}


@pytest.mark.parametrize(
    ("name", "table"), [("acquire", ACQUIRES), ("heartbeat", HEARTBEATS), ("release", RELEASES)]
)
def test_an_invalid_request_writes_nothing_and_logs_nothing_of_its_own(
    dynamodb: DynamoDBClient, capsys: Output, name: str, table: list[Any]
) -> None:
    acquire.handler(dict(NAMED), CONTEXT)
    before = dynamodb.scan(TableName=TABLE)["Items"]
    capsys.readouterr()
    for bad in [*table, *NO_OBJECTS]:
        with pytest.raises(InvalidRequest):
            HANDLERS[name](bad.event, CONTEXT)
    assert dynamodb.scan(TableName=TABLE)["Items"] == before
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("over_botocore")
def test_a_table_that_does_not_answer_is_raised_under_the_name_that_workflows_match_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    for handler in HANDLERS.values():
        with pytest.raises(LockStoreUnavailable):
            handler(dict(NAMED), CONTEXT)
    with pytest.raises(LockStoreUnavailable):
        force_release.handler({"lock_name": "a", "fencing_token": 7, **BY_FORCE}, CONTEXT)


@pytest.mark.usefixtures("over_botocore")
def test_a_missing_table_is_a_defect_and_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "nowhere")
    told = "lock table 'nowhere' in us-east-1: there is no such table"
    for handler in HANDLERS.values():
        with pytest.raises(LockStoreMisconfigured, match=told):
            handler(dict(NAMED), CONTEXT)


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


@pytest.mark.usefixtures("engine", "outside")
def test_no_line_of_any_operation_holds_an_owner_id_or_a_task_token(capsys: Output) -> None:
    run = {"execution_arn": VALID_EXECUTION}
    made = acquire.handler({"lock_name": "customer/2"}, CONTEXT)["owner_id"]
    granted = acquire.handler({**ANNA, "owner_name": "billing"}, CONTEXT)
    waits = {**BEN, **run, "task_token": "token-of-ben"}
    acquire.handler(dict(BEN), CONTEXT)
    acquire.handler(dict(waits), CONTEXT)
    inspect.handler({"lock_name": "customer/1"}, CONTEXT)
    by_force = {"lock_name": "customer/1", "fencing_token": granted["fencing_token"], **BY_FORCE}
    force_release.handler(by_force, CONTEXT)
    for request in (ANNA, BEN):
        heartbeat.handler(dict(request), CONTEXT)
        release.handler(dict(request), CONTEXT)
    acquire.handler({**NAMED, **run}, CONTEXT)
    event = {"detail": {"executionArn": VALID_EXECUTION}}
    record = {"messageId": "1", "eventSource": "aws:sqs", "body": json.dumps(event)}
    reap.handler({"Records": [record]}, CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    out, err = capsys.readouterr()
    assert err == ""
    told = ("refused", "queued", "handed over", "not held", "released by force", "reaped")
    for message in (*told, "reacquired"):
        assert f'"message":"{message}"' in out
    for secret in (made, NAMED["owner_id"], BEAT["task_token"], "token-of-ben"):
        assert secret not in out
    for owner in (ANNA, BEN):
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


@pytest.mark.parametrize(
    "fields",
    [
        *({name: ANNA["owner_id"]} for name in ("ownerid", "owner_id ")),
        {"owner_id": f"{ANNA['owner_id']}\n"},
    ],
    ids=["misspelled", "with a space", "one character too many"],
)
def test_an_owner_id_that_is_refused_is_not_shown(fields: dict[str, str]) -> None:
    """It may be the proof of ownership of a lock."""
    with pytest.raises(InvalidRequest) as caught:
        release.handler({"lock_name": "x", **fields}, CONTEXT)
    assert ANNA["owner_id"] not in str(caught.value)


def test_a_message_that_could_not_be_worked_off_tells_why(capsys: Output) -> None:
    """It may end in the dead-letter queue, days before another caller looks."""
    body = json.dumps({"detail": {"input": "an-input-of-an-execution"}})
    record = {"messageId": "1", "eventSource": "aws:sqs", "body": body}
    failures = reap.handler({"Records": [record]}, CONTEXT)["batchItemFailures"]
    assert failures == [{"itemIdentifier": "1"}]
    [line] = logged(lines(capsys))
    assert (line["level"], line["exception_name"]) == ("WARNING", "InvalidRequest")
    assert "must be an Execution Status Change event of Step Functions" in line["exception"]
    assert "an-input-of-an-execution" not in json.dumps(line)


@pytest.mark.parametrize("handler", [*HANDLERS.values(), force_release.handler, inspect.handler])
def test_each_function_tells_field_rule_and_value_as_data(handler: Any) -> None:  # noqa: ANN401 - a handler
    with pytest.raises(InvalidRequest) as caught:
        handler({"lock_name": 7}, CONTEXT)
    assert type(caught.value).__name__ == "InvalidRequest"  # By which Lambda reports it.
    told, data = str(caught.value).splitlines()
    rule = caught.value.rule
    assert json.loads(data) == {"field": "lock_name", "rule": rule, "value": "7"}
    assert told == f"lock_name: {rule} (got 7)"
