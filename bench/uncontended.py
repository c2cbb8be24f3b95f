"""What a lock costs that nobody else wants: acquire and release, beside two bare writes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bench.bed import TABLE, Bed, Figures, lock_client, resource_at, spread
from bench.systems import OTHER_TABLE, other_library

BARE = "two conditional writes of boto3"
_WARM_UP = 20


def measure(bed: Bed) -> Figures:
    """Milliseconds of wall time and of this process's CPU time, alternating."""
    pairs = {BARE: _bare(bed), "Leasehold": _ours(bed), "python_dynamodb_lock": _other(bed)}
    walls: dict[str, list[float]] = {name: [] for name in pairs}
    cpus: dict[str, list[float]] = {name: [] for name in pairs}
    rounds = 10 if bed.quick else 300
    for number in range(-min(_WARM_UP, rounds), rounds):
        for name, pair in pairs.items():
            wall, cpu = time.perf_counter(), time.thread_time()
            pair()
            if number >= 0:
                walls[name].append((time.perf_counter() - wall) * 1000)
                cpus[name].append((time.thread_time() - cpu) * 1000)
    figures = {
        name: {"wall_ms": spread(walls[name]), "cpu_ms": spread(cpus[name])} for name in pairs
    }
    for each in figures.values():
        for kind in ("wall_ms", "cpu_ms"):
            each[kind]["ratio"] = round(each[kind]["median"] / figures[BARE][kind]["median"], 2)
    return figures


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    rows = [
        f"| {name} | {f['wall_ms']['median']} | {f['wall_ms']['p95']} | {f['wall_ms']['ratio']} "
        f"| {f['cpu_ms']['median']} | {f['cpu_ms']['ratio']} |"
        for name, f in figures.items()
    ]
    return [
        "## A lock that nobody else wants",
        "",
        (
            "Acquire and release, one after the other, alternating with the others. CPU "
            "time is that of the client's thread."
        ),
        "",
        "| | wall, median ms | p95 ms | ratio | CPU, median ms | ratio |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def _bare(bed: Bed) -> Callable[[], None]:
    client: Any = bed.dynamodb()

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


def _ours(bed: Bed) -> Callable[[], None]:
    client = lock_client(bed.dynamodb())
    return lambda: _discard(client.acquire("uncontended").release())


def _other(bed: Bed) -> Callable[[], None]:
    resource = resource_at(bed.endpoint_url)
    client = other_library().DynamoDBLockClient(resource, table_name=OTHER_TABLE)
    second = timedelta(seconds=1)
    return lambda: _discard(client.acquire_lock("uncontended", retry_period=second).release())


def _discard(_answer: object) -> None:
    """The answer is not needed."""
