"""The entry points and keep_alive: what the heartbeat state is told, what is counted and logged."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.aws.executions import Delivery, Liveness
from fairlock.aws.lock_table import LockTable
from fairlock.errors import KeepAliveEnded, LockLost, LockStoreUnavailable
from fairlock.protocol.outcomes import NotHeld, Released
from fairlock.wire.answers import release_answer
from lambdas import acquire, force_release, heartbeat, release
from tests.support import TABLE, LambdaContextStub, printed
from tests.support.bad_inputs import BEAT, NAMED, VALID_EXECUTION, VALID_OWNER
from tests.support.store_bench import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CONTEXT = LambdaContextStub()
WORKFLOW = {**NAMED, "execution_arn": VALID_EXECUTION}
OWN_RELEASE = {**WORKFLOW, "keep_alive": True}
RIVAL = {**NAMED, "owner_id": "rival-0123456789"}
LOST = "lock 'nightly-report' is not held any more; the work was stopped"
DONE = "the work under lock 'nightly-report' is done"

Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("lambda_environment")


def reap(engine: FakeWorkflows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars and frees what the execution has, as the reaper does."""
    from fairlock.store.reap import ExecutionEnded, reap  # noqa: PLC0415 - same
    from lambdas import runtime as _runtime  # noqa: PLC0415 - after the environment was made

    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    ended = ExecutionEnded(execution_arn=VALID_EXECUTION)
    engine.runs = Liveness.OVER
    reap(_runtime.lock_context(CONTEXT), ended)


def release_by_force(grant: dict[str, Any]) -> None:
    """As an operator does: the claim stays, so the next heartbeat finds a loss."""
    fields = {
        "lock_name": NAMED["lock_name"],
        "fencing_token": grant["fencing_token"],
        "requested_by": "ben",
        "reason": "a test",
    }
    assert force_release.handler(fields, CONTEXT)["released"]


def end_grant(grant: dict[str, Any], last: dict[str, Any] | None) -> None:
    """By a release of the workflow's own; by force if there is none."""
    if last is None:
        release_by_force(grant)
    else:
        release.handler(dict(last), CONTEXT)


def test_a_heartbeat_that_renews_leaves_its_state_asleep(
    engine: FakeWorkflows, capsys: Output
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    printed(capsys)
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": "RENEWED"}
    assert engine.ended == []
    assert printed(capsys) == ({}, [])


def test_the_release_ends_the_heartbeat(engine: FakeWorkflows, capsys: Output) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    printed(capsys)
    assert release.handler(dict(OWN_RELEASE), CONTEXT) == {"released": True, **NAMED}
    assert engine.ended == [("a-task-token", None)]
    values, messages = printed(capsys)
    assert (values["Released"], messages) == ([1.0], ["released"])


def test_the_end_of_a_heartbeat_names_its_lock_and_owner_no_matter_who_reports_it(
    engine: FakeWorkflows,
) -> None:
    told: list[Released | NotHeld | LockLost] = []

    def ends(_task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        told.append(end)
        return Delivery.DELIVERED

    engine.ends = ends
    acquire.handler(dict(WORKFLOW), CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    release.handler(dict(OWN_RELEASE), CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    answers = [release_answer(end) for end in told if not isinstance(end, LockLost)]
    assert answers == [{"released": True, **NAMED}] * 2


def test_a_heartbeat_after_the_work_has_ended_ends_itself(
    engine: FakeWorkflows, capsys: Output
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    release.handler(dict(OWN_RELEASE), CONTEXT)
    printed(capsys)
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": "DONE"}
    assert engine.ended == [("a-task-token", None)]
    assert printed(capsys) == ({}, [])


def test_a_heartbeat_that_finds_the_lock_gone_stops_the_work(
    engine: FakeWorkflows, capsys: Output
) -> None:
    granted = acquire.handler(dict(WORKFLOW), CONTEXT)
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


def test_a_loss_is_reported_even_if_the_table_does_not_say_why(
    engine: FakeWorkflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    release_by_force(acquire.handler(dict(WORKFLOW), CONTEXT))
    read, reads = LockTable.read, list[object]()

    def fail_at_last(table: LockTable, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - same
        reads.append(arguments)
        if sys._getframe(1).f_code.co_name == "why_lost":  # noqa: SLF001 - only that one fails
            raise LockStoreUnavailable("no answer")
        return read(table, *arguments, **named)

    monkeypatch.setattr(LockTable, "read", fail_at_last)
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": "LOST"}
    assert engine.ended == [("a-task-token", LOST)]
    assert reads


@pytest.mark.parametrize(("last", "kept"), [(WORKFLOW, "DONE"), (None, "LOST")])
def test_an_end_that_no_one_waits_to_hear_is_no_loss(
    engine: FakeWorkflows, capsys: Output, last: dict[str, Any] | None, kept: str
) -> None:
    """The work has failed and released, or was stopped; this beat was under way."""
    end_grant(acquire.handler(dict(WORKFLOW), CONTEXT), last)
    printed(capsys)
    engine.ends = Delivery.GONE
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": kept}
    assert printed(capsys) == ({}, [])


def test_a_lock_that_is_taken_again_after_a_redrive_is_counted(
    engine: FakeWorkflows, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = acquire.handler(dict(WORKFLOW), CONTEXT)
    reap(engine, monkeypatch)
    printed(capsys)
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": "REACQUIRED"}
    assert printed(capsys) == ({"Reacquired": [1.0]}, ["reacquired"])
    renewed = heartbeat.handler(dict(NAMED), CONTEXT)
    assert renewed["fencing_token"] == granted["fencing_token"] + 1


@pytest.mark.parametrize(
    ("last", "end", "seen"),
    [
        (OWN_RELEASE, KeepAliveEnded(DONE), ({}, [])),
        (None, LockLost(LOST), ({"Lost": [1.0]}, ["lost"])),
    ],
    ids=["done", "lost"],
)
def test_an_end_that_step_functions_does_not_take_is_told_as_an_error_that_no_one_repeats(
    engine: FakeWorkflows, capsys: Output, last: dict[str, Any] | None, end: Exception, seen: object
) -> None:
    """Else the state would beat for ever, though its work is done or its lock lost."""
    end_grant(acquire.handler(dict(WORKFLOW), CONTEXT), last)
    printed(capsys)
    engine.ends = Delivery.UNKNOWN
    with pytest.raises(type(end), match=f"^{end}"):
        heartbeat.handler(dict(BEAT), CONTEXT)
    assert len(engine.ended) == 1
    assert printed(capsys) == seen


@pytest.mark.parametrize("outcome", [Delivery.DELIVERED, Delivery.GONE])
@pytest.mark.parametrize(("last", "kept"), [(OWN_RELEASE, "DONE"), (None, "LOST")])
def test_an_end_that_was_heard_or_that_no_one_waits_for_is_no_error(
    engine: FakeWorkflows, outcome: Delivery, last: dict[str, Any] | None, kept: str
) -> None:
    end_grant(acquire.handler(dict(WORKFLOW), CONTEXT), last)
    engine.ends = outcome
    assert heartbeat.handler(dict(BEAT), CONTEXT) == {"kept": kept}


def test_an_outage_of_the_table_ends_no_work_whatever_step_functions_takes(
    engine: FakeWorkflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a beat that does not know is repeated, and pushes nothing."""
    acquire.handler(dict(WORKFLOW), CONTEXT)

    def unavailable(*_: object) -> None:
        raise LockStoreUnavailable

    monkeypatch.setattr("fairlock.aws.lock_table.LockTable.update", unavailable)
    engine.ends = Delivery.UNKNOWN
    with pytest.raises(LockStoreUnavailable):
        heartbeat.handler(dict(BEAT), CONTEXT)
    assert engine.ended == []


def test_a_release_stands_if_step_functions_does_not_take_the_end_of_the_heartbeat(
    engine: FakeWorkflows,
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    engine.ends = Delivery.UNKNOWN
    assert release.handler(dict(OWN_RELEASE), CONTEXT)["released"]
    engine.ends = Delivery.DELIVERED
    assert heartbeat.handler({**BEAT, "task_token": "next"}, CONTEXT) == {"kept": "DONE"}


def test_a_claim_that_cannot_be_removed_is_counted_and_the_release_stands(
    dynamodb: DynamoDBClient, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    printed(capsys)

    def unavailable(*_: object, **_fields: object) -> None:
        raise LockStoreUnavailable

    monkeypatch.setattr("fairlock.store.release.mark_done", unavailable)
    assert release.handler(dict(WORKFLOW), CONTEXT)["released"]
    values, messages = printed(capsys)
    assert (values["ClaimNotRemoved"], messages) == ([1.0], ["claim not removed", "released"])
    assert len(dynamodb.scan(TableName=TABLE)["Items"]) == 2


def test_neither_owner_ids_nor_task_tokens_are_logged(
    engine: FakeWorkflows, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire.handler(dict(WORKFLOW), CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    reap(engine, monkeypatch)
    heartbeat.handler(dict(BEAT), CONTEXT)
    release_by_force(heartbeat.handler(dict(NAMED), CONTEXT))
    heartbeat.handler(dict(BEAT), CONTEXT)
    release.handler(dict(OWN_RELEASE), CONTEXT)
    heartbeat.handler(dict(BEAT), CONTEXT)
    out, err = capsys.readouterr()
    assert "reacquired" in out
    assert '"lost"' in out
    for secret in (VALID_OWNER, "a-task-token"):
        assert secret not in out + err
