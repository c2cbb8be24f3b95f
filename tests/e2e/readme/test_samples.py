"""The guard and the client of README.md, in this order, over the one deployed service."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import ILockService
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.guard.stack import shared_worker
from tests.support.checkout import blocks

LONGEST_SECONDS: Final = 120
LOCK_NAME: Final = '"customer/7"'

Charge = Callable[..., None]


def sample(word: str) -> str:
    """The one Python block of the README that contains a word."""
    [found] = [
        block.code
        for block in blocks("python")
        if block.document == "README.md" and word in block.code
    ]
    return found


def run_sample(code: str, **names: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the sample uses
    """Runs a block among these names, and returns all names afterwards."""
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - the repository's own example
    return names


def guard_sample(scope: Construct, construct_id: str, *, locks: ILockService) -> Stack:
    """The sample's stack, deployed after the service that it finds by its stack's name."""
    billing = run_sample(sample("class Billing("))["Billing"]
    stack = billing(scope, construct_id, function=shared_worker(scope))
    assert isinstance(stack, Stack)
    assert isinstance(locks, Construct)
    stack.add_stack_dependency(Stack.of(locks))
    machine = stack.node.find_child("Machine")
    assert isinstance(machine, sfn.StateMachine)
    CfnOutput(stack, "BillingArn", value=machine.state_machine_arn)
    return stack


@pytest.fixture
def credentials(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample's client finds the embedded AWS as it finds AWS: by its environment."""
    for name, value in deployment.aws.environment.items():
        monkeypatch.setenv(name, value)


def run_client(lock_name: str, charge: Charge) -> None:
    """The client's sample with this lock, over the service that it finds."""
    code = sample("LockClient")
    assert LOCK_NAME in code
    run_sample(code.replace(LOCK_NAME, repr(lock_name)), charge=charge)["locks"].close()


@pytest.mark.usefixtures("credentials")
def test_the_client_of_the_readme_waits_for_its_guard_and_its_guard_for_the_client(
    deployment: Deployment, tmp_path: Path
) -> None:
    customer, gate = f"readme-{uuid.uuid4()}", tmp_path / "gate"
    lock_name, task = f"customer/{customer}", {"customer_id": customer, "until": str(gate)}
    tokens: list[int] = []
    executions = [deployment.start("Billing", task)]
    wait_until(lambda: deployment.holders(lock_name) == executions)
    tokens.append(deployment.state(lock_name).holders[0].fencing_token)

    def charge(_customer: str, *, fencing_token: int) -> None:
        tokens.append(fencing_token)
        executions.append(deployment.start("Billing", task))
        wait_until(lambda: deployment.queue_length(lock_name) == 1)
        assert "Charge" not in deployment.states_entered(executions[1])

    with ThreadPoolExecutor(1, thread_name_prefix="client") as threads:
        client: Future[None] = threads.submit(run_client, lock_name, charge)
        wait_until(lambda: deployment.queue_length(lock_name) == 1 or client.done())
        assert len(tokens) == 1  # The client waits for the guard.
        gate.touch()
        client.result(LONGEST_SECONDS)
    assert [deployment.ended(each).status for each in executions] == ["SUCCEEDED"] * 2
    assert tokens[1] == tokens[0] + 1
