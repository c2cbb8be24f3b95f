"""Metrics of the handlers, read from the EMF lines that CloudWatch would read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlock import LockClient
from fairlock.aws.executions import Liveness
from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from fairlock.protocol.schema import HOLDER_EXPIRES_AT_MS, holder_attribute, lock_key
from lambdas import acquire, heartbeat, release, watch
from tests.support import TABLE, LambdaContextStub, lines, logged, metrics, values
from tests.support.bad_inputs import NAMED, VALID_EXECUTION, VALID_OWNER
from tests.support.store_bench import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("lambda_environment")
CONTEXT = LambdaContextStub()
RIVAL = {**NAMED, "owner_id": "rival-0123456789"}


def let_the_lease_end(dynamodb: DynamoDBClient, owner_id: str = VALID_OWNER) -> None:
    dynamodb.update_item(
        TableName=TABLE,
        Key=lock_key("nightly-report"),
        UpdateExpression="SET #holder.#end = :past",
        ExpressionAttributeNames={
            "#holder": holder_attribute(owner_id),
            "#end": HOLDER_EXPIRES_AT_MS,
        },
        ExpressionAttributeValues={":past": {"N": "1"}},
    )


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


ACQUIRE, HEARTBEAT, RELEASE = (one.handler for one in (acquire, heartbeat, release))
Call = tuple[Callable[..., dict[str, Any]], dict[str, Any]]
COUNTED: dict[str, tuple[list[Call], Call, dict[str, list[float]]]] = {
    "a busy lock": ([(ACQUIRE, NAMED)], (ACQUIRE, RIVAL), {"Busy": [1.0]}),
    "a repeated acquire": ([(ACQUIRE, NAMED)], (ACQUIRE, NAMED), {}),
    "a delayed duplicate": ([(ACQUIRE, NAMED), (RELEASE, NAMED)], (ACQUIRE, NAMED), {}),
    "a renewal": ([(ACQUIRE, NAMED)], (HEARTBEAT, NAMED), {}),
    "a loss that a heartbeat finds": ([], (HEARTBEAT, NAMED), {"Lost": [1.0]}),
    "a loss that a release finds": ([], (RELEASE, NAMED), {"Lost": [1.0]}),
    "a direct caller's repeat after others": (
        [(ACQUIRE, NAMED), (RELEASE, NAMED), (ACQUIRE, RIVAL), (RELEASE, RIVAL)],
        (RELEASE, NAMED),
        {"Lost": [1.0]},
    ),
}


@pytest.mark.parametrize("case", COUNTED)
def test_what_each_call_counts(capsys: Output, case: str) -> None:
    before, (handler, event), counted = COUNTED[case]
    for earlier, its_event in before:
        earlier(dict(its_event), CONTEXT)
    capsys.readouterr()
    handler(dict(event), CONTEXT)
    assert values(lines(capsys)) == counted


def test_a_call_that_is_told_to_ask_again_is_logged_and_not_counted_as_busy(capsys: Output) -> None:
    answer = acquire.handler({**NAMED, "entered_at_ms": 253_402_300_799_999}, CONTEXT)
    assert answer["reason"] == "ASK_AGAIN"
    found = lines(capsys)
    assert values(found) == {}
    assert [line["reason"] for line in logged(found)] == ["ASK_AGAIN"]
    assert acquire.handler({**NAMED, "entered_at_ms": answer["entered_at_ms"]}, CONTEXT)["acquired"]


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
    let_the_lease_end(dynamodb)
    capsys.readouterr()
    acquire.handler(dict(RIVAL), CONTEXT)
    assert values(lines(capsys)) == expected


def test_a_release_is_counted_with_the_time_held_and_its_repetition_is_not(capsys: Output) -> None:
    acquire.handler(dict(NAMED), CONTEXT)
    capsys.readouterr()
    release.handler(dict(NAMED), CONTEXT)
    (line,) = metrics(lines(capsys))
    assert line["_aws"]["CloudWatchMetrics"][0]["Metrics"] == [
        {"Name": "Released", "Unit": "Count"},
        {"Name": "HeldTime", "Unit": "Milliseconds"},
    ]
    assert line["Released"] == [1.0]
    (held_ms,) = line["HeldTime"]
    assert 0 <= held_ms < 10_000
    release.handler(dict(NAMED), CONTEXT)
    assert values(lines(capsys)) == {}


@pytest.mark.parametrize("fields", [{}, {"keep_alive": True}], ids=["guard", "keep_alive"])
def test_a_workflows_repeated_release_is_no_loss_though_others_came_and_went(
    capsys: Output, fields: dict[str, Any]
) -> None:
    guard = {**NAMED, "execution_arn": VALID_EXECUTION}
    acquire.handler(dict(guard), CONTEXT)
    release.handler({**guard, **fields}, CONTEXT)
    acquire.handler(dict(RIVAL), CONTEXT)
    release.handler(dict(RIVAL), CONTEXT)
    capsys.readouterr()
    assert release.handler({**guard, **fields}, CONTEXT)["released"] is True
    assert values(lines(capsys)) == {}


# The function that measures how long owners wait for the locks that an operator watches.


@pytest.fixture
def locks(dynamodb: DynamoDBClient) -> Iterator[LockClient]:
    with LockClient(TABLE, client=dynamodb, owner_name="anna", heartbeat_every=math.inf) as locks:
        yield locks


def queue_behind(locks: LockClient, name: str) -> None:
    """Leaves a waiter in the queue, as a client that asks now and then."""
    locks.acquire(name)
    waiter = {"lock_name": name, "owner_id": f"ben-of-{name}-0123456789", "queue": True}
    assert acquire.handler(waiter, CONTEXT)["reason"] == "QUEUED"


def measure(monkeypatch: pytest.MonkeyPatch, *watched: str) -> dict[str, int]:
    monkeypatch.setenv("FAIRLOCK_WATCHED", json.dumps(watched))
    return watch.handler({}, cast("Any", CONTEXT))


def test_the_longest_wait_of_each_name_is_measured_and_locks_with_waiters_are_logged(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    for name in ("deploy/production", "other"):
        queue_behind(locks, name)
    locks.acquire("deploy/free")
    watched = ["deploy/*", "other", "unused", "nothing/*"]
    capsys.readouterr()
    longest = measure(monkeypatch, *watched)
    assert [*longest] == watched
    assert longest["unused"] == longest["nothing/*"] == 0
    found = lines(capsys)
    measured = [each for each in found if "locks" in each]
    assert {each["locks"]: each["CurrentWait"] for each in measured} == {
        name: [float(waited)] for name, waited in longest.items()
    }
    for each in measured:
        [dimensions] = each["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
        assert sorted(dimensions) == ["locks", "service"]
    [line, _] = [each for each in found if each.get("message") == "queued"]
    told = (line["lock_name"], line["waiters"], line["held_by"])
    assert told == ("deploy/production", 1, ["anna"])
    assert line["waited_ms"] >= 0
    assert "0123456789" not in json.dumps(line)


@pytest.mark.parametrize("spoilt", ["deploy/spoilt", "deploy/sp*"])
def test_a_malformed_lock_fails_after_all_others_were_measured(
    locks: LockClient,
    dynamodb: DynamoDBClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
    spoilt: str,
) -> None:
    queue_behind(locks, "deploy/production")
    item = {"pk": "LOCK#deploy/spoilt", "sk": "STATE", "fencing_token": "no number"}
    dynamodb.put_item(TableName=TABLE, Item={name: {"S": text} for name, text in item.items()})
    capsys.readouterr()
    with pytest.raises(LockItemMalformed, match="deploy/spoilt"):
        measure(monkeypatch, spoilt, "deploy/*", "unused")
    found = lines(capsys)
    assert [each["locks"] for each in found if "locks" in each] == ["deploy/*", "unused"]
    told = [each for each in found if each.get("message") == "an item is malformed"]
    assert [(each["level"], "deploy/spoilt" in each["reason"]) for each in told] == [
        ("ERROR", True),
        ("ERROR", True),
    ]


def test_a_table_that_does_not_answer_is_no_wait_of_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def fail(*_arguments: object) -> None:
        raise LockStoreUnavailable("no answer")

    monkeypatch.setattr(watch, "describe", fail)
    with pytest.raises(LockStoreUnavailable):
        measure(monkeypatch, "a")
    assert values(lines(capsys)) == {}
