"""Many holders in turn over real HTTP, each releasing with its writes; and holders gone stale."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fairlock import LockClient
from fairlock.guarded.guarded_writes import GuardedWrites
from tests.support import LOCK, TABLE
from tests.unit.guarded.conftest import LEDGER, Bench, deposit, is_refused

THREADS, HOLDS = 8, 24
MOST_SECONDS = 60


@pytest.mark.parametrize("limit", [1, 3])
def test_of_many_holders_that_release_with_their_writes_each_holds_once_and_no_write_is_lost(
    bench: Bench, limit: int
) -> None:
    """One that is alone writes the balance that it has read plus one: two at a time would lose."""

    def hold_once(_number: int) -> int:
        lock = locks.acquire(LOCK, limit=limit, max_wait=MOST_SECONDS)
        balance = (bench.balance("x") or 0) + 1
        item = {"account": {"S": "x"}, "balance": {"N": str(balance)}}
        put: Any = {"Put": {"TableName": LEDGER, "Item": item}}
        lock.transact_write([put if limit == 1 else deposit("x")], release=True)
        return lock.fencing_token

    with (
        LockClient(TABLE, client=bench.client, longest_poll=0.2) as locks,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        tokens = list(pool.map(hold_once, range(HOLDS)))
    assert len(set(tokens)) == bench.balance("x") == HOLDS
    state = bench.state
    assert (state.held, state.holders, bench.waiters()) == (0, (), [])


def test_a_write_that_races_with_a_takeover_is_written_or_refused_and_never_both(
    bench: Bench,
) -> None:
    barrier = threading.Barrier(2)

    def write(writes: GuardedWrites, account: str) -> bool:
        barrier.wait(MOST_SECONDS)
        return is_refused(lambda: writes.transact_write([deposit(account)]))

    def take_over(account: str) -> None:
        barrier.wait(MOST_SECONDS)
        bench.grant(f"after-{account}", lease_ms=1_000)

    for account in map(str, range(20)):
        writes = bench.writes(bench.grant(f"stale-{account}", lease_ms=1_000))
        bench.clock.advance(10)
        with ThreadPoolExecutor(2) as pool:
            refused = pool.submit(write, writes, account)
            pool.submit(take_over, account).result(MOST_SECONDS)
        assert bench.balance(account) == (None if refused.result(MOST_SECONDS) else 1)
        bench.clock.advance(10)
