"""Workflows share locks, and hold two at once, beside each other and beside Python clients."""

from __future__ import annotations

import ast
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import boto3
import pytest
from botocore.config import Config

from fairlock import LockClient, LockLost, LockWaitTimeout
from tests.e2e.deployment import Deployment, most_inside, wait_until
from tests.e2e.turns.stack import (
    FALLBACK_SECONDS,
    GIVES_UP_SECONDS,
    MAX_HOLD_SECONDS,
    example,
    run_example,
)
from tests.support.checkout import Block


@pytest.fixture
def names() -> tuple[str, str]:
    """Two locks that no other test has. The last letters are in another order in UTF-16."""
    of_this_test = uuid.uuid4()
    return f"{of_this_test}/\uff5e", f"{of_this_test}/😀"


@pytest.fixture
def locks(deployment: Deployment) -> Iterator[LockClient]:
    dynamodb, workflows = (deployment.aws.client(name) for name in ("dynamodb", "stepfunctions"))
    with LockClient(deployment.table_name, client=dynamodb, stepfunctions=workflows) as locks:
        yield locks


def test_workflows_and_a_client_read_at_the_same_time_and_a_writer_is_alone(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    lock = names[0]
    with locks.hold(lock, shared=True):
        read = deployment.run("TurnReads", {"lock": lock, "writes": False, "return": 1})
        assert (read.status, read.output) == ("SUCCEEDED", 1)
        writer = deployment.start("TurnReads", {"lock": lock, "writes": True, "return": 2})
        wait_until(lambda: deployment.queue_length(lock) == 1)
        assert locks.try_acquire(lock, shared=True) is None, "the writer waits"
        late = deployment.start("TurnReads", {"lock": lock, "writes": False, "return": 3})
        wait_until(lambda: deployment.queue_length(lock) == 2)
    assert [deployment.ended(each).output for each in (writer, late)] == [2, 3]
    assert deployment.held(lock) == 0


@pytest.mark.parametrize("form", ["TurnBoth", "TurnBothPolls"])
def test_workflows_with_crossed_lists_take_turns_and_leave_nothing(
    deployment: Deployment, names: tuple[str, str], form: str
) -> None:
    lists = [names, names[::-1]] * 2
    inputs = [{"one": one, "other": other, "sleep": 0.3} for one, other in lists]
    with ThreadPoolExecutor(len(inputs)) as pool:
        ended = list(pool.map(lambda each: deployment.run(form, each), inputs))
    assert [each.status for each in ended] == ["SUCCEEDED"] * len(inputs)
    assert most_inside(each.output for each in ended) == 1
    assert [deployment.held(name) for name in names] == [0, 0]


def test_a_client_with_the_crossed_list_takes_turns_with_them(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    with locks.hold_all(names[::-1], max_wait=60):
        given = {"one": names[0], "other": names[1], "return": 1}
        execution = deployment.start("TurnBoth", given)
        wait_until(lambda: deployment.queue_length(names[0]) == 1)
        assert deployment.queue_length(names[1]) == 0, "it waits for the first of the order"
    assert deployment.ended(execution).output == 1


def test_if_the_second_is_not_free_in_time_both_are_and_the_error_names_the_second(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    first, second = names
    given = {"one": second, "other": first}
    with locks.hold(second):
        elsewhere = deployment.start("TurnBothGivesUp", given)
        fails = deployment.start("TurnBothFails", given)
        assert deployment.ended(elsewhere).output == {"later": given}
        failed = deployment.ended(fails)
        assert (failed.status, failed.error) == ("FAILED", "LockWaitTimeout")
        told = f"was not granted within max_wait of {GIVES_UP_SECONDS} s"
        assert told in (failed.cause or "")
        assert deployment.held(first) == 0
        assert deployment.queue_length(second) == 0
    assert deployment.held(second) == 0


def test_both_leases_are_renewed_beside_the_work(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    given = {"one": names[0], "other": names[1], "sleep": 9}
    execution = deployment.start("TurnBothKeptAlive", given)
    wait_until(lambda: bool((lock := locks.describe(names[1])) and lock.holders))
    assert locks.try_acquire(names[0]) is None
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert [deployment.held(name) for name in names] == [0, 0]
    assert "Guard (2): Heartbeat" in deployment.states_entered(execution)


# The examples of docs/turns.md, by a guard and by a client in one lock.

_BUILDS = count(2_000)
"""Of deployments, above those of the document; each test goes on where another one has ended."""


@pytest.fixture(scope="module")
def shared_locks(deployment: Deployment) -> Iterator[LockClient]:
    dynamodb, workflows = (deployment.aws.client(name) for name in ("dynamodb", "stepfunctions"))
    with LockClient(
        deployment.table_name, client=dynamodb, stepfunctions=workflows
    ) as shared_locks:
        yield shared_locks


def test_a_reader_and_a_writer_of_the_document_beside_workflows(
    deployment: Deployment, shared_locks: LockClient
) -> None:
    written: list[str] = []

    def report(_: int) -> None:
        reader = {"lock": "pages/7", "writes": False, "return": "read"}
        assert deployment.run("TurnReads", reader).output == "read"
        writer = {"lock": "pages/7", "writes": True, "return": "written"}
        written.append(deployment.start("TurnReads", writer))
        wait_until(lambda: deployment.queue_length("pages/7") == 1)

    def export(_: int) -> None:
        assert deployment.ended(written[0]).output == "written", "it waited in front of the client"

    run_example(
        example('hold("pages/7", shared=True)'), locks=shared_locks, report=report, export=export
    )
    assert deployment.held("pages/7") == 0


def test_both_accounts_of_the_document_beside_its_workflow(
    deployment: Deployment, shared_locks: LockClient
) -> None:
    started: list[str] = []

    def export(_: int) -> None:
        if not started:
            transfer = {"from": "3", "to": "7", "return": "paid"}
            started.append(deployment.start("TransferExample", transfer))
            wait_until(lambda: deployment.queue_length("accounts/3") == 1)

    run_example(example('hold_all(["accounts/7", "accounts/3"]'), locks=shared_locks, export=export)
    assert deployment.ended(started[0]).output == "paid"
    assert [deployment.held(name) for name in ("accounts/3", "accounts/7")] == [0, 0]


def test_the_builds_of_the_document_supersede_each_other(
    deployment: Deployment, shared_locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    newer: list[str] = []

    def export(_: int) -> None:
        older = deployment.start("DeployExample", {"build_number": 1041})
        assert deployment.ended(older).status == "SUCCEEDED"
        assert "ANewerBuildRuns" in deployment.states_entered(older)
        newer.append(deployment.start("DeployExample", {"build_number": 1043, "return": "up"}))
        wait_until(lambda: deployment.queue_length("deploy/shop") == 1)

    program = example("except Superseded as error")
    run_example(program, locks=shared_locks, export=export)
    assert deployment.ended(newer[0]).output == "up"
    run_example(program, locks=shared_locks, export=export)
    assert capsys.readouterr().out == "build 1042 gives way to build 1043\n"


def test_a_pause_of_the_document_holds_a_workflow_and_a_client_back_until_resume(
    deployment: Deployment,
    shared_locks: LockClient,
    record_property: Callable[[str, object], None],
) -> None:
    block = example("locks.set_limit(")
    limit, pause, resume = (ast.unparse(line) for line in ast.parse(block.code).body)
    run_example(_block(limit), locks=shared_locks)
    vendor = [shared_locks.acquire("vendor", limit=10) for _ in range(3)]
    assert shared_locks.try_acquire("vendor", limit=10) is None
    for lock in vendor:
        lock.release()

    run_example(_block(pause), locks=shared_locks)
    with pytest.raises(LockWaitTimeout, match="freeze until Monday"):
        shared_locks.acquire("deploy/shop", max_wait=0)
    waits = {"build_number": next(_BUILDS), "return": "up"}
    execution = deployment.start("DeployExample", waits)
    wait_until(lambda: deployment.queue_length("deploy/shop") == 1)
    began = time.time()
    run_example(_block(resume), locks=shared_locks)
    assert deployment.ended(execution).output == "up"
    told = deployment.timeline(execution).entered("Deploy: Acquired?")
    text = f"a workflow has the lock {1000 * (told - began):.0f} ms after `resume` was called"
    record_property("figures", text)


def _block(code: str) -> Block:
    return Block("docs/turns.md", 1, "python", code)


def test_a_leader_of_the_document_makes_a_workflow_wait_until_its_work_is_done(
    deployment: Deployment, shared_locks: LockClient
) -> None:
    written: list[int] = []
    waits: list[str] = []

    def write(page: int, *, fencing_token: int) -> None:
        if not waits:
            task = {"lock": "exporter", "writes": True, "return": "ran"}
            waits.append(deployment.start("TurnReads", task))
            wait_until(lambda: deployment.queue_length("exporter") == 1)
        seen = shared_locks.describe("exporter")
        assert seen is not None
        [leader] = seen.holders
        assert (leader.owner_name, leader.fencing_token) == ("task-1", fencing_token)
        assert leader.data == {"url": "http://10.0.0.7"}
        written.append(page)

    run_example(example("locks.lead("), locks=shared_locks, pages=range(3), write=write)
    assert written == [0, 1, 2]
    assert deployment.ended(waits[0]).output == "ran"


def test_a_client_of_the_document_gives_way_when_its_longest_hold_is_over(
    deployment: Deployment, record_property: Callable[[str, object], None]
) -> None:
    """The workflow sleeps in the queue until the client's `max_hold` is over; the body goes on."""
    block = example('hold("nightly", max_hold=600)')
    shorter = _block(block.code.replace("600", "4"))
    ended: list[str] = []
    began: list[float] = []

    def write(_: int, *, fencing_token: int) -> None:
        assert fencing_token
        began.append(time.time())
        execution = deployment.start("NightlyImportExample", {"return": "imported"})
        ended.append(deployment.ended(execution).status)

    dynamodb, workflows = (deployment.aws.client(name) for name in ("dynamodb", "stepfunctions"))
    with LockClient(
        deployment.table_name, client=dynamodb, stepfunctions=workflows, lease=2
    ) as shared_locks:
        with pytest.raises(LockLost, match="its max_hold of 4 s is over"):
            run_example(shorter, locks=shared_locks, pages=["a", "b"], write=write)
        assert ended == ["SUCCEEDED"], "it ran while the body went on, and there was no second page"
    text = f"a workflow had waited and run {time.time() - began[0]:.1f} s after the first page"
    record_property("figures", text)
    assert deployment.held("nightly") == 0


def test_the_guard_of_the_document_ends_its_task_and_a_client_is_next(
    deployment: Deployment,
    shared_locks: LockClient,
    record_property: Callable[[str, object], None],
) -> None:
    execution = deployment.start("NightlyImportExample", {"sleep": 10 * MAX_HOLD_SECONDS})
    wait_until(lambda: deployment.held("nightly") == 1)
    began = time.time()
    with shared_locks.hold("nightly", max_wait=60):
        record_property("figures", f"a client has the lock after {time.time() - began:.1f} s")
    failed = deployment.ended(execution)
    assert (failed.status, failed.error) == ("FAILED", "States.Timeout")
    assert deployment.held("nightly") == 0


# Many deployments wait, and then one more: it runs, and the others learn that they need not.

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
