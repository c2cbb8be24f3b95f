"""Guards on AWS: every form, every way to wait, permits, a map, many machines and a herd."""

from __future__ import annotations

import base64
import itertools
import json
import statistics
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.e2e.deployment import Ended, most_inside, wait_until
from tests.e2e.locks import ContestedLock, QueuedLock
from tests.e2e.optimistic.test_updates import DEEPEST, EVERY_TYPE, nested, own_attributes
from tests.e2e.optimistic.test_updates import Account as Item
from tests.smoke.account import (
    SERVICE,
    TOKEN_IN_MAP,
    TOKEN_IN_MAP_BY_PATH,
    UPDATES,
    WATCHING,
    Account,
)
from tests.smoke.conftest import LONG_SECONDS, in_parallel, outputs
from tests.smoke.separate_stacks import WATCHED
from tests.smoke.stack import POLLS_SECONDS, SHORT_FALLBACK_SECONDS, WAITS_SECONDS

# Case 2: guards around every kind of task, in machines of both query languages.


@pytest.mark.parametrize("machine", ["FormsPath", "FormsJsonata"])
def test_guards_of_every_form_work_in_one_machine(account: Account, machine: str) -> None:
    """Decides whether AWS accepts and runs guards around a task, chain, Choice, Parallel, guard."""
    workflows = account.workflows
    execution = workflows.start(machine, {"a": [1]})
    assert outputs(workflows, execution) == [[{"a": [1]}, {"a": [1]}]]
    name = execution.rpartition(":")[2]
    assert [workflows.held(f"{kind}/{name}") for kind in ("form", "inner")] == [0, 0]
    entered = workflows.states_entered(execution)
    guards = [state.partition("Guard: ")[0] for state in entered if state.endswith("Guard: Enter")]
    assert guards == ["Bare", "Chain", "Choice", "Parallel", "Nested"]


# Case 9: Express workflows, polling, a limit of five, `on_timeout`.


LIMIT = 5
SHARING = 6


def test_express_workflows_take_turns_and_so_do_two_runs_of_one(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether a guard works in an Express workflow, which has no task tokens.

    And whether two runs of one name are two owners: AWS may run an asynchronous start twice.
    """
    inputs, named = {"lock": lock.lock, "seconds": 1}, {"name": str(uuid.uuid4())}
    run = partial(account.workflows.run_express, "Express", inputs, **named)
    with ThreadPoolExecutor(2) as pool:
        ends = [each.result() for each in [pool.submit(run) for _ in range(2)]]
    assert [end.status for end in ends] == ["SUCCEEDED"] * 2
    assert most_inside(end.output for end in ends) == 1
    assert lock.held() == 0


def test_a_limit_of_five_lets_five_in(account: Account, lock: ContestedLock) -> None:
    """Decides whether a limit that JSONata computes arrives as a number, and holds."""
    executions = [lock.start("Holds", seconds=3, limit=LIMIT) for _ in range(SHARING)]
    most = most_inside(outputs(account.workflows, *executions))
    account.tell(f"limit {LIMIT}: {most} of {SHARING} were inside at once")
    least = 2 if account.is_embedded else LIMIT  # a cold start may take as long as the work
    assert least <= most <= LIMIT


def test_polling_ends_on_time_and_goes_the_other_way(account: Account, taken: QueuedLock) -> None:
    """Decides whether a polling guard leaves for `on_timeout` with its input, on time."""
    inputs = {"lock": taken.lock, "seconds": 0}
    execution = account.workflows.start("Polls", inputs)
    assert outputs(account.workflows, execution) == [{"later": inputs}]
    waited = account.workflows.waited(execution)
    account.tell(f"polling, max_wait of {POLLS_SECONDS} s: gave up after {waited:.2f} s")
    assert POLLS_SECONDS <= waited < POLLS_SECONDS + account.sizes["delay_seconds"]
    taken.release()
    [span] = outputs(account.workflows, account.workflows.start("Polls", inputs))
    assert span["began_ms"] <= span["ended_ms"]


# Case 3: what a waiter in the queue gets when its fallback periods go by.


PERIODS = 2


def test_a_push_after_two_fallback_periods_wakes_the_waiter_and_a_longer_wait_ends_on_time(
    account: Account, taken: QueuedLock
) -> None:
    """Decides whether a task that is repeated after States.Timeout gets a task token that counts.

    And whether `max_wait` holds to two seconds.
    """
    workflows, given_up = account.workflows, QueuedLock(account.workflows)
    pushed, gives_up = taken.start("Waits"), given_up.start("Waits")
    wait_until(
        lambda: workflows.calls(pushed) > PERIODS,
        seconds=(PERIODS + 1) * SHORT_FALLBACK_SECONDS + account.sizes["delay_seconds"],
    )
    released_at = taken.release()
    late = taken.began(pushed) - released_at
    account.tell(f"pushed after {PERIODS} fallback periods, {late:.2f} s after the release")
    assert 0 <= late < account.sizes["delay_seconds"]
    events = [event["type"] for event in workflows.events(pushed)]
    assert events.count("TaskTimedOut") == PERIODS

    end = given_up.ended(gives_up)
    waited = workflows.waited(gives_up)
    account.tell(f"max_wait of {WAITS_SECONDS} s took {waited:.2f} s")
    assert (end.status, end.error) == ("FAILED", "LockWaitTimeout")
    assert abs(waited - WAITS_SECONDS) <= account.sizes["miss_seconds"]
    assert given_up.waiters() == []


# Case 4: the heartbeat beside the work.


HEARTBEATS = 3
LONG_RESULT = "x" * 30_000
"""Carried through the cause of an error, which has room for 32,768 characters."""


def test_heartbeats_renew_the_lease_and_end_with_the_work(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether SendTaskSuccess ends a heartbeat's state when the work beside it ends."""
    seconds = HEARTBEATS * account.sizes["interval_seconds"] + 1
    execution = lock.start("KeptAlive", seconds=seconds)
    [span] = outputs(account.workflows, execution)
    heartbeats = len(account.workflows.entries(execution, "Guard: Heartbeat"))
    lag = account.workflows.stopped_at(execution) - span["ended_ms"] / 1000
    account.tell(f"{heartbeats} heartbeats in {seconds} s; ended {lag:.2f} s after the work")
    assert heartbeats >= HEARTBEATS
    assert lag < account.sizes["delay_seconds"]
    assert lock.held() == 0


def start_and_see_it_work(lock: ContestedLock, *, seconds: int) -> str:
    execution = lock.start("KeptAlive", seconds=seconds)
    wait_until(lambda: "Stay" in lock.deployment.states_entered(execution))
    return execution


def test_a_lock_that_is_lost_stops_the_work(account: Account, lock: ContestedLock) -> None:
    """Decides whether SendTaskFailure stops the branch of the work, by the name LockLost."""
    execution = start_and_see_it_work(lock, seconds=300)
    account.workflows.force_release(lock.lock)
    lost_at = time.time()
    end = lock.ended(execution)
    seconds = account.workflows.stopped_at(execution) - lost_at
    account.tell(f"lock lost: the work was stopped after {seconds:.2f} s")
    assert (end.status, end.error) == ("FAILED", "LockLost")
    assert seconds < account.sizes["interval_seconds"] + account.sizes["delay_seconds"]


def test_a_result_survives_a_release_that_fails_for_good(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether the cause of an error carries a result of 30,000 characters to its Catch."""
    execution = lock.start("NotReleased", **{"return": LONG_RESULT})
    assert outputs(account.workflows, execution) == [LONG_RESULT]
    assert "Guard: Not released" in account.workflows.states_entered(execution)


def test_a_redriven_execution_takes_its_lock_again(account: Account, lock: ContestedLock) -> None:
    """Decides whether a redrive repeats the heartbeat, and the reaper tells it from the first run.

    Also whether DescribeExecution counts redrives as the protocol assumes.
    """
    execution = start_and_see_it_work(lock, seconds=HEARTBEATS * account.sizes["interval_seconds"])
    lock.stop(execution)
    wait_until(lambda: lock.holders() == [])
    account.workflows.redrive(execution)
    redriven_at = time.time()
    lock.await_holder(execution)
    account.tell(f"redriven: held its lock again after {time.time() - redriven_at:.2f} s")
    outputs(account.workflows, execution)
    assert lock.holders() == []


# Case 11: one lock with as many permits as are allowed.


WORK_SECONDS = 1


def test_a_lock_with_many_permits_keeps_its_limit_while_work_takes_a_second(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether DynamoDB throttles one item with 100 permits and work of a second."""
    workflows, permits = account.workflows, account.sizes["permits"]
    # One after the other, the first ones would have ended before the last ones begin.
    executions = in_parallel(
        account,
        lambda _: lock.start("Holds", seconds=WORK_SECONDS, limit=permits),
        range(account.sizes["sharing"]),
    )
    spans = outputs(workflows, *executions)
    most = most_inside(spans)
    began = min(span["began_ms"] for span in spans)
    seconds = (max(span["ended_ms"] for span in spans) - began) / 1000
    events = [event for each in executions for event in workflows.events(each)]
    failures = [event.get("taskFailedEventDetails") for event in events]
    failed = Counter(failure["error"] for failure in failures if failure)
    causes = {failure["error"]: failure.get("cause", "")[:300] for failure in failures if failure}
    account.tell(
        f"{permits} permits, {len(spans)} executions in {seconds:.1f} s, "
        f"at most {most} inside, calls that failed: {dict(failed)} {causes}"
    )
    assert 1 < most <= permits
    assert lock.held() == 0
    assert failed["LockStoreUnavailable"] == 0


# Case 7: guards inside a Map, and inside and around a Distributed Map.


@pytest.mark.parametrize("machine", ["GuardInMap", "GuardInDistributedMap"])
def test_iterations_take_turns(account: Account, lock: ContestedLock, machine: str) -> None:
    """Decides whether many iterations, or child executions, get one lock one after the other."""
    items = [{"lock": lock.lock, "seconds": WORK_SECONDS}] * account.sizes["iterations"]
    execution = account.workflows.start(machine, {"items": items})
    [spans] = outputs(account.workflows, execution)
    seconds = account.workflows.seconds(execution)
    account.tell(f"{machine}: {len(spans)} iterations on one lock took {seconds:.1f} s")
    assert (len(spans), most_inside(spans)) == (account.sizes["iterations"], 1)
    assert lock.held() == 0


@pytest.mark.parametrize("stack", [TOKEN_IN_MAP, TOKEN_IN_MAP_BY_PATH])
def test_children_of_a_distributed_map_are_given_the_fencing_token(
    account: Account, lock: ContestedLock, stack: str
) -> None:
    """Decides whether the ItemSelector of a Distributed Map sees the variable of a guard around it.

    AWS's documentation leaves it open, so each machine has a stack of its own: AWS may refuse it.
    """
    with account.created(stack, service=SERVICE) as workflows:
        ended = workflows.run("DistributedMapInGuard", {"lock": lock.lock, "items": [1, 2]})
        assert ended.status == "SUCCEEDED", ended
        token = workflows.state(lock.lock).fencing_token
        expected: list[Any] = [{"item": item, "fencing_token": token} for item in (1, 2)]
        assert ended.output == expected


# Case 12: a herd of workflows on one lock.


def test_each_of_a_herd_is_woken_by_a_push(account: Account, taken: QueuedLock) -> None:
    """Decides whether pushes reach all waiters of a herd, or some only their fallback poll."""
    workflows, herd, executions = account.workflows, account.sizes["herd"], list[str]()
    for number in range(herd):
        executions.append(taken.start("Holds"))
        if account.is_embedded:  # else each of them is a cold start of this machine
            taken.await_waiters(number)
    taken.await_waiters(herd, seconds=LONG_SECONDS)
    taken.release()
    spans = sorted(outputs(workflows, *executions), key=lambda span: float(span["began_ms"]))
    gaps = [after["began_ms"] - before["ended_ms"] for before, after in itertools.pairwise(spans)]
    events = [event for each in executions for event in workflows.events(each)]
    polls = sum(event["type"] == "TaskTimedOut" for event in events)
    calls = sum(event["type"] == "TaskScheduled" for event in events)
    account.tell(
        f"herd of {len(executions)}: hand-off median {statistics.median(gaps):.0f} ms, "
        f"longest {max(gaps):.0f} ms, {calls} calls, {polls} fallback polls"
    )
    assert most_inside(spans) == 1
    assert polls == 0


# Case 19: a service that watches more machines than one rule takes.


def test_a_hundred_watched_machines_fit_the_rules_and_the_policy_of_the_queue(
    account: Account,
) -> None:
    """Decides whether SQS and EventBridge take the policy and the patterns of many machines.

    SQS documents a quota of ten conditions for a policy. Whether each value of one counts is not
    said: this policy has three, one of them with twenty values.
    """
    queue = account.workflows.outputs[WATCHING]["ReapQueueUrl"]
    found = account.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["Policy"])
    policy = found["Attributes"]["Policy"]
    [rules] = [
        each["Condition"]["ArnNotEquals"]["aws:SourceArn"]
        for each in json.loads(policy)["Statement"]
        if "ArnNotEquals" in each.get("Condition", {})
    ]
    patterns = [
        account.client("events").describe_rule(Name=rule.rpartition("/")[2])["EventPattern"]
        for rule in rules
    ]
    named = {
        arn
        for pattern in patterns
        for arn in json.loads(pattern)["detail"]["stateMachineArn"]
        if isinstance(arn, str)
    }
    account.tell(f"{len(rules)} rules, a policy of {len(policy.encode())} bytes")
    assert len(named) == WATCHED


# Case 5: `OptimisticUpdate` with all that an item may have in it.

BYTES = base64.b64encode(b"\x00\xff").decode()
LARGE = 120_000
"""Twice this, the input and the item, is just below the 256 KiB of a payload."""
TOO_LARGE = 200_000


@pytest.fixture
def item(account: Account) -> Item:
    return Item(
        deployment=account.workflows,
        name=f"smoke-{uuid.uuid4()}",
        table_name=account.output("AccountsTable", stack=UPDATES),
        client=account.client("dynamodb"),
    )


def test_every_type_of_attribute_is_written_and_read_unchanged(item: Item) -> None:
    """Decides whether Step Functions spells attribute types as assumed, 32 levels deep."""
    assert set(EVERY_TYPE["deep"]) == set(nested(DEEPEST))
    every_type = {**EVERY_TYPE, "bytes": {"B": BYTES}, "many_bytes": {"BS": [BYTES]}}
    made = item.replace(new=every_type)
    assert made.status == "SUCCEEDED", made
    stored = {
        **EVERY_TYPE,
        "bytes": {"B": base64.b64decode(BYTES)},
        "many_bytes": {"BS": [base64.b64decode(BYTES)]},
    }
    assert own_attributes(item.item()) == stored
    read = item.replace(only_read=True)
    assert own_attributes(read.output["item"]) == every_type
    deleted = item.replace(new=None)
    assert (deleted.status, item.item()) == ("SUCCEEDED", {})


def test_an_item_of_almost_128_kib_is_replaced(account: Account, item: Item) -> None:
    """Decides whether JSONata translates an item of 120,000 characters within its time limit."""
    for letter in "xy":
        replaced = item.replace(new={"text": {"S": letter * LARGE}})
        assert replaced.status == "SUCCEEDED", replaced.error
    assert item.item()["text"] == {"S": "y" * LARGE}
    account.needs_aws("it does not enforce the size of payloads")
    assert item.replace(new={"text": {"S": "z" * TOO_LARGE}}).error == "States.DataLimitExceeded"
    assert item.item()["text"] == {"S": "y" * LARGE}


def test_of_concurrent_updates_none_is_lost_and_a_last_try_is_a_conflict(item: Item) -> None:
    """Decides whether a cancelled transaction is told by the name that is caught and repeated."""
    item.open(100)
    assert [each.status for each in item.at_once("Debit", 10, 20, 30)] == ["SUCCEEDED"] * 3
    assert item.balance_and_version() == ("40", "3")
    once: list[Ended] = item.at_once("DebitOnce", 1, 2)
    assert sorted(str(each.error) for each in once) == ["None", "VersionConflict"]
    assert item.balance_and_version()[1] == "4"
