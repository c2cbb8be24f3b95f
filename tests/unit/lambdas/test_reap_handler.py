"""The reaper's entry point: what it frees, what it sends, and what it fails."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from fairlock.aws.executions import Execution
from fairlock.protocol.model import Liveness
from lambdas import acquire, reap
from lambdas.reap_messages import MOST_ROUNDS, parse_reap_message
from tests.support.bad_inputs import VALID_EXECUTION, VALID_OWNER
from tests.unit.lambdas.output import lines, logged, values
from tests.unit.lambdas.reaping import (
    CONTEXT,
    OTHER_EXECUTION,
    QUEUE_URL,
    RIVAL,
    WORKFLOW,
    Outside,
    batch,
    failed,
    is_free,
    second_pass,
    status_change,
)

pytestmark = pytest.mark.usefixtures("lambda_environment", "outside")


def test_an_event_frees_the_lock_and_sends_the_second_pass_for_later(outside: Outside) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(status_change()) == []
    assert outside.sent == [(QUEUE_URL, second_pass(), 35)]
    assert is_free()


def test_the_second_pass_sends_nothing_more(outside: Outside) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(second_pass()) == []
    assert outside.sent == []
    assert is_free()


def test_an_execution_without_locks_gets_its_second_pass_too(outside: Outside) -> None:
    """An acquire of it may be on its way."""
    assert failed(status_change(redriveCount=2)) == []
    assert outside.sent == [(QUEUE_URL, second_pass(redrives=2), 35)]


@pytest.mark.parametrize("second", [False, True])
def test_a_pass_that_runs_out_of_time_is_sent_again_at_once(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, *, second: bool
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    monkeypatch.setattr("fairlock.aws.retry.RetryBudget.deadline_passed", lambda _self: True)
    message = second_pass() if second else status_change()
    assert failed(message) == []
    same = {**second_pass(rounds=1), "second_pass": second}
    assert outside.sent == [(QUEUE_URL, same, 0)]
    monkeypatch.undo()
    assert parse_reap_message(json.dumps(same)).ended.second_pass is second


@pytest.mark.parametrize(("rounds", "sent"), [(MOST_ROUNDS - 1, [MOST_ROUNDS]), (MOST_ROUNDS, [])])
def test_a_pass_that_never_ends_sends_itself_a_thousand_times_and_then_fails(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, rounds: int, sent: list[int]
) -> None:
    """Then the queue brings it again, and at last to the dead-letter queue."""
    acquire.handler(dict(WORKFLOW), CONTEXT)
    monkeypatch.setattr("fairlock.aws.retry.RetryBudget.deadline_passed", lambda _self: True)
    assert failed(second_pass(rounds=rounds)) == ([] if sent else [0])
    assert [message["rounds"] for _, message, _ in outside.sent] == sent


def test_the_rounds_of_the_first_pass_do_not_count_for_the_second(outside: Outside) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed({**second_pass(rounds=MOST_ROUNDS), "second_pass": False}) == []
    assert outside.sent == [(QUEUE_URL, second_pass(), 35)]


def test_an_execution_of_which_no_one_knows_fails_only_its_own_message(outside: Outside) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    other = {"lock_name": "other", "owner_id": "other-0123456789", "execution_arn": OTHER_EXECUTION}
    acquire.handler(dict(other), CONTEXT)
    outside.executions[OTHER_EXECUTION] = Execution(Liveness.UNKNOWN)
    assert failed(status_change(OTHER_EXECUTION), status_change()) == [0]
    assert [message["execution_arn"] for _, message, _ in outside.sent] == [VALID_EXECUTION]
    assert is_free()
    assert not acquire.handler({**RIVAL, "lock_name": "other"}, CONTEXT)["acquired"]


def test_a_batch_that_fails_as_a_whole_is_answered_and_not_raised(outside: Outside) -> None:
    outside.executions[VALID_EXECUTION] = Execution(Liveness.UNKNOWN)
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(status_change(), status_change()) == [0, 1]
    assert outside.sent == []


def test_a_second_pass_that_cannot_be_sent_fails_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(*_: object) -> None:
        raise ConnectionError

    acquire.handler(dict(WORKFLOW), CONTEXT)
    monkeypatch.setattr("lambdas.reap_messages.send_message", unavailable)
    assert failed(status_change()) == [0]
    assert is_free()


@pytest.mark.parametrize(
    "message",
    [
        status_change(),
        status_change(redriveCount=7),
        second_pass(),
        second_pass(redrives=7),
        second_pass(rounds=5),
    ],
    ids=["first", "invented redrives", "second", "second with invented redrives", "continued"],
)
def test_a_forged_message_about_a_running_execution_frees_nothing_and_comes_again(
    outside: Outside, message: dict[str, Any]
) -> None:
    """`is_free` in the other tests is the control: of an execution that is over it is freed."""
    outside.executions[VALID_EXECUTION] = Execution(Liveness.RUNNING)
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(message, status_change(OTHER_EXECUTION)) == [0]
    assert [sent["execution_arn"] for _, sent, _ in outside.sent] == [OTHER_EXECUTION]
    assert not is_free()


@pytest.mark.parametrize(("tries", "seconds"), [(1, 2), (2, 4), (6, 64), (7, 120), (10, 120)])
def test_what_was_asked_too_early_is_asked_again_after_pauses_that_double(
    outside: Outside, tries: int, seconds: int
) -> None:
    outside.executions[VALID_EXECUTION] = Execution(Liveness.RUNNING)
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(status_change(), tries=tries) == [0]
    assert outside.hidden == [(QUEUE_URL, "r", seconds)]


def test_what_step_functions_does_not_answer_waits_for_the_whole_visibility_timeout(
    outside: Outside,
) -> None:
    outside.executions[VALID_EXECUTION] = Execution(Liveness.UNKNOWN)
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(status_change()) == [0]
    assert outside.hidden == []


@pytest.mark.parametrize("message", [status_change(), second_pass()], ids=["first", "second"])
def test_a_redriven_execution_is_untouched(outside: Outside, message: dict[str, Any]) -> None:
    outside.executions[VALID_EXECUTION] = Execution(Liveness.RUNNING, redrives=1)
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(message) == []
    assert not is_free()


def test_what_is_freed_is_counted_and_logged_by_execution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    waits = {**WORKFLOW, "owner_id": "waits-0123456789", "queue": True}
    acquire.handler(waits, CONTEXT)
    capsys.readouterr()
    failed(status_change())
    found = lines(capsys)
    assert values(found) == {"Reaped": [1.0], "ReapedWaiters": [1.0]}
    (line,) = logged(found)
    shown = {name: line[name] for name in ("message", "execution_arn", "holders", "waiters")}
    assert shown == {
        "message": "reaped",
        "execution_arn": VALID_EXECUTION,
        "holders": 1,
        "waiters": 1,
    }
    failed(status_change())
    assert values(lines(capsys)) == {}


def test_no_line_and_no_message_holds_an_owner_id(
    outside: Outside, capsys: pytest.CaptureFixture[str]
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    failed(status_change(), second_pass(), "{", status_change(OTHER_EXECUTION))
    out, err = capsys.readouterr()
    assert "reaped" in out
    assert VALID_OWNER not in out + err + json.dumps(outside.sent)


@pytest.mark.usefixtures("over_botocore")
def test_a_message_that_was_asked_too_early_really_comes_again_soon(
    monkeypatch: pytest.MonkeyPatch, outside: Outside
) -> None:
    from lambdas.runtime import hide_message  # noqa: PLC0415 - after the environment was made

    sqs = boto3.client("sqs")
    queue = sqs.create_queue(QueueName="hidden", Attributes={"VisibilityTimeout": "120"})
    queue_url = queue["QueueUrl"]
    sqs.send_message(QueueUrl=queue_url, MessageBody=json.dumps(status_change()))
    (message,) = sqs.receive_message(QueueUrl=queue_url)["Messages"]
    monkeypatch.setattr(
        "lambdas.reap_messages.hide_message",
        lambda _url, receipt, _seconds: hide_message(queue_url, receipt, 0),
    )
    outside.executions[VALID_EXECUTION] = Execution(Liveness.RUNNING)
    acquire.handler(dict(WORKFLOW), CONTEXT)
    event = batch(message["Body"])
    event["Records"][0]["receiptHandle"] = message["ReceiptHandle"]
    assert len(reap.handler(event, CONTEXT)["batchItemFailures"]) == 1
    assert len(sqs.receive_message(QueueUrl=queue_url)["Messages"]) == 1
    hide_message(queue_url, "no such receipt", 5)  # Only delays the message.


@pytest.mark.usefixtures("over_botocore")
def test_the_second_pass_really_goes_to_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lambdas.runtime import send_message  # noqa: PLC0415 - after the environment was made

    sqs = boto3.client("sqs")
    queue_url = sqs.create_queue(QueueName="reap")["QueueUrl"]
    monkeypatch.setenv("FAIRLOCK_REAP_QUEUE_URL", queue_url)
    monkeypatch.setattr("lambdas.reap_messages.SECOND_PASS_MS", 0)
    monkeypatch.setattr("lambdas.reap_messages.send_message", send_message)
    assert failed(status_change()) == []
    (message,) = sqs.receive_message(QueueUrl=queue_url)["Messages"]
    assert failed(message["Body"]) == []
    assert "Messages" not in sqs.receive_message(QueueUrl=queue_url)
