"""The entry points and keep_alive: what the heartbeat state is told, what is counted and logged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from fairlock.aws.executions import Delivery, Liveness
from fairlock.errors import KeepAliveEnded, LockLost, LockStoreUnavailable
from fairlock.store.reap import ExecutionEnded, reap
from fairlock.wire.answers import release_answer
from lambdas import acquire, force_release, heartbeat, release
from lambdas.runtime import lock_context
from tests.support import TABLE, printed
from tests.support.bad_inputs import BEAT, NAMED, VALID_EXECUTION
from tests.support.store_bench import FakeWorkflows
from tests.unit.lambdas.conftest import CONTEXT, RIVAL, WORKFLOW, Output

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

OWN_RELEASE = {**WORKFLOW, "keep_alive": True}
LOST = "lock 'nightly-report' is not held any more; the work was stopped"
DONE = "the work under lock 'nightly-report' is done"


@pytest.fixture(autouse=True)
def granted(lambda_environment: None, engine: FakeWorkflows) -> dict[str, Any]:  # noqa: ARG001 - which it meets
    """To a workflow."""
    return acquire.handler(dict(WORKFLOW), CONTEXT)


def release_by_force(grant: dict[str, Any]) -> None:
    """As an operator does: the claim stays, so the next heartbeat finds a loss."""
    fields = {
        "lock_name": NAMED["lock_name"],
        "fencing_token": grant["fencing_token"],
        "requested_by": "ben",
        "reason": "a test",
    }
    assert force_release.handler(fields, CONTEXT)["released"]


def test_the_release_and_a_later_beat_end_the_heartbeat_by_the_same_answer(
    engine: FakeWorkflows, capsys: Output
) -> None:
    told: list[Any] = []

    def ends(_task_token: str, end: object) -> Delivery:
        told.append(end)
        return Delivery.DELIVERED

    engine.ends = ends
    heartbeat.handler(dict(BEAT), CONTEXT)
    printed(capsys)
    assert release.handler(dict(OWN_RELEASE), CONTEXT) == {"released": True, **NAMED}
    values, messages = printed(capsys)
    assert (values["Released"], messages) == ([1.0], ["released"])
    heartbeat.handler(dict(BEAT), CONTEXT)
    assert engine.ended == [("a-task-token", None)] * 2
    assert [release_answer(end) for end in told] == [{"released": True, **NAMED}] * 2


def test_a_heartbeat_that_finds_the_lock_gone_stops_the_work(
    engine: FakeWorkflows, granted: dict[str, Any], capsys: Output
) -> None:
    release_by_force(granted)
    acquire.handler({**RIVAL, "owner_name": "rival"}, CONTEXT)
    printed(capsys)
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": "LOST"}
    [(token, cause)] = engine.ended
    assert token == "a-task-token"
    assert re.fullmatch(
        rf"{LOST}; released by force at [\d:TZ.-]+ by ben: a test; held by rival now", str(cause)
    )
    assert printed(capsys) == ({"Lost": [1.0]}, ["lost"])


NOTHING: object = ({}, [])
COUNTED: object = ({"Lost": [1.0]}, ["lost"])
BY_OTHERS: dict[str, Any] = {}
ENDS: dict[str, tuple[dict[str, Any] | None, Delivery, str | Exception, object]] = {
    # After which release, what Step Functions answers: what the beat tells, and what is printed.
    "held": (None, Delivery.UNKNOWN, "RENEWED", NOTHING),
    "done": (OWN_RELEASE, Delivery.DELIVERED, "DONE", NOTHING),
    "done, and the state is over": (OWN_RELEASE, Delivery.GONE, "DONE", NOTHING),
    "failed, and the state is over": (WORKFLOW, Delivery.GONE, "DONE", NOTHING),
    "lost, and the work was stopped": (BY_OTHERS, Delivery.GONE, "LOST", NOTHING),
    # Else the state would beat for ever, though its work is done or its lock lost.
    "done, and no answer": (OWN_RELEASE, Delivery.UNKNOWN, KeepAliveEnded(DONE), NOTHING),
    "lost, and no answer": (BY_OTHERS, Delivery.UNKNOWN, LockLost(LOST), COUNTED),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_of_a_heartbeat_is_told_and_if_that_is_not_taken_an_error_that_no_one_repeats(
    engine: FakeWorkflows, granted: dict[str, Any], capsys: Output, case: str
) -> None:
    last, engine.ends, end, seen = ENDS[case]
    if last is BY_OTHERS:
        release_by_force(granted)
    elif last is not None:
        release.handler(dict(last), CONTEXT)
    printed(capsys)
    if isinstance(end, Exception):
        with pytest.raises(type(end), match=f"^{end}"):
            heartbeat.handler(dict(BEAT), CONTEXT)
    else:
        assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": end}
    assert [token for token, _ in engine.ended] == ["a-task-token"] * (last is not None)
    assert printed(capsys) == seen


def test_a_lock_that_is_taken_again_after_a_redrive_is_counted(
    engine: FakeWorkflows,
    granted: dict[str, Any],
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    engine.runs = Liveness.OVER
    reap(lock_context(CONTEXT), ExecutionEnded(execution_arn=VALID_EXECUTION))
    printed(capsys)
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": "REACQUIRED"}
    assert printed(capsys) == ({"Reacquired": [1.0]}, ["reacquired"])
    renewed = heartbeat.handler(dict(NAMED), CONTEXT)
    assert renewed["fencing_token"] == granted["fencing_token"] + 1


def test_an_outage_of_the_table_ends_no_work_whatever_step_functions_takes(
    engine: FakeWorkflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a beat that does not know is repeated, and pushes nothing."""

    unavailable = Mock(side_effect=LockStoreUnavailable)
    monkeypatch.setattr("fairlock.aws.lock_table.LockTable.update", unavailable)
    engine.ends = Delivery.UNKNOWN
    with pytest.raises(LockStoreUnavailable):
        heartbeat.handler(dict(BEAT), CONTEXT)
    assert engine.ended == []


def test_a_release_stands_if_step_functions_does_not_take_the_end_of_the_heartbeat(
    engine: FakeWorkflows,
) -> None:
    heartbeat.handler(dict(BEAT), CONTEXT)
    engine.ends = Delivery.UNKNOWN
    assert release.handler(dict(OWN_RELEASE), CONTEXT)["released"]
    engine.ends = Delivery.DELIVERED
    assert heartbeat.handler({**BEAT, "task_token": "next"}, CONTEXT) == {"kept": "DONE"}


def test_a_claim_that_cannot_be_removed_is_counted_and_the_release_stands(
    dynamodb: DynamoDBClient, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(capsys)

    monkeypatch.setattr("fairlock.store.release.mark_done", Mock(side_effect=LockStoreUnavailable))
    assert release.handler(dict(WORKFLOW), CONTEXT)["released"]
    values, messages = printed(capsys)
    assert (values["ClaimNotRemoved"], messages) == ([1.0], ["claim not removed", "released"])
    assert len(dynamodb.scan(TableName=TABLE)["Items"]) == 2
