"""Case 4: the heartbeat beside the work."""

from __future__ import annotations

import time

from tests.e2e.deployment import wait_until
from tests.smoke.account import Account
from tests.smoke.facts import await_holder, ended, outputs

HEARTBEATS = 3
LONG_RESULT = "x" * 30_000
"""Carried through the cause of an error, which has room for 32,768 characters."""


def test_heartbeats_renew_the_lease_and_end_with_the_work(account: Account, lock: str) -> None:
    """Decides whether SendTaskSuccess ends a heartbeat's state when the work beside it ends."""
    seconds = HEARTBEATS * account.sizes.interval_seconds + 1
    execution = account.workflows.start("KeptAlive", {"lock": lock, "seconds": seconds})
    [span] = outputs(account, [execution])
    heartbeats = len(account.workflows.timeline(execution).entries("Guard: Heartbeat"))
    lag = account.workflows.stopped_at(execution) - span["ended_ms"] / 1000
    account.tell(f"{heartbeats} heartbeats in {seconds} s; ended {lag:.2f} s after the work")
    assert heartbeats >= HEARTBEATS
    assert lag < account.sizes.delay_seconds
    assert account.workflows.held(lock) == 0


def test_a_lock_that_is_lost_stops_the_work(account: Account, lock: str) -> None:
    """Decides whether SendTaskFailure stops the branch of the work, by the name LockLost."""
    workflows = account.workflows
    execution = workflows.start("KeptAlive", {"lock": lock, "seconds": 300})
    wait_until(lambda: "Stay" in workflows.states_entered(execution))
    workflows.force_release(lock)
    lost_at = time.time()
    [end] = ended(account, [execution])
    seconds = workflows.stopped_at(execution) - lost_at
    account.tell(f"lock lost: the work was stopped after {seconds:.2f} s")
    assert (end.status, end.error) == ("FAILED", "LockLost")
    assert seconds < account.sizes.interval_seconds + account.sizes.delay_seconds


def test_a_result_survives_a_release_that_fails_for_good(account: Account, lock: str) -> None:
    """Decides whether the cause of an error carries a result of 30,000 characters to its Catch."""
    workflows = account.workflows
    execution = workflows.start("NotReleased", {"lock": lock, "return": LONG_RESULT})
    assert outputs(account, [execution]) == [LONG_RESULT]
    assert "Guard: Not released" in workflows.states_entered(execution)


def test_a_redriven_execution_takes_its_lock_again(account: Account, lock: str) -> None:
    """Decides whether a redrive repeats the heartbeat, and the reaper tells it from the first run.

    Also whether DescribeExecution counts redrives as the protocol assumes.
    """
    workflows = account.workflows
    seconds = HEARTBEATS * account.sizes.interval_seconds
    execution = workflows.start("KeptAlive", {"lock": lock, "seconds": seconds})
    wait_until(lambda: "Stay" in workflows.states_entered(execution))
    workflows.stop(execution)
    wait_until(lambda: workflows.holders(lock) == [])
    workflows.redrive(execution)
    redriven_at = time.time()
    await_holder(account, lock, execution)
    account.tell(f"redriven: held its lock again after {time.time() - redriven_at:.2f} s")
    outputs(account, [execution])
    assert workflows.holders(lock) == []
