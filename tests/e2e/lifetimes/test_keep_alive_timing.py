"""What keep_alive costs: no time after the work, and a call and two requests for each interval."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.protocol.model import AcquireRequest, KeepAliveRequest
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.contested_lock import TIMES, ContestedLock
from tests.e2e.lifetimes.dying_workflows import LONG_INTERVAL_SECONDS, UNTOLD_INTERVAL_SECONDS
from tests.e2e.lifetimes.keep_alive import WORK_SECONDS, lag_seconds
from tests.e2e.lifetimes.stack import INTERVAL_SECONDS, KEEP_ALIVE_LEASE_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns
from tests.support.faulty_table import FaultyTable
from tests.support.operations import Operations

AT_ONCE = 2
INTERVALS = {LONG_INTERVAL_SECONDS: "DiesKeptAlive", INTERVAL_SECONDS: "KeepAliveChain"}
MOST_ROUNDS = 5
SHORT, LONG = 3, 7
MORE_HEARTBEATS = (LONG - SHORT) // INTERVAL_SECONDS


@pytest.fixture
def quiet(runs: ScenarioRuns) -> None:
    """Nothing else is under way that would be measured too."""
    runs.wait()


def is_told(deployment: Deployment, machine: str, *, interval: int, tell: Tell) -> bool:
    """Whether its guard ends well before the heartbeat would find out by itself.

    Measured again on a machine that is too busy to tell: an untold heartbeat is never so quick.
    """
    seconds = lags(deployment, machine, times=TIMES)
    tell(f"kept alive every {interval} s: from the work's end to the guard's", seconds)
    return min(seconds) < (interval - WORK_SECONDS) / 2


def lags(deployment: Deployment, machine: str, *, times: int) -> list[float]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(partial(lag_seconds, deployment), [machine] * times))


@pytest.mark.usefixtures("quiet")
def test_the_guard_ends_with_the_work_whatever_the_interval(
    deployment: Deployment, tell: Tell
) -> None:
    plain = lags(deployment, "Dies", times=TIMES)
    tell("not kept alive: from the work's end to the guard's", plain)
    for interval, machine in INTERVALS.items():
        assert any(
            is_told(deployment, machine, interval=interval, tell=tell) for _ in range(MOST_ROUNDS)
        )


@pytest.mark.usefixtures("quiet")
def test_a_heartbeat_that_is_not_told_ends_an_interval_later(
    deployment: Deployment, tell: Tell
) -> None:
    untold = lags(deployment, "KeptAliveUntold", times=AT_ONCE)
    tell(f"kept alive every {UNTOLD_INTERVAL_SECONDS} s, not told: from work to guard", untold)
    assert min(untold) > (UNTOLD_INTERVAL_SECONDS - WORK_SECONDS) / 2


def test_a_heartbeat_is_one_transition_and_one_call(deployment: Deployment) -> None:
    executions = [
        ContestedLock(deployment).start("KeepAliveChain", seconds=seconds)
        for seconds in (SHORT, LONG)
    ]
    assert {deployment.ended(execution).status for execution in executions} == {"SUCCEEDED"}
    entered = deployment.states_entered
    short, long = (entered(execution).count("Guard: Heartbeat") for execution in executions)
    assert long >= short + MORE_HEARTBEATS - 1 > short
    cheap, dear = (deployment.transitions(execution) for execution in executions)
    assert dear - cheap == long - short
    assert [deployment.calls(execution) - 2 for execution in executions] == [short, long]


def test_a_heartbeat_is_two_requests(deployment: Deployment) -> None:
    contested = ContestedLock(deployment)
    execution = contested.start_inside("KeepAliveChain", seconds=60)
    client = FaultyTable(deployment.aws.client("dynamodb"))
    table = LockTable(client, deployment.table_name)  # type: ignore[arg-type]  # counts, passes on
    store = Operations(LockContext(table=table))
    acquisition = AcquireRequest(
        lock_name=contested.lock,
        owner_id=contested.holder().owner_id,
        lease_ms=KEEP_ALIVE_LEASE_SECONDS * 1000,
        execution_arn=execution,
    )
    heartbeat = KeepAliveRequest(
        acquisition=acquisition, execution_arn=execution, task_token=f"{INTERVAL_SECONDS} s"
    )
    assert store.keep_alive(heartbeat) is KeepAliveOutcome.RENEWED
    assert client.calls == ["update_item", "update_item"]
    contested.stop(execution)
