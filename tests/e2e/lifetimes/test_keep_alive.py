"""`keep_alive`: what leaves the guard, when it renews, and what happens to work that overruns."""

from __future__ import annotations

import json
import statistics
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.protocol.lease_time import over_at_ms, stored_end_ms
from fairlock.protocol.model import AcquireRequest, KeepAliveRequest
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.e2e.deployment import Deployment, Ended
from tests.e2e.guard.test_guard import VALUES
from tests.e2e.known_failures.lock import most_inside
from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES, TIMES, ContestedLock
from tests.e2e.lifetimes.dying_workflows import LONG_INTERVAL_SECONDS, UNTOLD_INTERVAL_SECONDS
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
    KEEP_ALIVE_LEASE_SECONDS,
    PLAIN_LEASE_SECONDS,
)
from tests.e2e.scenario_runs import ScenarioRuns
from tests.support.faulty_table import FaultyTable
from tests.support.operations import Operations

# A guard with keep_alive passes on data and errors as one without it does, and takes turns.

AT_ONCE = 4
"""Each is an execution environment of three functions."""


def run_all(deployment: Deployment, machine: str, inputs: list[dict[str, Any]]) -> list[Ended]:
    """Runs a machine once for each input, each with a lock of its own unless it names one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        locked = [{"lock": f"kept-alive/{uuid.uuid4()}", **each} for each in inputs]
        return list(pool.map(lambda each: deployment.run(machine, each), locked))


@pytest.mark.parametrize("machine", ["KeepAlive", "KeepAlivePath", "PlainTask"])
def test_what_the_task_returns_leaves_the_guard_unchanged(
    deployment: Deployment, machine: str
) -> None:
    returned = run_all(deployment, machine, [{"return": value} for value in VALUES])
    assert returned == [Ended(status="SUCCEEDED", output=value) for value in VALUES]


@pytest.mark.parametrize("machine", ["KeepAlive", "KeepAlivePath", "PlainTask"])
def test_what_enters_the_guard_reaches_the_task_unchanged(
    deployment: Deployment, machine: str
) -> None:
    locks = [ContestedLock(deployment) for _ in VALUES]
    inputs = [
        {"lock": contested.lock, "given": value}
        for contested, value in zip(locks, VALUES, strict=True)
    ]
    echoed = run_all(deployment, machine, inputs)
    assert echoed == [Ended(status="SUCCEEDED", output=each) for each in inputs]
    assert [contested.holders() for contested in locks] == [[]] * len(locks)


@pytest.mark.parametrize("machine", ["KeepAlive", "KeepAlivePath", "KeepAliveDecides", "PlainTask"])
def test_the_tasks_error_keeps_its_name_and_cause_and_the_lock_is_free(
    deployment: Deployment, machine: str
) -> None:
    contested = ContestedLock(deployment)
    failing = {"lock": contested.lock, "raise": "CardDeclined", "message": "no funds"}
    [ended] = run_all(deployment, machine, [failing])
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")
    assert json.loads(ended.cause or "")["errorMessage"] == "no funds"
    assert contested.holders() == []


def test_a_chain_may_succeed_fail_and_handle_errors_in_the_guard(deployment: Deployment) -> None:
    ways = [{"way": "succeed"}, {"way": "fail"}, {"raise": "Known"}]
    assert run_all(deployment, "KeepAliveDecides", ways) == [
        Ended(status="SUCCEEDED", output={"after": "succeeded"}),
        Ended(status="FAILED", error="Refused", cause="by choice"),
        Ended(status="SUCCEEDED", output={"after": "handled"}),
    ]


def test_the_task_is_given_the_fencing_token_of_its_grant(deployment: Deployment) -> None:
    [ended] = run_all(deployment, "KeepAliveToken", [{}])
    assert ended.output["token"] > 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("machine", "limit"), [("KeepAliveChain", 3), ("KeepAlivePoll", 1), ("PlainPoll", 1)]
)
def test_no_more_are_inside_than_the_limit(
    deployment: Deployment, machine: str, limit: int
) -> None:
    lock = {"lock": f"kept-alive/{uuid.uuid4()}", "limit": limit, "seconds": 1}
    ended = run_all(deployment, machine, [lock] * (AT_ONCE if limit > 1 else 2))
    assert most_inside(each.output for each in ended) == limit


@pytest.mark.parametrize("machine", ["KeepAliveMap", "PlainMap"])
def test_iterations_of_a_map_take_turns(deployment: Deployment, machine: str) -> None:
    [ended] = run_all(deployment, machine, [{"seconds": 1}])
    assert (len(ended.output), most_inside(ended.output)) == (3, 1)


def test_nested_guards_hold_two_locks_and_release_both(deployment: Deployment) -> None:
    contested = ContestedLock(deployment)
    locks = [f"outer/{contested.lock}", f"inner/{contested.lock}"]
    execution = contested.start("KeepAliveNested", seconds=2)
    for lock in locks:
        contested.await_holder(execution, lock=lock)
    assert contested.ended(execution).status == "SUCCEEDED"
    assert [contested.holders(lock) for lock in locks] == [[], []]


def test_a_wait_that_is_over_goes_another_way_with_its_input(deployment: Deployment) -> None:
    contested = ContestedLock(deployment)
    contested.ask(owner_name="a test")
    execution = contested.start("KeepAliveElsewhere", seconds=0)
    given = {"later": {"lock": contested.lock, "seconds": 0}}
    assert contested.ended(execution) == Ended(status="SUCCEEDED", output=given)
    assert (contested.holders(), contested.waiters()) == (["a test"], [])


# What keep_alive costs: no time after the work, and a call and two requests for each interval.

LAGS_AT_ONCE = 2
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
    with ThreadPoolExecutor(LAGS_AT_ONCE) as pool:
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
    untold = lags(deployment, "KeptAliveUntold", times=LAGS_AT_ONCE)
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
