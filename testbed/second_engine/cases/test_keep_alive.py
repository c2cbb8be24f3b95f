"""keep_alive: beats, the natural end, a lock that is lost.

As tests/e2e/lifetimes tests it, without the scenarios that suite plays beside it.
"""

from __future__ import annotations

from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.stack import INTERVAL_SECONDS
from tests.e2e.lifetimes.test_keep_alive import force_released
from tests.e2e.locks import ContestedLock


def test_three_heartbeats_beat_beside_the_work_and_end_with_it(deployment: Deployment) -> None:
    contested = ContestedLock(deployment)
    work_seconds = 3 * INTERVAL_SECONDS + 1
    execution = contested.start("KeepAliveChain", seconds=work_seconds)
    ended = contested.ended(execution)
    assert ended.status == "SUCCEEDED"
    # The first one begins with the work, and each lasts for an interval.
    assert len(deployment.entries(execution, "Guard: Heartbeat")) in {3, 4}
    assert deployment.stopped_at(execution) - ended.output["ended_ms"] / 1000 < INTERVAL_SECONDS
    assert contested.holders() == []


def test_a_lock_that_is_lost_ends_the_work_within_an_interval(deployment: Deployment) -> None:
    lost = force_released(deployment, "KeepAliveChain", seconds=30)
    assert (lost.ended.status, lost.ended.error) == ("FAILED", "LockLost")
    assert (lost.finished, lost.heartbeats <= 1) == (False, True)


def test_without_keep_alive_the_work_goes_on_without_the_lock(deployment: Deployment) -> None:
    """The negative control."""
    lost = force_released(deployment, "Plain", seconds=2 * INTERVAL_SECONDS)
    assert (lost.ended.status, lost.finished) == ("SUCCEEDED", True)
