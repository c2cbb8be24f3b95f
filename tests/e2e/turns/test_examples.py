"""The examples of docs/turns.md, by a guard and by a client in one lock."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from fairlock import LockClient, LockLost, LockWaitTimeout
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.turns.stack import MAX_HOLD_SECONDS, example, run_example
from tests.support.documents import Block

_BUILDS = count(2_000)
"""Of deployments, above those of the document; each test goes on where another one has ended."""


@pytest.fixture(scope="module")
def locks(deployment: Deployment) -> Iterator[LockClient]:
    dynamodb, workflows = (deployment.aws.client(name) for name in ("dynamodb", "stepfunctions"))
    with LockClient(deployment.table_name, client=dynamodb, stepfunctions=workflows) as locks:
        yield locks


def test_a_reader_and_a_writer_of_the_document_beside_workflows(
    deployment: Deployment, locks: LockClient
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

    run_example(example('hold("pages/7", shared=True)'), locks=locks, report=report, export=export)
    assert deployment.held("pages/7") == 0


def test_both_accounts_of_the_document_beside_its_workflow(
    deployment: Deployment, locks: LockClient
) -> None:
    started: list[str] = []

    def export(_: int) -> None:
        if not started:
            transfer = {"from": "3", "to": "7", "return": "paid"}
            started.append(deployment.start("TransferExample", transfer))
            wait_until(lambda: deployment.queue_length("accounts/3") == 1)

    run_example(example('hold_all(["accounts/7", "accounts/3"]'), locks=locks, export=export)
    assert deployment.ended(started[0]).output == "paid"
    assert [deployment.held(name) for name in ("accounts/3", "accounts/7")] == [0, 0]


def test_the_builds_of_the_document_supersede_each_other(
    deployment: Deployment, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    newer: list[str] = []

    def export(_: int) -> None:
        older = deployment.start("DeployExample", {"build_number": 1041})
        assert deployment.ended(older).status == "SUCCEEDED"
        assert "ANewerBuildRuns" in deployment.states_entered(older)
        newer.append(deployment.start("DeployExample", {"build_number": 1043, "return": "up"}))
        wait_until(lambda: deployment.queue_length("deploy/shop") == 1)

    program = example("except Superseded as error")
    run_example(program, locks=locks, export=export)
    assert deployment.ended(newer[0]).output == "up"
    run_example(program, locks=locks, export=export)
    assert capsys.readouterr().out == "build 1042 gives way to build 1043\n"


def test_a_pause_of_the_document_holds_a_workflow_and_a_client_back_until_resume(
    deployment: Deployment, locks: LockClient, record_property: Callable[[str, object], None]
) -> None:
    block = example("locks.set_limit(")
    limit, pause, resume = (ast.unparse(line) for line in ast.parse(block.code).body)
    run_example(_block(limit), locks=locks)
    vendor = [locks.acquire("vendor", limit=10) for _ in range(3)]
    assert locks.try_acquire("vendor", limit=10) is None
    for lock in vendor:
        lock.release()

    run_example(_block(pause), locks=locks)
    with pytest.raises(LockWaitTimeout, match="freeze until Monday"):
        locks.acquire("deploy/shop", max_wait=0)
    waits = {"build_number": next(_BUILDS), "return": "up"}
    execution = deployment.start("DeployExample", waits)
    wait_until(lambda: deployment.queue_length("deploy/shop") == 1)
    began = time.time()
    run_example(_block(resume), locks=locks)
    assert deployment.ended(execution).output == "up"
    told = deployment.timeline(execution).entered("Deploy: Acquired?")
    text = f"a workflow has the lock {1000 * (told - began):.0f} ms after `resume` was called"
    record_property("figures", text)


def _block(code: str) -> Block:
    return Block("docs/turns.md", 1, "python", code)


def test_a_leader_of_the_document_makes_a_workflow_wait_until_its_work_is_done(
    deployment: Deployment, locks: LockClient
) -> None:
    written: list[int] = []
    waits: list[str] = []

    def write(page: int, *, fencing_token: int) -> None:
        if not waits:
            task = {"lock": "exporter", "writes": True, "return": "ran"}
            waits.append(deployment.start("TurnReads", task))
            wait_until(lambda: deployment.queue_length("exporter") == 1)
        seen = locks.describe("exporter")
        assert seen is not None
        [leader] = seen.holders
        assert (leader.owner_name, leader.fencing_token) == ("task-1", fencing_token)
        assert leader.data == {"url": "http://10.0.0.7"}
        written.append(page)

    run_example(example("locks.lead("), locks=locks, pages=range(3), write=write)
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
    ) as locks:
        with pytest.raises(LockLost, match="its max_hold of 4 s is over"):
            run_example(shorter, locks=locks, pages=["a", "b"], write=write)
        assert ended == ["SUCCEEDED"], "it ran while the body went on, and there was no second page"
    text = f"a workflow had waited and run {time.time() - began[0]:.1f} s after the first page"
    record_property("figures", text)
    assert deployment.held("nightly") == 0


def test_the_guard_of_the_document_ends_its_task_and_a_client_is_next(
    deployment: Deployment, locks: LockClient, record_property: Callable[[str, object], None]
) -> None:
    execution = deployment.start("NightlyImportExample", {"sleep": 10 * MAX_HOLD_SECONDS})
    wait_until(lambda: deployment.held("nightly") == 1)
    began = time.time()
    with locks.hold("nightly", max_wait=60):
        record_property("figures", f"a client has the lock after {time.time() - began:.1f} s")
    failed = deployment.ended(execution)
    assert (failed.status, failed.error) == ("FAILED", "States.Timeout")
    assert deployment.held("nightly") == 0
