"""Runs of lock clients that are recorded: contention on many locks, one after the other."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
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
_TRIES_TO_RELEASE: Final = 3
_BEAT_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What threads do with one lock name.

    Attributes:
        threads: how many.
        turns: how often each asks for the lock.
        limit: permits.
        max_wait: longest seconds to wait; 0 for tries.
        lease: seconds.
        dies: share of the holders that are never heard of again.
        held: longest seconds for which a lock is held.
        beats: heartbeats of a holder, a tenth of a second after each other.
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
    beats: int = 0
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
        # The embedded AWS knows its callers by its key, which is in the environment then.
        aws_access_key_id=os.environ.get("AWS_ACCESS_KEY_ID", "test"),
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
    for _ in range(plan.beats):
        time.sleep(_BEAT_SECONDS)
        recorder.heartbeat(lock, owner)
    _release(recorder, lock, owner)


def _release(recorder: Recorder, lock: Lock, owner: str) -> None:
    for _ in range(_TRIES_TO_RELEASE):
        if recorder.release(lock, owner) is not Answer.UNKNOWN:
            return


# The plans of a round: tries, waiters, semaphores, and holders that are never heard of again.

SMALL: Final = {
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
LARGE: Final = {
    "tries": Plan(threads=4, turns=150),
    "tries, three permits": Plan(threads=4, turns=50, limit=3),
    "waiters": Plan(threads=4, turns=10, max_wait=30, lease=3),
    "waiters, five permits": Plan(threads=5, turns=10, limit=5, max_wait=30, lease=3),
    "readers and writers that wait": Plan(threads=5, turns=10, max_wait=30, lease=3, readers=0.7),
    "holders that die": Plan(threads=2, turns=2, max_wait=30, lease=1, dies=0.3),
    "long holds": Plan(threads=1, turns=2, max_wait=60, lease=10, beats=30),
}
"""Of each of two processes."""


# Rounds of the large plans, with half of the threads in each of two processes.

_PROCESSES: Final = 2
_ROUND_SECONDS: Final = 120
Round = dict[str, list[Call]]


@contextmanager
def two_processes(endpoint_url: str) -> Iterator[Callable[[int], Round]]:
    """Yields a function that runs a round, by its number, on locks of its own."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(_PROCESSES, _begin, (spawn.Barrier(_PROCESSES), endpoint_url)) as pool:

        def run(number: int) -> Round:
            shares = pool.map_async(_work, [number] * _PROCESSES, chunksize=1)
            merged: Round = {name: [] for name in LARGE}
            for share in shares.get(timeout=_ROUND_SECONDS):
                for name in LARGE:
                    merged[name] += share[f"{name} {number}"]
            return merged

        yield run


@dataclass(frozen=True, slots=True)
class _Process:
    """What one of the processes has: two clients, one of which sends each request only once."""

    barrier: Barrier
    clients: list[LockClient]


_process: list[_Process] = []


def _begin(barrier: Barrier, endpoint_url: str) -> None:
    logging.disable(logging.CRITICAL)  # Losses are what is wanted here.
    clients = [new_client(endpoint_url, tries=tries) for tries in (3, 1)]
    _process.append(_Process(barrier, clients))


def _work(number: int) -> Round:
    [process] = _process
    process.barrier.wait(timeout=_ROUND_SECONDS)
    plans = {f"{name} {number}": plan for name, plan in LARGE.items()}
    return dict(run_plans(process.clients, plans, seed=number))
