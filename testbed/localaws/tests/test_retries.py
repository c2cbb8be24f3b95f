"""Corrections retry_delays and error_names."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]


def failing_task(bench: Workbench, *retriers: dict[str, Any]) -> dict[str, Any]:
    name = bench.function("class Broken(Exception): pass\ndef handler(e, c): raise Broken('so')\n")
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": name},
        "Retry": list(retriers),
        "End": True,
    }
    return {"StartAt": "T", "States": {"T": task}}


def delays_seconds(bench: Workbench, retrier: dict[str, Any]) -> list[float]:
    """From each failure to the next attempt."""
    ended = bench.run(failing_task(bench, {"ErrorEquals": ["States.ALL"], **retrier}))
    assert (ended.status, ended.error) == ("FAILED", "Broken")
    return [
        (following["timestamp"] - event["timestamp"]).total_seconds()
        for event, following in itertools.pairwise(bench.events(ended.arn))
        if (event["type"], following["type"]) == ("TaskFailed", "TaskScheduled")
    ]


CAPPED = {"IntervalSeconds": 1, "MaxDelaySeconds": 1, "MaxAttempts": 2}


def test_a_delay_never_exceeds_its_maximum(corrected: Workbench) -> None:
    delays = delays_seconds(corrected, {**CAPPED, "BackoffRate": 20})
    assert len(delays) == 2
    assert all(1 <= delay < 20 for delay in delays)


def test_control_the_maximum_is_ignored(left_out: WithoutCorrection) -> None:
    assert delays_seconds(left_out("retry_delays"), {**CAPPED, "BackoffRate": 2})[1] >= 2


def test_a_retrier_with_one_attempt_is_used_once(corrected: Workbench) -> None:
    assert len(delays_seconds(corrected, {"IntervalSeconds": 1, "MaxAttempts": 1})) == 1


def test_a_retrier_with_no_attempts_is_never_used(corrected: Workbench) -> None:
    assert delays_seconds(corrected, {"MaxAttempts": 0}) == []


def test_the_first_matching_retrier_decides(corrected: Workbench) -> None:
    first = {"ErrorEquals": ["Broken"], "MaxAttempts": 0}
    second = {"ErrorEquals": ["States.ALL"], "MaxAttempts": 5}
    assert corrected.run(failing_task(corrected, first, second)).error == "Broken"


def test_full_jitter_spreads_the_delays(corrected: Workbench) -> None:
    jittered = {"IntervalSeconds": 1, "MaxAttempts": 4, "BackoffRate": 1, "JitterStrategy": "FULL"}
    with ThreadPoolExecutor(4) as pool:  # So many that they are not all long by chance.
        runs = list(pool.map(lambda _: delays_seconds(corrected, jittered), range(4)))
    delays = [delay for run in runs for delay in run]
    assert len(delays) == 16
    assert min(delays) < 1
    assert statistics.median(delays) < 2


def catches(bench: Workbench, error: str, *names: str) -> bool:
    inside = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": error, "Cause": ""}}}
    catcher = {"ErrorEquals": list(names), "Next": "Caught"}
    definition = {
        "StartAt": "P",
        "States": {
            "P": {"Type": "Parallel", "Branches": [inside], "Catch": [catcher], "End": True},
            "Caught": {"Type": "Pass", "End": True},
        },
    }
    return bench.run(definition).status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("error", "names", "caught"),
    [
        ("LockLost", ("LockLost",), True),
        ("LockLost", ("lockLost",), False),
        ("LockLost", ("Other", "LockLost"), True),
        ("LockLost", ("States.ALL",), True),
        ("LockLost", ("States.TaskFailed",), True),
        ("States.Timeout", ("States.TaskFailed",), False),
        ("States.HeartbeatTimeout", ("States.Timeout",), True),
        ("States.HeartbeatTimeout", ("States.TaskFailed",), False),
        ("States.Runtime", ("States.ALL",), False),
        ("States.Runtime", ("States.Runtime",), False),
        ("States.DataLimitExceeded", ("States.ALL",), False),
    ],
)
def test_a_catcher_takes_the_errors_it_names(
    corrected: Workbench,
    error: str,
    names: tuple[str, ...],
    caught: bool,  # noqa: FBT001 - an expected value
) -> None:
    assert catches(corrected, error, *names) is caught


def test_control_everything_can_be_caught(left_out: WithoutCorrection) -> None:
    assert catches(left_out("error_names"), "States.Runtime", "States.ALL")


def test_the_first_matching_catcher_decides(corrected: Workbench) -> None:
    inside = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "Broken", "Cause": "so"}}}
    definition = {
        "StartAt": "P",
        "States": {
            "P": {
                "Type": "Parallel",
                "Branches": [inside],
                "Catch": [
                    {"ErrorEquals": ["Broken"], "Next": "First"},
                    {"ErrorEquals": ["States.ALL"], "Next": "Second"},
                ],
                "End": True,
            },
            "First": {"Type": "Pass", "End": True},
            "Second": {"Type": "Pass", "Result": "wrong", "End": True},
        },
    }
    assert corrected.run(definition).output == {"Error": "Broken", "Cause": "so"}


# Corrections dynamodb_tasks, dynamodb_ttl, new_table_backups, and atomicity, on which all rely.


COUNTER = {"pk": {"S": "counter"}}


def add_one(table: str) -> dict[str, Any]:
    return {
        "TableName": table,
        "Key": COUNTER,
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
        "ReturnValues": "UPDATED_NEW",
    }


def test_increments_over_http_never_see_the_same_value(corrected: Workbench) -> None:
    """The self-check of this test bed: 16 threads, one counter, all values distinct."""
    table, threads, rounds = corrected.table(), 16, 25
    together = threading.Barrier(threads)
    client = corrected.aws.client("dynamodb", max_pool_connections=threads)

    def count(_: int) -> list[int]:
        together.wait(timeout=30)
        answers = [client.update_item(**add_one(table)) for _ in range(rounds)]
        return [int(answer["Attributes"]["n"]["N"]) for answer in answers]

    with ThreadPoolExecutor(threads) as pool:
        seen = [value for values in pool.map(count, range(threads)) for value in values]
    assert sorted(seen) == list(range(1, threads * rounds + 1))


# Copying this many elements takes several of Python's switch intervals (5 ms), so that each update
# is interrupted between its read and its write by others that run beside it.
BALLAST = {"L": [{"N": "1"}] * 4000}


def counted_by_tasks(bench: Workbench, resource: str) -> int:
    """What a Map whose 12 iterations each add one to the same big item has counted."""
    table = bench.table()
    bench.tables.put_item(TableName=table, Item={**COUNTER, "ballast": BALLAST})
    add = {
        "Type": "Task",
        "Resource": resource,
        "Parameters": {**add_one(table), "ReturnValues": "NONE"},
        "End": True,
    }
    iteration = {"StartAt": "Add", "States": {"Add": add}}
    definition = {
        "StartAt": "M",
        "States": {"M": {"Type": "Map", "ItemProcessor": iteration, "End": True}},
    }
    assert bench.run(definition, list(range(12))).status == "SUCCEEDED"
    return int(bench.tables.get_item(TableName=table, Key=COUNTER)["Item"]["n"]["N"])


OPTIMIZED = "arn:aws:states:::dynamodb:updateItem"


def test_increments_by_tasks_are_atomic(corrected: Workbench) -> None:
    assert counted_by_tasks(corrected, OPTIMIZED) == 12
    assert counted_by_tasks(corrected, "arn:aws:states:::aws-sdk:dynamodb:updateItem") == 12


def test_control_increments_by_tasks_get_lost(left_out: WithoutCorrection) -> None:
    assert counted_by_tasks(left_out("dynamodb_tasks"), OPTIMIZED) < 12


def expired_items_left(bench: Workbench, *, patience_seconds: float) -> list[str]:
    """Items of a table with TTL as soon as one is gone, or so long after one of four was due."""
    table = bench.table()
    bench.tables.update_time_to_live(
        TableName=table,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiry_time"},
    )
    now = int(time.time())
    due = {
        "due": str(now - 1),
        "not yet": str(now + 3600),
        "milliseconds": str(now * 1000),
        "six years ago": str(now - 6 * 31_557_600),
    }
    for name, expiry in due.items():
        bench.tables.put_item(
            TableName=table, Item={"pk": {"S": name}, "expiry_time": {"N": expiry}}
        )
    deadline = time.monotonic() + patience_seconds
    left = sorted(due)
    while time.monotonic() < deadline and len(left) == len(due):
        left = sorted(item["pk"]["S"] for item in bench.tables.scan(TableName=table)["Items"])
    return left


def test_expired_items_are_deleted_and_others_are_not(corrected: Workbench) -> None:
    left = expired_items_left(corrected, patience_seconds=30)
    assert left == ["milliseconds", "not yet", "six years ago"]


def test_control_expired_items_stay_for_a_minute(left_out: WithoutCorrection) -> None:
    left = expired_items_left(left_out("dynamodb_ttl"), patience_seconds=3)
    assert left == ["due", "milliseconds", "not yet", "six years ago"]


def test_the_stream_tells_who_deleted_an_expired_item(corrected: Workbench) -> None:
    table = corrected.table()
    corrected.tables.update_table(
        TableName=table,
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"},
    )
    stream_arn = corrected.tables.describe_table(TableName=table)["Table"]["LatestStreamArn"]
    corrected.tables.update_time_to_live(
        TableName=table,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiry_time"},
    )
    item = {"pk": {"S": "due"}, "expiry_time": {"N": str(int(time.time()) - 1)}}
    corrected.tables.put_item(TableName=table, Item=item)
    removed = first_record(corrected, stream_arn, "REMOVE")
    assert removed["dynamodb"]["OldImage"] == item
    assert removed["userIdentity"] == {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


def first_record(bench: Workbench, stream_arn: str, name: str) -> dict[str, Any]:
    streams = bench.aws.client("dynamodbstreams")
    shard = streams.describe_stream(StreamArn=stream_arn)["StreamDescription"]["Shards"][0]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        iterator = streams.get_shard_iterator(
            StreamArn=stream_arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        for record in streams.get_records(ShardIterator=iterator)["Records"]:
            if record["eventName"] == name:
                return dict(record)
        time.sleep(0.05)
    raise AssertionError(f"no {name} record within 30 s")


def backups_of_a_new_table(bench: Workbench) -> str:
    """What UpdateContinuousBackups answers right after CreateTable."""
    try:
        bench.tables.update_continuous_backups(
            TableName=bench.table(),
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "taken"


def test_a_new_table_takes_no_change_of_its_backups_yet(corrected: Workbench) -> None:
    """DynamoDB API reference, UpdateContinuousBackups, ContinuousBackupsUnavailableException.

    If the machine has time for it: a table is new for a second.
    """
    answers = (backups_of_a_new_table(corrected) for _ in range(20))
    assert "ContinuousBackupsUnavailableException" in answers


def test_control_a_new_table_takes_it_at_once(left_out: WithoutCorrection) -> None:
    assert backups_of_a_new_table(left_out("new_table_backups")) == "taken"
