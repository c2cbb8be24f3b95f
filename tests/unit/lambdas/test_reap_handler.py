"""What the reaper is sent, and what it does to the world outside."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import boto3
import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.errors import InvalidRequest
from fairlock.store.reap import ExecutionEnded
from lambdas import acquire, reap, release, runtime
from lambdas.reap_messages import MOST_ROUNDS, ReapMessage, parse_reap_message
from tests.support import lines, logged, values
from tests.support.bad_inputs import VALID_EXECUTION, VALID_OWNER
from tests.support.store_bench import FakeWorkflows
from tests.unit.lambdas.conftest import CONTEXT, QUEUE_URL, RIVAL, WORKFLOW, Output, ReapQueue

OTHER_EXECUTION = VALID_EXECUTION.replace("run-1", "run-2")
SECRET = "an-input-of-an-execution"


@pytest.fixture(autouse=True)
def held(lambda_environment: None, queue: ReapQueue) -> None:  # noqa: ARG001 - which it meets
    """By a workflow."""
    acquire.handler(dict(WORKFLOW), CONTEXT)


def status_change(execution_arn: str = VALID_EXECUTION, **detail: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of the event
    """As EventBridge sends it, with the fields that no one here reads left out."""
    return {
        "source": "aws.states",
        "detail-type": "Step Functions Execution Status Change",
        "detail": {"executionArn": execution_arn, "status": "ABORTED", "redriveCount": 0, **detail},
    }


def second_pass(redrives: int = 0, rounds: int = 0) -> dict[str, Any]:
    passes = {"second_pass": True, "rounds": rounds}
    return {"execution_arn": VALID_EXECUTION, "redrives": redrives, **passes}


def batch(*messages: object, tries: int = 1) -> dict[str, Any]:
    """An SQS event; what is no text is sent as JSON."""
    return {
        "Records": [
            {
                "messageId": f"message-{number}",
                "receiptHandle": "r",
                "body": message if isinstance(message, str) else json.dumps(message),
                "attributes": {"ApproximateReceiveCount": str(tries)},
                "eventSource": "aws:sqs",
            }
            for number, message in enumerate(messages)
        ]
    }


def failed(*messages: object, tries: int = 1) -> list[int]:
    """Handles a batch; tells which of its messages will come again."""
    answer = reap.handler(batch(*messages, tries=tries), CONTEXT)
    assert list(answer) == ["batchItemFailures"]
    failures = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
    return [int(identifier.removeprefix("message-")) for identifier in failures]


def is_free() -> bool:
    granted: bool = acquire.handler(dict(RIVAL), CONTEXT)["acquired"]
    release.handler(dict(RIVAL), CONTEXT)
    return granted


# The reaper's entry point: what it frees, what it sends, and what it fails.


PASSES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "an event": (status_change(), [second_pass()]),
    "an event after redrives": (status_change(redriveCount=3), [second_pass(redrives=3)]),
    "the last round of a first pass": (
        {**second_pass(rounds=MOST_ROUNDS), "second_pass": False},
        [second_pass()],
    ),
    "a second pass": (second_pass(), []),
}
"""What comes, and what is sent for later."""


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("message", PASSES)
def test_a_pass_frees_the_lock_and_the_first_one_sends_the_second_for_later(
    queue: ReapQueue, message: str, *, holds: bool
) -> None:
    """Also of an execution without locks: an acquire of it may be on its way."""
    event, sent = PASSES[message]
    if not holds:
        release.handler(dict(WORKFLOW), CONTEXT)
    assert failed(event) == []
    assert queue.sent == [(QUEUE_URL, each, 35) for each in sent]
    assert is_free()
    for each in sent:
        ended = ExecutionEnded(
            execution_arn=VALID_EXECUTION, redrives=each["redrives"], second_pass=True
        )
        assert parse_reap_message(json.dumps(each)) == ReapMessage(ended)


FIRST_PASS = {**second_pass(), "second_pass": False}


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (status_change(), [{**FIRST_PASS, "rounds": 1}]),
        (second_pass(), [second_pass(rounds=1)]),
        (second_pass(rounds=MOST_ROUNDS - 1), [second_pass(rounds=MOST_ROUNDS)]),
        (second_pass(rounds=MOST_ROUNDS), []),
    ],
)
def test_a_pass_that_runs_out_of_time_is_sent_again_at_once_a_thousand_times_and_then_fails(
    queue: ReapQueue,
    monkeypatch: pytest.MonkeyPatch,
    message: dict[str, Any],
    sent: list[dict[str, Any]],
) -> None:
    """Then the queue brings it again, and at last to the dead-letter queue."""
    monkeypatch.setattr("fairlock.aws.retry.RetryBudget.deadline_passed", lambda _self: True)
    assert failed(message) == ([] if sent else [0])
    assert queue.sent == [(QUEUE_URL, same, 0) for same in sent]
    for same in sent:
        is_second = parse_reap_message(json.dumps(same)).ended.second_pass
        assert is_second is same["second_pass"]


def test_executions_of_which_no_one_knows_fail_only_their_own_messages(
    queue: ReapQueue, engine: FakeWorkflows
) -> None:
    """They come again after the whole visibility timeout."""
    other = {"lock_name": "other", "owner_id": "other-0123456789", "execution_arn": OTHER_EXECUTION}
    acquire.handler(dict(other), CONTEXT)
    engine.runs = lambda arn: Execution(
        Liveness.UNKNOWN if arn == OTHER_EXECUTION else Liveness.OVER
    )
    unknown = status_change(OTHER_EXECUTION)
    assert failed(unknown, status_change(), unknown) == [0, 2]
    assert [message["execution_arn"] for _, message, _ in queue.sent] == [VALID_EXECUTION]
    assert is_free()
    assert failed(unknown, unknown) == [0, 1], "a batch that fails as a whole is an answer, too"
    assert queue.hidden == []
    assert not acquire.handler({**RIVAL, "lock_name": "other"}, CONTEXT)["acquired"]


def test_a_second_pass_that_cannot_be_sent_fails_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lambdas.reap_messages.send_message", Mock(side_effect=ConnectionError))
    assert failed(status_change()) == [0]
    assert is_free()


@pytest.mark.parametrize(("tries", "seconds"), [(1, 2), (2, 4), (6, 64), (7, 120), (10, 120)])
def test_what_was_asked_too_early_is_asked_again_after_pauses_that_double(
    queue: ReapQueue, engine: FakeWorkflows, tries: int, seconds: int
) -> None:
    engine.runs = Liveness.RUNNING
    assert failed(status_change(), tries=tries) == [0]
    assert queue.hidden == [(QUEUE_URL, "r", seconds)]


def test_what_is_freed_is_counted_and_logged_by_execution(capsys: Output) -> None:
    acquire.handler({**WORKFLOW, "owner_id": "waits-0123456789", "queue": True}, CONTEXT)
    capsys.readouterr()
    failed(status_change())
    found = lines(capsys)
    assert values(found) == {"Reaped": [1.0], "ReapedWaiters": [1.0]}
    (line,) = logged(found)
    freed = {"execution_arn": VALID_EXECUTION, "holders": 1, "waiters": 1}
    assert {"message": "reaped", **freed}.items() <= line.items()
    failed(status_change())
    assert values(lines(capsys)) == {}


@pytest.mark.parametrize("body", [{"detail": {SECRET: 1}}, {"second_pass": True, SECRET: 1}])
def test_a_message_that_could_not_be_worked_off_tells_why_and_nothing_of_an_input(
    capsys: Output, body: dict[str, Any]
) -> None:
    """It may end in the dead-letter queue, days before another caller looks."""
    assert failed(body) == [0]
    [line] = logged(lines(capsys))
    assert (line["level"], line["exception_name"]) == ("WARNING", "InvalidRequest")
    assert "must be an Execution Status Change event of Step Functions" in line["exception"]
    assert SECRET not in json.dumps(line)


@pytest.mark.usefixtures("over_botocore")
def test_the_queue_really_takes_a_message_and_brings_a_hidden_one_again() -> None:
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="reap", Attributes={"VisibilityTimeout": "120"})["QueueUrl"]
    runtime.send_message(url, "a message", 0)
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    runtime.hide_message(url, message["ReceiptHandle"], 0)
    (again,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == again["Body"] == "a message"
    runtime.hide_message(url, "no such receipt", 5)  # Only delays the message.


# Which messages the reaper understands, and what it takes them for.


ABSENT = object()
REDRIVES: list[tuple[object, int]] = [
    *((0, 0), (4, 4), ("12", 12), ("03", 3), (ABSENT, 0), (None, 0), (True, 0), ({}, 0)),
    *((text, 0) for text in ("", "null", "<redrives>", "often", "-1", "1.5", "٣", "9" * 5000)),
]


@pytest.mark.parametrize(
    ("value", "redrives"), REDRIVES, ids=[repr(value)[:12] for value, _ in REDRIVES]
)
def test_an_event_tells_how_often_the_execution_was_redriven_or_is_of_the_first_run(
    value: object, redrives: int
) -> None:
    """No document says that the event has the count."""
    event = status_change(redriveCount=value)
    if value is ABSENT:
        del event["detail"]["redriveCount"]
    expected = ExecutionEnded(execution_arn=VALID_EXECUTION, redrives=redrives)
    assert parse_reap_message(json.dumps(event)).ended == expected
    assert failed(event) == []
    assert is_free()


MALFORMED: dict[str, object] = {
    "no JSON": "{",
    "empty": "",
    "null": "null",
    "a number": "5",
    "a text": '"second_pass"',
    "a list": "[]",
    "no detail": {"source": "aws.states"},
    "a detail that is a text": {"detail": "x"},
    "no execution": {"detail": {"status": "ABORTED"}},
    "an execution that EventBridge left out": status_change(""),
    "an execution that EventBridge did not put in": status_change("<arn>"),
    "an unknown field": {**second_pass(), "force": True},
    "claims to free": {**second_pass(), "claims": [{"lock_name": "x", "owner_id": VALID_OWNER}]},
    "deeply nested": "[" * 100_000,
    "a second pass at nothing": {"second_pass": True},
    "a number for an execution": {**second_pass(), "execution_arn": 5},
    "a text for a count": {**second_pass(), "redrives": "0"},
    "a count below zero": {**second_pass(), "redrives": -1},
    "a flag for a count": {**second_pass(), "redrives": True},
    "an endless count": {**second_pass(), "redrives": 10**9},
    "rounds below zero": second_pass(rounds=-1),
    "a text for rounds": {**second_pass(), "rounds": "1"},
    "a text for a flag": {**second_pass(), "second_pass": "no"},
}


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_message_fails_alone(queue: ReapQueue, message: object) -> None:
    assert failed(message, status_change()) == [0]
    assert len(queue.sent) == 1
    assert is_free()
    with pytest.raises(InvalidRequest, match="must be an Execution Status Change event"):
        parse_reap_message(message if isinstance(message, str) else json.dumps(message))
