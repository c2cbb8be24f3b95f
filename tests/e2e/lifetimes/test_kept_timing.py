"""What keep_alive costs: no time after the work, and a call and two requests for each interval."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from leasehold.context import LockContext
from leasehold.dynamo import LockTable
from leasehold.keeping import Kept
from leasehold.model import AcquireRequest, KeepAliveRequest
from leasehold.store import LockStore
from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.kept import lag_seconds
from tests.e2e.lifetimes.mortals import LONG_INTERVAL_SECONDS, UNTOLD_INTERVAL_SECONDS
from tests.e2e.lifetimes.scene import TIMES, Scene
from tests.e2e.lifetimes.stack import INTERVAL_SECONDS, KEPT_LEASE_SECONDS
from tests.e2e.lifetimes.underway import Underway
from tests.support import CountingClient

AT_ONCE = 2
LAG_SECONDS = 0.3
BEATS = {3: 2, 7: 4}
"""By the seconds of the work: one at once, and one after each interval."""


@pytest.fixture
def quiet(underway: Underway) -> None:
    """Nothing else is under way that would be measured too."""
    underway.wait()


def lags(deployment: Deployment, machine: str, *, times: int) -> list[float]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(partial(lag_seconds, deployment), [machine] * times))


@pytest.mark.usefixtures("quiet")
def test_the_guard_ends_with_the_work_whatever_the_interval(
    deployment: Deployment, tell: Tell
) -> None:
    kept = lags(deployment, "DiesKept", times=TIMES)
    tell(f"kept alive every {LONG_INTERVAL_SECONDS} s: from the work's end to the guard's", kept)
    plain = lags(deployment, "Dies", times=TIMES)
    tell("not kept alive: from the work's end to the guard's", plain)
    assert statistics.median(kept) < LAG_SECONDS
    assert max(kept) < LONG_INTERVAL_SECONDS / 2


@pytest.mark.usefixtures("quiet")
def test_a_heartbeat_that_is_not_told_ends_an_interval_later(
    deployment: Deployment, tell: Tell
) -> None:
    untold = lags(deployment, "KeptUntold", times=AT_ONCE)
    tell(f"kept alive every {UNTOLD_INTERVAL_SECONDS} s, not told: from work to guard", untold)
    assert min(untold) > UNTOLD_INTERVAL_SECONDS / 2


def test_a_beat_is_one_transition_and_one_call(deployment: Deployment) -> None:
    executions = {
        seconds: Scene(deployment).start("KeepAliveChain", seconds=seconds) for seconds in BEATS
    }
    beats, transitions, calls = {}, {}, {}
    for seconds, execution in executions.items():
        assert deployment.ended(execution).status == "SUCCEEDED"
        beats[seconds] = deployment.states_entered(execution).count("Guard: Heartbeat")
        transitions[seconds] = deployment.transitions(execution)
        calls[seconds] = deployment.calls(execution)
    assert beats == BEATS
    short, long = BEATS
    assert transitions[long] - transitions[short] == BEATS[long] - BEATS[short]
    assert calls == {seconds: 2 + number for seconds, number in BEATS.items()}


def test_a_beat_is_two_requests(deployment: Deployment) -> None:
    scene = Scene(deployment)
    execution = scene.start_inside("KeepAliveChain", seconds=60)
    client = CountingClient(deployment.aws.client("dynamodb"))
    table = LockTable(client, deployment.table_name)  # type: ignore[arg-type]  # counts, passes on
    store = LockStore(LockContext(table=table))
    acquisition = AcquireRequest(
        lock_name=scene.lock,
        owner_id=scene.holder().owner_id,
        lease_ms=KEPT_LEASE_SECONDS * 1000,
        execution_arn=execution,
    )
    beat = KeepAliveRequest(
        acquisition=acquisition, execution_arn=execution, task_token=f"{INTERVAL_SECONDS} s"
    )
    assert store.keep_alive(beat) is Kept.RENEWED
    assert client.calls == ["update_item", "update_item"]
    scene.stop(execution)
