"""Runs of lock clients that are recorded: contention on many locks, one after the other."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config

from fairlock import Lock, LockClient
from fairlock.aws.retry import CLIENT_CONFIG
from fairlock.wire.rules import DEFAULT_READERS
from tests.histories.calls import Answer, Call, Recorder
from tests.histories.checker import Violation, find_violation
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


_LONGEST_SECONDS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What threads do with one lock name.

    Attributes:
        turns: how often each asks for the lock.
        limit: permits.
        max_wait: longest seconds to wait; 0 for tries.
        lease: seconds.
        dies: share of the holders that are never heard of again.
        held: longest seconds for which a lock is held.
        readers: share of the acquisitions that share the lock; `limit` is that of the others.
        ceilings: how often an operator changes the ceiling meanwhile.
    """

    threads: int
    turns: int
    limit: int = 1
    max_wait: float = 0
    lease: float = 30
    dies: float = 0
    held: float = 0.01
    readers: float = 0
    ceilings: int = 0


def dynamodb_at(endpoint_url: str, *, tries: int) -> DynamoDBClient:
    """A DynamoDB client for an endpoint on loopback that sends each request so often at most."""
    config = CLIENT_CONFIG.merge(
        Config(
            max_pool_connections=64,
            proxies={},
            # The network decides which request its caller gives up, not a busy machine.
            connect_timeout=30,
            read_timeout=30,
            retries={"mode": "standard", "total_max_attempts": tries},
        )
    )
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=config,
    )


def run_plans(
    clients: Sequence[LockClient], plans: Mapping[str, Plan], *, seed: int
) -> dict[str, list[Call]]:
    """Lets threads contend for all locks at a time; returns the calls on each.

    Args:
        clients: the threads share them.
        plans: by lock name.
        seed: of the times between the calls.
    """
    recorder = Recorder()
    threads = sum(plan.threads + (plan.ceilings > 0) for plan in plans.values())
    barrier = threading.Barrier(threads, timeout=_LONGEST_SECONDS)

    def contend(lock_name: str, plan: Plan, number: int) -> None:
        client = clients[number % len(clients)]
        random = Random(f"{seed} {lock_name} {number}")  # noqa: S311 - no secret
        barrier.wait()
        for _ in range(plan.turns):
            _take_turn(recorder, client, lock_name, plan, random)

    def operate(lock_name: str, plan: Plan) -> None:
        random = Random(f"{seed} {lock_name} operator")  # noqa: S311 - no secret
        barrier.wait()
        for _ in range(plan.ceilings):
            limit = random.choice((0, *range(plan.limit + 1), None))
            recorder.set_ceiling(clients[0], lock_name, limit)
            time.sleep(random.random() * plan.held)
        recorder.set_ceiling(clients[0], lock_name, None)

    with ThreadPoolExecutor(threads) as pool:
        work = [
            pool.submit(contend, lock_name, plan, number)
            for lock_name, plan in plans.items()
            for number in range(plan.threads)
        ]
        work += [pool.submit(operate, *each) for each in plans.items() if each[1].ceilings]
        for each in work:
            each.result(timeout=_LONGEST_SECONDS)
    return recorder.histories


def check(history: Sequence[Call], plan: Plan) -> Violation | None:
    """What is wrong with the history of a plan."""
    limit = max(plan.limit, DEFAULT_READERS) if plan.readers else plan.limit
    return find_violation(history, limit=limit, with_waiters=plan.max_wait > 0)


def new_client(endpoint_url: str, *, tries: int) -> LockClient:
    """A client without heartbeats of its own: all that it sends is in the history."""
    dynamodb = dynamodb_at(endpoint_url, tries=tries)
    return LockClient(TABLE, client=dynamodb, heartbeat_every=math.inf)


def _take_turn(
    recorder: Recorder, client: LockClient, lock_name: str, plan: Plan, random: Random
) -> None:
    options: dict[str, Any] = {"limit": plan.limit}
    if plan.readers and random.random() < plan.readers:
        options = {"shared": True}
    owner, lock = recorder.acquire(
        client, lock_name, max_wait=plan.max_wait, lease=plan.lease, **options
    )
    if lock is None:
        time.sleep(random.random() * plan.held)
        return
    time.sleep(random.random() * plan.held)
    if random.random() < plan.dies:
        return
    if random.random() < 1 / 2:
        recorder.heartbeat(lock, owner)
    _release(recorder, lock, owner)


def _release(recorder: Recorder, lock: Lock, owner: str) -> None:
    for _ in range(3):
        if recorder.release(lock, owner) is not Answer.UNKNOWN:
            return


# The plans of a round: tries, waiters, semaphores, and holders that are never heard of again.

PLANS: Final = {
    "tries": Plan(threads=4, turns=15),
    "tries, three permits": Plan(threads=6, turns=15, limit=3),
    "tries of readers and writers": Plan(threads=6, turns=15, readers=0.7),
    "tries beside an operator": Plan(threads=5, turns=15, limit=2, ceilings=15),
    "waiters beside an operator": Plan(
        threads=4, turns=4, limit=2, max_wait=20, lease=3, ceilings=10
    ),
    "waiters": Plan(threads=4, turns=4, max_wait=20, lease=3),
    "waiters, two permits": Plan(threads=4, turns=4, limit=2, max_wait=20, lease=3),
    "readers and writers that wait": Plan(threads=5, turns=4, max_wait=20, lease=3, readers=0.7),
    "holders that die": Plan(threads=2, turns=2, max_wait=20, lease=1, dies=0.3),
}
