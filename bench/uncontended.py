"""What a lock costs that no one else wants: acquire and release, beside two bare writes."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from bench.amazons_engine import amazons_engine
from bench.bed import TABLE, Bed, Figures, bare_client_at, resource_at, session_at, spread
from bench.goals import Goal
from bench.plain_server import ANSWER_MS, plain_server
from bench.systems import OTHER_TABLE, other_library
from fairlock import LockClient
from fairlock.protocol.grants import acquire_permit
from fairlock.protocol.leaving import release_permit
from fairlock.protocol.model import AcquireRequest, ReleaseRequest
from fairlock.protocol.table_requests import Update

BARE = "two conditional writes of boto3"
SAME = "the two writes of Fairlock, by boto3 alone"
_OVER_BARE = f"over {BARE}"
OURS = "Fairlock"
OTHER = "python_dynamodb_lock"
EMULATOR = "on the embedded AWS"
AMAZONS = "on DynamoDB Local"
PLAIN = "at a server that takes equally long for each write"
_IN_A_ROW = 10
_UNTIL_JAVA_IS_COMPILED = 600
_MOST = 1.15
_SERVERS = {
    EMULATOR: "the embedded AWS, written in Python",
    AMAZONS: "DynamoDB Local of January 2020, in Java",
    PLAIN: f"one that answers after {ANSWER_MS} ms",
}
_NOT_AT_AMAZONS = (
    "Not measured on DynamoDB Local, which did not start: it needs Java 17 to 23, and `make bench`."
)


def measure(bed: Bed) -> Figures:
    """Milliseconds of wall time and of this thread's CPU time, at each server."""
    count = 10 if bed.quick else 400
    others = {OTHER: _other(bed.endpoint_url)}
    figures = {EMULATOR: _compare(count, {**_systems(bed.endpoint_url, count), **others})}
    with amazons_engine() as url:
        if url is not None:
            warm_up = 10 if bed.quick else _UNTIL_JAVA_IS_COMPILED
            _compare(warm_up, _systems(url, warm_up))
            figures[AMAZONS] = _compare(count, _systems(url, count))
    with plain_server() as url:
        figures[PLAIN] = _compare(count, _systems(url, count))
    return figures


def _systems(endpoint_url: str, count: int) -> dict[str, Callable[[], None]]:
    """What is compared at each server, so many times, and in one round before to warm up."""
    return {
        BARE: _bare(endpoint_url),
        SAME: _same(endpoint_url, count + _IN_A_ROW),
        OURS: _ours(endpoint_url),
    }


def _compare(count: int, pairs: Mapping[str, Callable[[], None]]) -> Figures:
    """Each is measured in each round, in an order that changes.

    A program uses one of them, and finds its code in the processor's cache. A machine is not
    equally fast all the time.
    """
    walls: dict[str, list[float]] = {name: [] for name in pairs}
    cpus: dict[str, list[float]] = {name: [] for name in pairs}
    order = Random(1)  # noqa: S311 - no secret
    for number in range(-1, count // _IN_A_ROW):
        for name, pair in order.sample(list(pairs.items()), len(pairs)):
            for _ in range(_IN_A_ROW):
                wall, cpu = time.perf_counter(), time.thread_time()
                pair()
                if number >= 0:
                    walls[name].append((time.perf_counter() - wall) * 1000)
                    cpus[name].append((time.thread_time() - cpu) * 1000)
    figures: Figures = {
        name: {
            "wall_ms": spread(walls[name]),
            "cpu_ms": spread(cpus[name]),
            "waiting_ms": spread([a - b for a, b in zip(walls[name], cpus[name], strict=True)]),
        }
        for name in pairs
    }
    for name, each in figures.items():
        for kind, times in (("wall_ms", walls), ("cpu_ms", cpus)):
            for base in (BARE, SAME):
                each[kind][f"over {base}"] = _ratio(times[name], times[base])
    return figures


def _ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios of all rounds: a machine is not equally fast all the time."""
    rounds = [slice(begin, begin + _IN_A_ROW) for begin in range(0, len(times), _IN_A_ROW)]
    ratios = [statistics.median(times[each]) / statistics.median(base[each]) for each in rounds]
    return round(statistics.median(ratios), 2)


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    return [
        "## An uncontended lock",
        "",
        (
            f"Acquire and release, as a ratio over {BARE}. “Its requests” are the two writes of "
            "Fairlock, sent by boto3 alone: the rest is Fairlock's own time."
        ),
        "",
        f"| server | {BARE}, ms | {OURS} | its CPU time | its requests | {OTHER} |",
        "|---|---|---|---|---|---|",
        *(f"| {_SERVERS[where]} | {_row(figures[where])} |" for where in figures),
        *([] if AMAZONS in figures else ["", _NOT_AT_AMAZONS]),
    ]


def _row(figures: Figures) -> str:
    ratios = (
        figures[name][kind][_OVER_BARE] if name in figures else "-"
        for name, kind in (
            (OURS, "wall_ms"),
            (OURS, "cpu_ms"),
            (SAME, "wall_ms"),
            (OTHER, "wall_ms"),
        )
    )
    return " | ".join(map(str, (figures[BARE]["wall_ms"]["median"], *ratios)))


def goals(figures: Figures) -> list[Goal]:
    """Little more than what is to be written."""
    return [
        Goal.at_most(
            f"acquire and release {where}, {name}, over {base}",
            figures[where][OURS][kind][f"over {base}"],
            _MOST,
        )
        for where in figures
        for base in ((BARE, SAME) if where == EMULATOR else (BARE,))
        for kind, name in (("wall_ms", "wall time"), ("cpu_ms", "CPU time"))
    ]


def _bare(endpoint_url: str) -> Callable[[], None]:
    client: Any = bare_client_at(endpoint_url)

    def pair() -> None:
        request = {"TableName": TABLE, "Key": {"pk": {"S": "bare"}, "sk": {"S": "BARE"}}}
        names, values = {"#owner": "owner"}, {":me": {"S": str(uuid.uuid4())}}
        client.update_item(
            **request,
            UpdateExpression="SET #owner = :me",
            ConditionExpression="attribute_not_exists(#owner)",
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )
        client.update_item(
            **request,
            UpdateExpression="REMOVE #owner",
            ConditionExpression="#owner = :me",
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )

    return pair


def _same(endpoint_url: str, rounds: int) -> Callable[[], None]:
    client: Any = bare_client_at(endpoint_url)
    requests = iter([request for _ in range(rounds) for request in _two_writes()])

    def pair() -> None:
        client.update_item(**next(requests))
        client.update_item(**next(requests))

    return pair


def _two_writes() -> list[dict[str, Any]]:
    owner, now_ms = str(uuid.uuid4()), time.time_ns() // 1_000_000
    acquire = AcquireRequest(
        lock_name="same", owner_id=owner, owner_name="bench", lease_ms=60_000, waits=True
    )
    release = ReleaseRequest(lock_name="same", owner_id=owner, tells_grant=False)
    updates = (
        acquire_permit(acquire, sent_at_ms=now_ms, now_ms=now_ms),
        release_permit(release, left_at_ms=now_ms),
    )
    return [_request(update) for update in updates]


def _request(update: Update) -> dict[str, Any]:
    return {
        "TableName": TABLE,
        "Key": update.key,
        "UpdateExpression": update.change,
        "ConditionExpression": update.condition,
        "ExpressionAttributeNames": update.names,
        "ExpressionAttributeValues": update.values,
        "ReturnValues": update.returns,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _ours(endpoint_url: str) -> Callable[[], None]:
    client = LockClient(TABLE, session=session_at(endpoint_url))
    return lambda: _discard(client.acquire("uncontended").release())


def _other(endpoint_url: str) -> Callable[[], None]:
    resource = resource_at(endpoint_url)
    client = other_library().DynamoDBLockClient(resource, table_name=OTHER_TABLE)
    second = timedelta(seconds=1)
    return lambda: _discard(client.acquire_lock("uncontended", retry_period=second).release())


def _discard(_answer: object) -> None:
    """The answer is not needed."""
