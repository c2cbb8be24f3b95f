"""The function that measures how long owners wait for the locks that an operator watches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from lambdas import acquire, watch
from tests.support import TABLE, lines, values
from tests.unit.lambdas.conftest import CONTEXT, Output

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


pytestmark = pytest.mark.usefixtures("lambda_environment")


def hold(name: str) -> None:
    acquire.handler({"lock_name": name, "owner_name": "anna"}, CONTEXT)


def queue_behind(name: str) -> None:
    """Leaves a waiter in the queue, as a client that asks now and then."""
    hold(name)
    waiter = {"lock_name": name, "owner_id": f"ben-of-{name}-0123456789", "queue": True}
    assert acquire.handler(waiter, CONTEXT)["reason"] == "QUEUED"


def measure(monkeypatch: pytest.MonkeyPatch, *watched: str) -> dict[str, int]:
    monkeypatch.setenv("FAIRLOCK_WATCHED", json.dumps(watched))
    return watch.handler({}, cast("Any", CONTEXT))


def test_the_longest_wait_of_each_name_is_measured_and_locks_with_waiters_are_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    for name in ("deploy/production", "other"):
        queue_behind(name)
    hold("deploy/free")
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
    dynamodb: DynamoDBClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
    spoilt: str,
) -> None:
    queue_behind("deploy/production")
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
    monkeypatch.setattr(watch, "describe", Mock(side_effect=LockStoreUnavailable))
    with pytest.raises(LockStoreUnavailable):
        measure(monkeypatch, "a")
    assert values(lines(capsys)) == {}
