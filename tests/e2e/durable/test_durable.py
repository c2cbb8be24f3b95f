"""Durable functions in the deployed whole: turns, ends, sleeps and waits.

`make test` plays each once. `make durable` plays them often and tells the figures.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from fairlock import LockClient
from tests.e2e.conftest import Tell
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.durable.executions import TIMES, DurableLock, take, without_events
from tests.e2e.durable.worker.inside import plain
from tests.support.checkout import ROOT

IS_LONG: Final = TIMES > 1
DURABLE, WORKFLOWS, CLIENTS = (30, 10, 10) if IS_LONG else (3, 1, 1)
LEASE_SECONDS: Final = 2
TOLERANCE_SECONDS: Final = 2
SLACK_SECONDS: Final = 2 if IS_LONG else 20
"""`make test` has more processes than the machine has cores."""


@pytest.fixture
def lock(deployment: Deployment, tmp_path: Path) -> DurableLock:
    return DurableLock(deployment, tmp_path)


def test_durable_functions_workflows_and_clients_take_turns_in_the_order_of_entry(
    lock: DurableLock, tell: Tell
) -> None:
    session: Any = SimpleNamespace(client=lambda name, **_: lock.deployment.aws.client(name))
    client = LockClient(lock.deployment.table_name, session=session)
    first = lock.start_inside("first", stays=True)
    names, arns, workflows, threads = ["first"], [], [], []
    for number in range(DURABLE):
        names.append(f"durable-{number}")
        arns.append(lock.start_behind(names[-1]))
        if number < WORKFLOWS:
            names.append(f"workflow-{number}")
            workflows.append(lock.deployment.start("BesideDurable", lock.event(names[-1])))
            _await_waiters(lock, len(names) - 1)
        if number < CLIENTS:
            names.append(f"client-{number}")
            threads.append(threading.Thread(target=_hold, args=(client, lock, names[-1])))
            threads[-1].start()
            _await_waiters(lock, len(names) - 1)
    lock.stop(first)
    for arn in arns:
        assert lock.ended(arn, seconds=300)["Status"] == "SUCCEEDED"
    for workflow in workflows:
        assert lock.deployment.ended(workflow).status == "SUCCEEDED"
    for thread in threads:
        thread.join(120)
    client.close()
    notes = [note for note in lock.notes() if note.name != "first"]
    in_turns = [(what, name) for name in names[1:] for what in ("in", "out")]
    assert [(note.what, note.name) for note in notes] == in_turns
    tokens = [note.token for note in notes]
    assert tokens == sorted(tokens)
    assert lock.deployment.held(lock.lock) == 0
    seconds = [
        entry.at - leaving.at
        for leaving, entry in itertools.pairwise(notes)
        if entry.what == "in" and entry.name.startswith("durable")
    ]
    tell("durable functions, hand-off to one of them", seconds)


def _await_waiters(lock: DurableLock, count: int) -> None:
    wait_until(lambda: lock.deployment.queue_length(lock.lock) >= count)


def _hold(client: LockClient, lock: DurableLock, name: str) -> None:
    with client.hold(lock.lock, max_wait=300, lease=60) as held:
        plain(lock.event(name, token=held.fencing_token), None)


OF_THE_BODY: Final = 2
"""Steps: it notes when it comes in and when it leaves."""


def test_the_operations_of_hold_are_those_that_the_page_of_costs_counts(lock: DurableLock) -> None:
    page = (ROOT / "docs" / "costs.md").read_text()
    [alone, more] = (
        int(found)
        for row in ("`hold`, uncontended", "waiting in the queue, more")
        for found in re.findall(rf"^\| {row} \| (\d+) \|", page, re.MULTILINE)
    )
    uncontended = lock.start("alone")
    assert lock.ended(uncontended)["Status"] == "SUCCEEDED"
    assert lock.operations(uncontended) - OF_THE_BODY == alone
    holder = lock.start_inside("holder", stays=True)
    waiter = lock.start_behind("waiter")
    wait_until(lambda: lock.invocations(waiter) == 1)
    lock.stop(holder)
    assert lock.ended(waiter)["Status"] == "SUCCEEDED"
    assert lock.operations(waiter) - OF_THE_BODY == alone + more


@pytest.mark.parametrize(
    ("function", "status"), [("Durable", "STOPPED"), ("TimesOut", "TIMED_OUT")]
)
def test_the_lock_of_an_execution_that_ends_is_reaped(
    lock: DurableLock, tell: Tell, function: str, status: str
) -> None:
    took = []
    for number in range(TIMES):
        arn = lock.start_inside(f"{status}-{number}", function=function, stays=True)
        if status == "STOPPED":
            lock.stop(arn)
        assert lock.ended(arn)["Status"] == status
        ended_at = time.monotonic()
        wait_until(lambda: lock.holders() == [])
        took.append(time.monotonic() - ended_at)
    tell(f"durable functions, {status}, and freed", took)


def test_without_events_the_lock_is_free_after_the_lease(lock: DurableLock, tell: Tell) -> None:
    took = []
    with without_events(lock.deployment, "aws.lambda"):
        for number in range(TIMES):
            arn = lock.start_inside(f"unnoticed-{number}", stays=True, lease=LEASE_SECONDS)
            lock.stop(arn)
            stopped_at = time.monotonic()
            take(lock.deployment, lock.lock)
            took.append(time.monotonic() - stopped_at)
    assert max(took) < LEASE_SECONDS + TOLERANCE_SECONDS + SLACK_SECONDS
    tell(f"durable functions, stopped untold, lease {LEASE_SECONDS} s, taken by the next", took)


def test_a_body_that_outlasts_its_lease_is_not_robbed(lock: DurableLock) -> None:
    sleeper = lock.start_inside("sleeper", lease=1, sleeps=1 + 2 * TOLERANCE_SECONDS)
    knocks = {"lock_name": lock.lock, "owner_id": "knocks-knocks-knocks"}
    while sleeper in lock.holders():
        answer = lock.deployment.invoke("Acquire", **knocks)
        assert not answer["acquired"] or len(lock.notes()) == 2, "the body has not left"
        time.sleep(0.5)
    assert lock.ended(sleeper)["Status"] == "SUCCEEDED"
    came, left = lock.notes()
    assert left.token == came.token
    assert left.at - came.at >= 1 + TOLERANCE_SECONDS


def test_a_callback_that_someone_else_completes_is_no_grant(lock: DurableLock) -> None:
    holder = lock.start_inside("holder", stays=True)
    waiter = lock.start_behind("waiter")
    wait_until(lambda: lock.callbacks(waiter) != [])
    [callback] = lock.callbacks(waiter)
    lock.functions.send_durable_execution_callback_success(CallbackId=callback, Result=b"{}")
    wait_until(lambda: len(lock.callbacks(waiter)) == 2)
    assert lock.holders() == [holder]
    lock.stop(holder)
    assert lock.ended(waiter)["Status"] == "SUCCEEDED"
