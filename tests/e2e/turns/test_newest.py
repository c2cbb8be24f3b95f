"""Many deployments wait, and then one more: it runs, and the others learn that they need not."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.config import Config

from fairlock import LockClient
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.turns.stack import FALLBACK_SECONDS

WAITING = int(os.environ.get("NEWEST_WORKFLOWS", "5"))
NEWEST = 1_000
_AT_ONCE = 4


@pytest.fixture
def lock() -> str:
    """A lock of which no other test knows."""
    return f"deploy-{uuid.uuid4()}"


def all_wait(deployment: Deployment, lock: str, form: str = "NewestQueue") -> list[str]:
    """Deployments that wait, the newest last, in an order that is not that of their versions."""
    versions = [*range(WAITING, 0, -1)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        arns = list(
            pool.map(lambda v: deployment.start(form, {"lock": lock, "version": v}), versions)
        )
    wait_until(lambda: deployment.queue_length(lock) == WAITING)
    arns.append(deployment.start(form, {"lock": lock, "version": NEWEST}))
    wait_until(lambda: deployment.queue_length(lock) == WAITING + 1)
    return arns


def told_after(deployment: Deployment, arns: list[str], began: float) -> str:
    """After how many seconds they went on their way without the lock."""
    entered = (deployment.timeline(arn).entered("Guard: Acquired?") for arn in arns)
    seconds = sorted(at - began for at in entered)
    median, p95 = seconds[len(seconds) // 2], seconds[-1 - len(seconds) // 20]
    return f"learned it after {median:.1f} s (median), {p95:.1f} s (p95)"


def client(deployment: Deployment, **settings: object) -> LockClient:
    aws = deployment.aws
    return LockClient(
        deployment.table_name,
        client=aws.client("dynamodb"),
        **{"stepfunctions": aws.client("stepfunctions"), **settings},
    )


def nobody_answers() -> object:
    """A client for Step Functions whose messages are all lost."""
    config = Config(connect_timeout=0.2, read_timeout=0.2, retries={"total_max_attempts": 1})
    return boto3.client(
        "stepfunctions",
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=config,
    )


@pytest.mark.parametrize("how", ["told", "all messages lost"])
def test_the_newest_runs_and_all_others_learn_it_when_told_or_when_they_ask(
    deployment: Deployment, lock: str, how: str, record_property: Callable[[str, object], None]
) -> None:
    lost = {} if how == "told" else {"stepfunctions": nobody_answers()}
    with client(deployment, **lost) as locks:
        holder = locks.acquire(lock)
        arns = all_wait(deployment, lock)
        began = time.time()
        holder.release()
        outputs = [deployment.ended(arn).output for arn in arns]
    assert outputs == ["superseded"] * WAITING + ["ran"]
    assert (deployment.waiters(lock), deployment.state(lock).newest) == ([], NEWEST)
    told = told_after(deployment, arns[:-1], began)
    text = f"{WAITING} deployments wait, and one more, {how}: the others {told}"
    record_property("figures", f"{text}; fallback period {FALLBACK_SECONDS} s")


def test_a_client_and_workflows_supersede_each_other(deployment: Deployment, lock: str) -> None:
    older = {"lock": lock, "version": 1}
    with client(deployment) as locks, locks.hold(lock, only_newest=5):
        assert deployment.run("NewestQueue", older).output == "superseded"
        assert deployment.run("NewestPoll", older).output == "superseded"
        failed = deployment.run("NewestFails", older)
    assert (failed.status, failed.error) == ("FAILED", "Superseded")
    assert failed.cause == f"lock {lock}: version 1 is superseded, 5 was granted the lock"
    assert deployment.run("NewestPoll", {"lock": lock, "version": 6}).output == "ran"
    assert deployment.state(lock).newest == 6
    assert deployment.state(lock).held == 0


def test_by_time_the_later_execution_supersedes(deployment: Deployment, lock: str) -> None:
    with client(deployment) as locks:
        holder = locks.acquire(lock)
        first = deployment.start("NewestByTime", {"lock": lock})
        wait_until(lambda: deployment.queue_length(lock) == 1)
        second = deployment.start("NewestByTime", {"lock": lock})
        wait_until(lambda: deployment.queue_length(lock) == 2)
        holder.release()
    outputs = [deployment.ended(arn).output for arn in (first, second)]
    assert outputs == ["superseded", "ran"]


def test_a_stopped_newest_stops_no_one(deployment: Deployment, lock: str) -> None:
    with client(deployment) as locks:
        holder = locks.acquire(lock)
        older = deployment.start("NewestQueue", {"lock": lock, "version": 1})
        newest = deployment.start("NewestQueue", {"lock": lock, "version": 2})
        wait_until(lambda: deployment.queue_length(lock) == 2)
        deployment.stop(newest)
        holder.release()
    assert deployment.ended(older).output == "ran"
    assert deployment.state(lock).newest == 1
