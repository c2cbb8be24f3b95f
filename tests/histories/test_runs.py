"""Histories of clients over a network that fails are linearizable, unless the protocol is wrong.

`HISTORIES=25 pytest tests/histories/test_runs.py` makes so many rounds, of 750 calls each.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config

from fairlock import LockClient
from fairlock.aws.retry import CLIENT_CONFIG
from fairlock.protocol.admission import NO_CEILING
from fairlock.store import acquire
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.rules import DEFAULT_READERS
from tests.histories.calls import Answer, Call, Recorder
from tests.histories.checker import Violation, find_violation
from tests.histories.faulty_endpoint import Fault, Faults, faulty_endpoint
from tests.property.mutants import MUTANTS
from tests.support import TABLE
from tests.support.weakened import patched, weak

HISTORIES = int(os.environ.get("HISTORIES", "1"))
ROUNDS = 30
"""On a busy machine, on which calls overlap less, the first ones may show nothing."""
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

    def violation(self, history: Sequence[Call]) -> Violation | None:
        """What is wrong with the history of this plan."""
        limit = max(self.limit, DEFAULT_READERS) if self.readers else self.limit
        return find_violation(history, limit=limit, with_waiters=self.max_wait > 0)


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
TRIES = Plan(threads=4, turns=10, held=0.005)
THREE_PERMITS = Plan(threads=5, turns=10, limit=3, held=0.005)
BESIDE_AN_OPERATOR = Plan(threads=4, turns=15, held=0.005, ceilings=15)
READERS_AND_WRITERS = Plan(threads=5, turns=10, held=0.005, readers=0.6)
_TOKEN = "#fencing_token = if_not_exists(#fencing_token, :seed)"
WRONG = {
    **MUTANTS,
    "an acquire ignores a ceiling": weak(acquire, "acquire_permit", NO_CEILING),
    # The next token goes to the owner, and is forgotten.
    "a grant does not count the token": weak(
        acquire, "acquire_permit", f"{_TOKEN} + :one", instead=_TOKEN
    ),
}


def histories(plans: Mapping[str, Plan], faults: Faults) -> dict[str, list[Call]]:
    """The calls on each lock name, of threads that share two clients, on all names at a time."""
    recorder = Recorder()
    threads = sum(plan.threads + (plan.ceilings > 0) for plan in plans.values())
    barrier = threading.Barrier(threads, timeout=_LONGEST_SECONDS)
    with faulty_endpoint(MemoryTable(), faults) as url:
        # One sends each request only once.
        clients = [new_client(url, tries=tries) for tries in (3, 1)]

        def contend(lock_name: str, plan: Plan, number: int) -> None:
            client = clients[number % len(clients)]
            random = Random(f"{faults.seed} {lock_name} {number}")  # noqa: S311 - no secret
            barrier.wait()
            for _ in range(plan.turns):
                take_turn(recorder, client, lock_name, plan, random)

        def operate(lock_name: str, plan: Plan) -> None:
            random = Random(f"{faults.seed} {lock_name} operator")  # noqa: S311 - no secret
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
        for client in clients:
            client.close()
    return recorder.histories


def new_client(endpoint_url: str, *, tries: int) -> LockClient:
    """A client without heartbeats of its own: all that it sends is in the history."""
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
    dynamodb = boto3.client(
        "dynamodb",
        endpoint_url=endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=config,
    )
    return LockClient(TABLE, client=dynamodb, heartbeat_every=math.inf)


def take_turn(
    recorder: Recorder, client: LockClient, lock_name: str, plan: Plan, random: Random
) -> None:
    options: dict[str, Any] = {"limit": plan.limit}
    if plan.readers and random.random() < plan.readers:
        options = {"shared": True}
    owner, lock = recorder.acquire(
        client, lock_name, max_wait=plan.max_wait, lease=plan.lease, **options
    )
    time.sleep(random.random() * plan.held)
    if lock is None or random.random() < plan.dies:
        return
    if random.random() < 1 / 2:
        recorder.heartbeat(lock, owner)
    for _ in range(3):
        if recorder.release(lock, owner) is not Answer.UNKNOWN:
            return


@pytest.mark.parametrize("seed", range(11, 11 + HISTORIES))
def test_histories_over_a_network_that_fails_are_linearizable(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    began, spent = time.monotonic(), time.process_time()
    faults = Faults(share=0.08, seed=seed)
    found = histories(PLANS, faults)
    violations = {name: PLANS[name].violation(history) for name, history in found.items()}
    assert set(violations.values()) == {None}, violations
    answers = Counter(call.answer for history in found.values() for call in history)
    assert all(answers[answer] for answer in Answer), answers
    assert len(faults.met) == len(Fault), faults.met
    figures = f"histories: {answers.total()} calls, {faults.met.total()} faults"
    took = f"{time.monotonic() - began:.1f} s, {time.process_time() - spent:.1f} s of CPU"
    record_property("figures", f"{figures}, {took}")


@pytest.mark.parametrize(
    ("mutant", "plan", "faults"),
    [
        ("the limit is compared with <=", TRIES, ()),
        ("the limit is compared with <=", THREE_PERMITS, ()),
        ("a grant does not count the token", TRIES, ()),
        ("a release does not count", TRIES, ()),
        ("a holder may acquire again", THREE_PERMITS, (Fault.LOST_REPLY,)),
        ("the first write ignores the limit in force", READERS_AND_WRITERS, ()),
        ("an acquire ignores a ceiling", BESIDE_AN_OPERATOR, ()),
    ],
)
def test_the_history_of_a_wrong_protocol_shows_it(
    mutant: str, plan: Plan, faults: tuple[Fault, ...]
) -> None:
    for seed in range(ROUNDS):
        met = Faults(share=0.3 if faults else 0.0, seed=seed, kinds=faults or tuple(Fault))
        with patched([WRONG[mutant]]):
            [history] = histories({"control": plan}, met).values()
        if plan.violation(history) is not None:
            return
    pytest.fail(f"not found in {ROUNDS} histories")
