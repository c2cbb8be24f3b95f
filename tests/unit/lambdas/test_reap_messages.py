"""Which messages the reaper understands, and what it takes them for."""

from __future__ import annotations

import json

import pytest

from fairlock.errors import InvalidRequest
from fairlock.protocol.model import ExecutionEnded
from lambdas import acquire
from lambdas.reap_messages import ReapMessage, parse_reap_message
from tests.support.bad_inputs import VALID_EXECUTION, VALID_OWNER
from tests.unit.lambdas.reaping import (
    CONTEXT,
    WORKFLOW,
    Outside,
    failed,
    is_free,
    second_pass,
    status_change,
)

pytestmark = pytest.mark.usefixtures("lambda_environment", "outside")


def test_what_the_handler_sends_it_understands(outside: Outside) -> None:
    failed(status_change(redriveCount=3))
    ((_, sent, _),) = outside.sent
    assert parse_reap_message(json.dumps(sent)) == ReapMessage(
        ExecutionEnded(execution_arn=VALID_EXECUTION, redrives=3, second_pass=True)
    )


@pytest.mark.parametrize(
    ("detail", "redrives"),
    [({}, 0), ({"redriveCount": 4}, 4), ({"redriveCount": "12"}, 12), ({"redriveCount": "03"}, 3)],
)
def test_an_event_tells_how_often_the_execution_was_redriven(
    detail: dict[str, object], redrives: int
) -> None:
    event = status_change()
    event["detail"] |= {"redriveCount": 0, **detail}
    assert parse_reap_message(json.dumps(event)).ended == ExecutionEnded(
        execution_arn=VALID_EXECUTION, redrives=redrives
    )


UNREADABLE: list[object] = [
    None,
    "",
    "null",
    "<redrives>",
    "often",
    "-1",
    "1.5",
    "٣",
    True,
    {},
    "9" * 5000,
]


@pytest.mark.parametrize("value", UNREADABLE, ids=lambda value: repr(value)[:12])
def test_an_event_whose_redrive_count_cannot_be_read_is_of_the_first_run_and_reaped(
    value: object,
) -> None:
    """No document says that the event has it."""
    acquire.handler(dict(WORKFLOW), CONTEXT)
    event = status_change(redriveCount=value)
    assert parse_reap_message(json.dumps(event)).ended.redrives == 0
    assert failed(event) == []
    assert is_free()


def test_an_event_without_a_redrive_count_is_of_the_first_run() -> None:
    event = status_change()
    del event["detail"]["redriveCount"]
    assert parse_reap_message(json.dumps(event)).ended.redrives == 0


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
def test_a_malformed_message_fails_alone(outside: Outside, message: object) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    assert failed(message, status_change()) == [0]
    assert len(outside.sent) == 1
    assert is_free()
    with pytest.raises(InvalidRequest, match="must be an Execution Status Change event"):
        parse_reap_message(message if isinstance(message, str) else json.dumps(message))
