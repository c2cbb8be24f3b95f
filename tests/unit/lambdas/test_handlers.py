"""The Lambda entry points: what each call answers, raises, counts, logs, and tells workflows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from botocore.session import Session, get_session

from fairlock.aws.executions import Delivery, Liveness
from fairlock.errors import (
    InvalidRequest,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.protocol.schema import HOLDER_EXPIRES_AT_MS, holder_attribute, lock_key
from lambdas import acquire, force_release, heartbeat, inspect, pace, reap, release, runtime
from tests.support import TABLE, lines, logged, metrics, printed, values
from tests.support.bad_inputs import (
    ACQUIRES,
    BEAT,
    HEARTBEATS,
    NAMED,
    NO_OBJECTS,
    RELEASES,
    VALID_EXECUTION,
    VALID_OWNER,
    BadInput,
)
from tests.support.store_bench import FakeWorkflows
from tests.unit.lambdas.conftest import ANNA, BEN, CONTEXT, WHO, Output

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Event = dict[str, Any]
Handler = Callable[[Any, Any], dict[str, Any]]
HANDLERS: dict[str, Handler] = {
    "acquire": acquire.handler,
    "heartbeat": heartbeat.handler,
    "release": release.handler,
}
pytestmark = pytest.mark.usefixtures("lambda_environment")
TOKEN = "task-token-of-ben"
WAITING = {**BEN, "execution_arn": VALID_EXECUTION}
WAITS = {**WAITING, "task_token": TOKEN}
GUARD = {**ANNA, "execution_arn": VALID_EXECUTION}
CARL = {**WAITS, "owner_id": "carl-0123456789ab", "task_token": "token-of-carl"}
LONGEST_MS = 10_000
FUTURE_MS = 253_402_300_799_999


@dataclass(frozen=True)
class Call:
    """A call of a function, and what comes of it.

    Attributes:
        before: the calls that were made before.
        answer: what is in its answer; `tests/unit/wire/test_answers.py` has the whole of each kind.
        counts: what it counts, by metric.
        logs: its messages.
        measures: the metrics of the times that it measures.
        tells: the task tokens to which something is told.
    """

    function: ModuleType
    event: Event
    before: Sequence[tuple[ModuleType, Event]]
    answer: Event
    counts: dict[str, int]
    logs: Sequence[str]
    measures: Sequence[str] = ()
    tells: Sequence[str] = ()


HELD = [(acquire, ANNA)]
LEFT = [*HELD, (release, ANNA)]
PASSED_ON = [(acquire, BEN), (release, BEN)]
WAITED_FOR = [*HELD, (acquire, WAITS)]
OF_VERSIONS = [
    (acquire, {**event, "only_newest": newest})
    for event, newest in ((ANNA, 1), (WAITS, 2), (CARL, True))
]
FREE, GRANTED, BUSY = {"acquired": True}, {"Granted": 1}, {"Busy": 1}
RELEASED, NOT_HELD = {"released": True}, {"reason": "NOT_HELD"}
SERVED = {"Granted": 1, "HandedOver": 1, "Released": 1}
LATENCIES = ["WaitTime", "HeldTime", "HandOffLatency"]
CALLS = {
    "a free lock": Call(acquire, ANNA, [], FREE, GRANTED, ["granted"]),
    "a free lock, for a task": Call(acquire, WAITS, [], FREE, GRANTED, ["granted"], [], [TOKEN]),
    "a busy lock": Call(acquire, BEN, HELD, {"reason": "HELD"}, BUSY, ["refused"]),
    "a busy lock, for a task": Call(
        acquire,
        WAITS,
        HELD,
        {"acquired": False, "reason": "QUEUED", "position": 1},
        {"Queued": 1, "QueueLength": 1},
        ["queued"],
        ["CurrentWait"],
    ),
    "a repeated acquire": Call(acquire, ANNA, HELD, FREE, {}, ["granted"]),
    "a delayed duplicate": Call(acquire, ANNA, LEFT, {"acquired": False}, {}, ["refused"]),
    "a call from the future": Call(
        acquire, {**ANNA, "entered_at_ms": FUTURE_MS}, [], {"reason": "ASK_AGAIN"}, {}, ["refused"]
    ),
    "an older version": Call(
        acquire,
        {**WAITS, "only_newest": 8},
        [(acquire, {**ANNA, "only_newest": 9})],
        {"acquired": False, "reason": "SUPERSEDED", "newest": 9},
        {"Superseded": 1},
        ["refused"],
        tells=[TOKEN],
    ),
    "a renewal": Call(heartbeat, ANNA, HELD, {"renewed": True}, {}, []),
    "a loss that is found by a heartbeat": Call(
        heartbeat, ANNA, [], {"renewed": False, **NOT_HELD}, {"Lost": 1}, ["not held"]
    ),
    "a release": Call(release, ANNA, HELD, RELEASED, {"Released": 1}, ["released"], ["HeldTime"]),
    "a repeated release": Call(release, ANNA, LEFT, RELEASED, {}, ["released"]),
    "a loss that is found by a release": Call(
        release, ANNA, [], {"released": False, **NOT_HELD}, {"Lost": 1}, ["not held"]
    ),
    "a direct caller's repeat after others": Call(
        release, ANNA, [*LEFT, *PASSED_ON], NOT_HELD, {"Lost": 1}, ["not held"]
    ),
    "a workflow's repeat after others": Call(
        release, GUARD, [(acquire, GUARD), (release, GUARD), *PASSED_ON], RELEASED, {}, ["released"]
    ),
    "a release behind which a task waits": Call(
        release,
        ANNA,
        WAITED_FOR,
        RELEASED,
        SERVED,
        ["handed over", "released"],
        LATENCIES,
        [TOKEN],
    ),
    "a release behind which two versions wait": Call(
        release,
        ANNA,
        OF_VERSIONS,
        RELEASED,
        {**SERVED, "Superseded": 1},
        ["handed over", "superseded", "released"],
        LATENCIES,
        ["token-of-carl", TOKEN],
    ),
    "giving up": Call(
        release, {**WAITING, "queue": True}, WAITED_FOR, RELEASED, {"LeftQueue": 1}, ["released"]
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_each_call_answers_counts_logs_and_tells(
    engine: FakeWorkflows, capsys: Output, case: str
) -> None:
    call = CALLS[case]
    inspect.handler({}, CONTEXT)  # The first answer of a process logs by which clock leases go.
    for function, event in call.before:
        function.handler(dict(event), CONTEXT)
    printed(capsys)
    before = len(engine.woken)
    answer = call.function.handler(dict(call.event), CONTEXT)
    assert call.answer.items() <= answer.items()
    found, messages = printed(capsys)
    assert all(0 <= found.pop(name)[0] < LONGEST_MS for name in call.measures)
    assert (found, messages) == ({name: [n] for name, n in call.counts.items()}, call.logs)
    assert [token for token, _ in engine.woken[before:]] == [*call.tells]


def test_a_call_that_was_told_to_ask_again_is_granted_by_the_time_that_it_was_told() -> None:
    refused = acquire.handler({**ANNA, "entered_at_ms": FUTURE_MS}, CONTEXT)
    again = {**ANNA, "entered_at_ms": refused["entered_at_ms"]}
    assert acquire.handler(again, CONTEXT)["acquired"]


def test_a_grant_is_one_count_under_the_only_dimension_in_the_namespace(capsys: Output) -> None:
    acquire.handler(dict(NAMED), CONTEXT)
    (line,) = metrics(lines(capsys))
    assert line == {
        "_aws": {
            "Timestamp": line["_aws"]["Timestamp"],
            "CloudWatchMetrics": [
                {
                    "Namespace": "Fairlock",
                    "Dimensions": [["service"]],
                    "Metrics": [{"Name": "Granted", "Unit": "Count"}],
                }
            ],
        },
        "service": "fairlock",
        "Granted": [1.0],
    }
    release.handler(dict(NAMED), CONTEXT)
    (line,) = metrics(lines(capsys))
    assert line["_aws"]["CloudWatchMetrics"][0]["Metrics"] == [
        {"Name": "Released", "Unit": "Count"},
        {"Name": "HeldTime", "Unit": "Milliseconds"},
    ]


@pytest.mark.parametrize(
    ("liveness", "expected"),
    [
        (None, {"Granted": [1.0], "TakenOver": [1.0]}),
        (Liveness.OVER, {"Granted": [1.0], "TakenOver": [1.0]}),
        (Liveness.RUNNING, {"Busy": [1.0], "Extended": [1.0]}),
        (Liveness.UNKNOWN, {"Busy": [1.0], "LivenessUnknown": [1.0]}),
    ],
)
def test_a_lease_that_is_over_is_counted_by_what_is_known_of_its_workflow(
    dynamodb: DynamoDBClient,
    capsys: Output,
    engine: FakeWorkflows,
    liveness: Liveness | None,
    expected: dict[str, list[float]],
) -> None:
    engine.runs = liveness or Liveness.UNKNOWN
    acquire.handler({**NAMED, **({"execution_arn": VALID_EXECUTION} if liveness else {})}, CONTEXT)
    dynamodb.update_item(
        TableName=TABLE,
        Key=lock_key(NAMED["lock_name"]),
        UpdateExpression="SET #holder.#end = :past",
        ExpressionAttributeNames={
            "#holder": holder_attribute(VALID_OWNER),
            "#end": HOLDER_EXPIRES_AT_MS,
        },
        ExpressionAttributeValues={":past": {"N": "1"}},
    )
    capsys.readouterr()
    acquire.handler({**NAMED, "owner_id": "rival-0123456789"}, CONTEXT)
    assert values(lines(capsys)) == expected


@pytest.mark.parametrize("superseded", [False, True])
def test_an_answer_that_step_functions_did_not_take_is_repeated_and_never_returned(
    engine: FakeWorkflows, *, superseded: bool
) -> None:
    if superseded:
        acquire.handler({**ANNA, "only_newest": 9}, CONTEXT)
    asked = {**WAITS, "only_newest": 8}
    engine.wakes = Delivery.UNKNOWN
    with pytest.raises(LockStoreUnavailable, match="repeat the call"):
        acquire.handler(dict(asked), CONTEXT)
    engine.wakes = Delivery.DELIVERED
    acquire.handler(dict(asked), CONTEXT)
    (_, lost), (_, delivered) = engine.woken
    told = "newest" if superseded else "fencing_token"
    assert getattr(lost, told) == getattr(delivered, told)


def test_a_delayed_duplicate_fails_its_task_at_once_instead_of_waiting(
    engine: FakeWorkflows,
) -> None:
    for function, event in PASSED_ON:
        function.handler(dict(event), CONTEXT)
    with pytest.raises(LockLost, match="released before"):
        acquire.handler(dict(WAITS), CONTEXT)
    assert engine.woken == []


def broken(valid: Event, wrong: dict[str, Sequence[object]]) -> list[BadInput]:
    """Requests of which one field has a wrong value, or is missing."""
    rows = [(field, {**valid, field: value}) for field in wrong for value in wrong[field]]
    rows += [(field, {n: v for n, v in valid.items() if n != field}) for field in valid]
    return [BadInput(event=event, field=field, rule="") for field, event in rows]


SECRET = ANNA["owner_id"]
NO_TABLE = "lock table 'nowhere' in us-east-1: there is no such table"
OF_PACES: dict[str, Sequence[object]] = {
    "rate": [
        *([count, 60] for count in (0, -1, 1.5, True)),
        *([10, seconds] for seconds in (0, -60, 2_678_401)),
        *([501, 1], [10], "10/60", 10, {"count": 10}, None),
    ],
    "pace_name": ["", "n" * 513, " vendor", 7],
    "burst": [0, 1_001, "2"],
    "max_wait_seconds": [-1, 604_801, float("nan")],
    "reservation_id": ["short"],
    "lock_name": ["vendor"],
    "period": [60],
}
OF_OPERATORS: dict[str, Sequence[object]] = {
    "fencing_token": ["7", 0, True, 1.5],
    "requested_by": ["", "x" * 257],
    "reason": ["a\nb", None],
    "lock_name": [""],
    "owner_id": [SECRET],
}
MISSPELLED: dict[str, Sequence[object]] = {
    "ownerid": [SECRET],
    "owner_id ": [SECRET],
    "owner_id": [f"{SECRET}\n"],
}
INVALID: dict[str, tuple[Handler, list[BadInput]]] = {
    "acquire": (acquire.handler, [*ACQUIRES, *NO_OBJECTS]),
    "heartbeat": (heartbeat.handler, [*HEARTBEATS, *NO_OBJECTS]),
    "release": (release.handler, [*RELEASES, *NO_OBJECTS, *broken({}, MISSPELLED)]),
    "force_release": (
        force_release.handler,
        broken({"lock_name": "customer/1", "fencing_token": 7, **WHO}, OF_OPERATORS),
    ),
    "pace": (pace.handler, broken({"pace_name": "vendor", "rate": [10, 60]}, OF_PACES)),
    "inspect": (
        inspect.handler,
        broken({}, {"lock_name": [7], "prefix": ["\n"], "after": [""], "free": [1], "x": [1]}),
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_request_is_refused_by_its_field_and_nothing_is_written_logged_or_shown(
    dynamodb: DynamoDBClient, capsys: Output, name: str
) -> None:
    handler, table = INVALID[name]
    acquire.handler(dict(ANNA), CONTEXT)
    before = dynamodb.scan(TableName=TABLE)["Items"]
    capsys.readouterr()
    for bad in table:
        with pytest.raises(InvalidRequest) as caught:
            handler(bad.event, CONTEXT)
        told = bad.field if bad.field.isidentifier() else f"a field of {len(bad.field)} characters"
        assert caught.value.field == told, bad.event
        is_missing = isinstance(bad.event, dict) and bad.field not in bad.event
        assert caught.value.rule.startswith("is required") == is_missing
        assert SECRET not in str(caught.value)
    assert dynamodb.scan(TableName=TABLE)["Items"] == before
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("over_botocore")
@pytest.mark.parametrize(
    ("variable", "value", "error", "told"),
    [
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1", LockStoreUnavailable, "did not answer"),
        ("FAIRLOCK_TABLE_NAME", "nowhere", LockStoreMisconfigured, NO_TABLE),
    ],
)
def test_a_table_without_an_answer_is_raised_under_the_name_that_workflows_match_on(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, error: type[Exception], told: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    for handler in HANDLERS.values():
        with pytest.raises(error, match=told):
            handler(dict(NAMED), CONTEXT)
    with pytest.raises(error, match=told):
        force_release.handler({"lock_name": "a", "fencing_token": 7, **WHO}, CONTEXT)


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


@pytest.mark.usefixtures("engine", "queue")
def test_no_line_of_any_operation_holds_an_owner_id_or_a_task_token(capsys: Output) -> None:
    run = {"execution_arn": VALID_EXECUTION}
    made = acquire.handler({"lock_name": "customer/2"}, CONTEXT)["owner_id"]
    granted = acquire.handler({**ANNA, "owner_name": "billing"}, CONTEXT)
    acquire.handler(dict(BEN), CONTEXT)
    acquire.handler(dict(WAITS), CONTEXT)
    inspect.handler({"lock_name": "customer/1"}, CONTEXT)
    by_force = {"lock_name": "customer/1", "fencing_token": granted["fencing_token"], **WHO}
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
    for secret in (made, NAMED["owner_id"], BEAT["task_token"], TOKEN):
        assert secret not in out
    for owner in (ANNA, BEN):
        assert owner["owner_id"].split("-", 1)[1] not in out
        assert hashlib.sha256(owner["owner_id"].encode()).hexdigest()[:8] not in out


def test_an_acquisition_is_named_by_its_lock_and_its_fencing_token(capsys: Output) -> None:
    token = acquire.handler({**ANNA, "owner_name": "anna's host"}, CONTEXT)["fencing_token"]
    acquire.handler(dict(WAITING), CONTEXT)
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


@pytest.mark.parametrize("handler", [*HANDLERS.values(), force_release.handler, inspect.handler])
def test_each_function_tells_field_rule_and_value_as_data(handler: Any) -> None:  # noqa: ANN401 - a handler
    with pytest.raises(InvalidRequest) as caught:
        handler({"lock_name": 7}, CONTEXT)
    assert type(caught.value).__name__ == "InvalidRequest"  # By which Lambda reports it.
    told, data = str(caught.value).splitlines()
    rule = caught.value.rule
    assert json.loads(data) == {"field": "lock_name", "rule": rule, "value": "7"}
    assert told == f"lock_name: {rule} (got 7)"
