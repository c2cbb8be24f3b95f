"""Logs of the handlers: JSON lines that say what happened and never who can prove it."""

from __future__ import annotations

import hashlib

import pytest

from fairlock.errors import InvalidRequest
from lambdas import acquire, heartbeat, reap, release
from tests.support.bad_inputs import ACQUIRES, VALID_EXECUTION
from tests.support.lambda_context import LambdaContextStub
from tests.unit.lambdas.output import lines, logged

CONTEXT = LambdaContextStub()
ANNA = {"lock_name": "customer/1", "owner_id": "5f0e7c1e-anna-4c57-9d43-000000000001"}
BEN = {"lock_name": "customer/1", "owner_id": "77aa01f2-ben_-4a1b-8b1e-000000000002"}

pytestmark = pytest.mark.usefixtures("lambda_environment")


def run_all_operations() -> None:
    for owner in (ANNA, BEN):
        acquire.handler({**owner, "owner_name": "billing"}, CONTEXT)
        acquire.handler(dict(owner), CONTEXT)
        heartbeat.handler(dict(owner), CONTEXT)
    for owner in (ANNA, BEN, ANNA):
        release.handler(dict(owner), CONTEXT)
        heartbeat.handler(dict(owner), CONTEXT)
        acquire.handler(dict(owner), CONTEXT)


def test_no_line_of_any_operation_holds_an_owner_id(capsys: pytest.CaptureFixture[str]) -> None:
    run_all_operations()
    out, err = capsys.readouterr()
    assert len(out.splitlines()) > 20
    assert err == ""
    for owner in (ANNA, BEN):
        assert owner["owner_id"] not in out
        assert owner["owner_id"].split("-", 1)[1] not in out
        assert hashlib.sha256(owner["owner_id"].encode()).hexdigest()[:8] not in out


def test_an_acquisition_is_named_by_its_lock_and_its_fencing_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
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


def test_an_owner_id_that_the_function_made_is_not_logged_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = acquire.handler({"lock_name": "customer/2"}, CONTEXT)
    out, err = capsys.readouterr()
    assert answer["owner_id"] not in out + err


def test_invalid_requests_log_nothing_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_message_that_could_not_be_worked_off_tells_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It may end in the dead-letter queue, days before another caller looks."""
    record = {"messageId": "1", "eventSource": "aws:sqs", "body": "{}"}
    failures = reap.handler({"Records": [record]}, CONTEXT)["batchItemFailures"]
    assert failures == [{"itemIdentifier": "1"}]
    [line] = logged(lines(capsys))
    assert (line["level"], line["exception_name"]) == ("WARNING", "InvalidRequest")
    assert "must be an Execution Status Change event of Step Functions" in line["exception"]
