"""`keep_alive`: when it renews, and what happens to work that overruns or loses its lock."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fairlock.clock import over_at_ms, stored_end_ms
from tests.e2e.conftest import Tell
from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES, TIMES, ContestedLock
from tests.e2e.lifetimes.keep_alive import (
    CONTENDERS,
    OVERRUN_SECONDS,
    WORK_SECONDS,
    Lost,
    Overrun,
    Redriven,
    lag_seconds,
)
from tests.e2e.lifetimes.stack import (
    INTERVAL_SECONDS,
    LONG_INTERVAL_SECONDS,
    PLAIN_LEASE_SECONDS,
    UNTOLD_INTERVAL_SECONDS,
)
from tests.e2e.scenario_runs import ScenarioRuns

# What keep_alive costs: no time after the work, and a call for each interval.

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


# With keep_alive the work stops when its lock is lost; a redrive does not run it unguarded.


def test_a_lock_that_is_lost_ends_the_work_within_an_interval(
    runs: ScenarioRuns, tell: Tell
) -> None:
    lost: list[Lost] = runs["lock lost"]
    assert {(each.ended.status, each.ended.error) for each in lost} == {("FAILED", "LockLost")}
    assert not any(each.finished for each in lost)
    seconds = [each.seconds for each in lost]
    tell(f"lock lost, kept alive every {INTERVAL_SECONDS} s: until the work stops", seconds)
    assert len(seconds) == ALIKE_TIMES
    assert max(each.heartbeats for each in lost) <= 1, "the next heartbeat finds out"


def test_without_keep_alive_the_work_goes_on_without_the_lock(runs: ScenarioRuns) -> None:
    lost: list[Lost] = runs["lock lost, not kept alive"]
    assert {each.ended.status for each in lost} == {"SUCCEEDED"}
    assert all(each.finished for each in lost)


def test_a_redriven_workflow_takes_its_lock_again_if_it_is_free(
    runs: ScenarioRuns, tell: Tell
) -> None:
    redriven: list[Redriven] = runs["redriven, free"]
    assert [each.holders for each in redriven] == [[each.execution] for each in redriven]
    assert {each.ended.status for each in redriven} == {"SUCCEEDED"}
    assert [(each.finished, each.left) for each in redriven] == [(True, [])] * TIMES
    tell("redriven, lock free: until it is taken again", [each.again_seconds for each in redriven])


def test_a_redriven_workflow_whose_lock_is_taken_ends_with_lock_lost(
    runs: ScenarioRuns, tell: Tell
) -> None:
    redriven: list[Redriven] = runs["redriven, taken"]
    assert {(each.ended.status, each.ended.error) for each in redriven} == {("FAILED", "LockLost")}
    assert [(each.finished, each.left) for each in redriven] == [(False, ["another"])] * ALIKE_TIMES
    seconds = [each.seconds for each in redriven]
    tell(f"redriven, lock taken, interval {LONG_INTERVAL_SECONDS} s: until the work stops", seconds)


def test_a_workflow_that_is_redriven_at_once_holds_its_lock_to_the_end(runs: ScenarioRuns) -> None:
    redriven: list[Redriven] = runs["redriven, not reaped"]
    assert [each.holders for each in redriven] == [[each.execution] for each in redriven]
    assert {each.ended.status for each in redriven} == {"SUCCEEDED"}


def test_without_keep_alive_a_redriven_workflow_works_without_the_lock(runs: ScenarioRuns) -> None:
    redriven: list[Redriven] = runs["redriven, not kept alive"]
    assert {each.ended.status for each in redriven} == {"SUCCEEDED"}
    assert all(each.finished for each in redriven)
    assert all(each.execution not in each.holders for each in redriven)


# Work that takes five times as long as its lease is not robbed, and costs few questions.

SHORTEST_EXTENSION_SECONDS = over_at_ms(stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000)) / 1000


def test_it_is_never_robbed_however_often_others_ask(
    runs: ScenarioRuns, record_property: Callable[[str, object], None]
) -> None:
    overruns: list[Overrun] = runs["overrun"]
    assert len(overruns) == ALIKE_TIMES
    assert not any(each.robbed for each in overruns)
    assert {each.ended.status for each in overruns} == {"SUCCEEDED"}
    refused = [each.refused for each in overruns]
    asked = [each.asked for each in overruns]
    extended = [each.extended for each in overruns]
    record_property(
        "figures",
        f"work of {OVERRUN_SECONDS} s with a lease of {PLAIN_LEASE_SECONDS} s, {CONTENDERS} "
        f"contenders: n = {ALIKE_TIMES}, refused {min(refused)}-{max(refused)} times, "
        f"DescribeExecution median {statistics.median(asked):.0f}, max {max(asked)}, "
        f"extended median {statistics.median(extended):.0f}, max {max(extended)}",
    )
    assert min(refused) > max(asked) + max(extended)
    assert min(extended) >= 2
    for each in overruns:
        most_extensions = each.held_seconds // SHORTEST_EXTENSION_SECONDS + 1
        assert each.extended <= most_extensions
        # Contenders that ask in the same moment are all told, and one of them extends.
        assert each.asked <= most_extensions * CONTENDERS


def test_contenders_that_do_not_ask_rob_it(runs: ScenarioRuns) -> None:
    robbed: list[Overrun] = runs["overrun, robbed"]
    assert all(each.robbed for each in robbed)
