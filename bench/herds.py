"""Herds of waiters through the store: what a hand-off costs, however many wait."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from bench.waiters import Waiters, all_at_once
from tests.support import create_lock_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

_THREADS = 10


def herds(client: DynamoDBClient, sizes: Sequence[int]) -> dict[int, dict[str, float]]:
    """DynamoDB requests of each hand-off by operation, and whether the order was kept, by size."""
    create_lock_table(client)
    return {size: _herd(client, size) for size in sizes}


def _herd(client: DynamoDBClient, size: int) -> dict[str, float]:
    herd = Waiters(client, f"herd-{size}")
    herd.enter("first")
    names = [f"waiter-{i:03d}" for i in range(size)]
    joins = [functools.partial(herd.enter, name) for name in names]
    herd.requests.clear()
    answers = all_at_once(joins, threads=_THREADS)
    in_order = sorted(answers, key=lambda answer: (answer.entered_at_ms, answer.owner_id))
    queue = [answer.owner_id.strip("-") for answer in in_order]
    joining = len(herd.requests)
    herd.requests.clear()
    for departing in ["first", *queue[:-1]]:
        herd.leave(departing)
    return {
        "requests_to_join": round(joining / size, 2),
        "requests_per_hand_off": round(len(herd.requests) / size, 2),
        "granted_once_in_order": herd.granted == queue,
    }
