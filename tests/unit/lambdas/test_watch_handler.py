"""The function that measures how long owners wait for the locks that an operator watches."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlock import LockClient
from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from lambdas import watch
from tests.support import TABLE
from tests.support.lambda_context import LambdaContextStub
from tests.unit.lambdas.output import lines

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CONTEXT = LambdaContextStub()
Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("lambda_environment")


@pytest.fixture
def locks(dynamodb: DynamoDBClient) -> Iterator[LockClient]:
    with LockClient(TABLE, client=dynamodb, owner_name="anna", heartbeat_every=math.inf) as locks:
        yield locks


def queue_behind(locks: LockClient, name: str) -> None:
    """Leaves a waiter in the queue, as a client that asks now and then."""
    from lambdas import acquire  # noqa: PLC0415 - beside its use

    locks.acquire(name)
    waiter = {"lock_name": name, "owner_id": f"ben-of-{name}-0123456789", "queue": True}
    assert acquire.handler(waiter, CONTEXT)["reason"] == "QUEUED"


def measured(output: Output) -> dict[str, tuple[Any, ...]]:
    """The metrics by the watched name."""
    return {
        each["locks"]: (each["CurrentWait"], each["_aws"]["CloudWatchMetrics"][0]["Dimensions"])
        for each in lines(output)
        if "locks" in each
    }


def test_the_longest_wait_of_each_name_is_measured(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    queue_behind(locks, "deploy/production")
    queue_behind(locks, "other")
    locks.acquire("deploy/free")
    watched = ["deploy/*", "other", "unused", "nothing/*"]
    monkeypatch.setenv("FAIRLOCK_WATCHED", json.dumps(watched))
    capsys.readouterr()
    longest = watch.handler({}, cast("Any", CONTEXT))
    assert [*longest] == watched
    assert longest["unused"] == longest["nothing/*"] == 0
    found = measured(capsys)
    assert {name: value for name, (value, _) in found.items()} == {
        name: [float(waited)] for name, waited in longest.items()
    }
    assert all(sorted(one) == ["locks", "service"] for _, [one] in found.values())


def test_each_lock_that_is_waited_for_is_named_in_the_log_with_its_holder(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    queue_behind(locks, "deploy/production")
    monkeypatch.setenv("FAIRLOCK_WATCHED", '["deploy/*"]')
    capsys.readouterr()
    watch.handler({}, cast("Any", CONTEXT))
    [line] = [each for each in lines(capsys) if each.get("message") == "queued"]
    assert (line["lock_name"], line["waiters"], line["held_by"]) == (
        "deploy/production",
        1,
        ["anna"],
    )
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
    monkeypatch.setenv("FAIRLOCK_WATCHED", json.dumps([spoilt, "deploy/*", "unused"]))
    capsys.readouterr()
    with pytest.raises(LockItemMalformed, match="deploy/spoilt"):
        watch.handler({}, cast("Any", CONTEXT))
    printed = lines(capsys)
    assert [each["locks"] for each in printed if "locks" in each] == ["deploy/*", "unused"]
    told = [each for each in printed if each.get("message") == "an item is malformed"]
    assert [(each["level"], "deploy/spoilt" in each["reason"]) for each in told] == [
        ("ERROR", True),
        ("ERROR", True),
    ]


def test_a_table_that_does_not_answer_is_no_wait_of_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def fail(*_arguments: object) -> None:
        raise LockStoreUnavailable("no answer")

    monkeypatch.setenv("FAIRLOCK_WATCHED", '["a"]')
    monkeypatch.setattr(watch, "describe", fail)
    with pytest.raises(LockStoreUnavailable):
        watch.handler({}, cast("Any", CONTEXT))
    assert measured(capsys) == {}
