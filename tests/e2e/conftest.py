"""The embedded AWS with `Leasehold` in it, started and deployed once per run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_cdk import App

from app import build
from localaws import LocalAws
from tests.e2e.deployment import Deployment
from tests.e2e.guard.faults import GuardFaults
from tests.e2e.guard.stack import GuardForms
from tests.e2e.queue.stack import QueueForms
from tests.e2e.rows.stack import Rows

WORKFLOWS = {
    "GuardForms": GuardForms,
    "GuardFaults": GuardFaults,
    "QueueForms": QueueForms,
    "Rows": Rows,
}


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`Leasehold` and the stacks of workflows that the suites run against it."""
    assembly = synthesized(tmp_path_factory.mktemp("cdk.out"))
    with LocalAws() as aws:
        aws.bootstrap()
        outputs = aws.deploy(app=assembly, stacks=("Leasehold", *WORKFLOWS))
        yield Deployment(aws=aws, outputs=outputs)


@pytest.fixture(scope="session")
def aws(deployment: Deployment) -> LocalAws:
    return deployment.aws


def synthesized(directory: Path) -> Path:
    """The cloud assembly, made in this process: another one would take seconds to start."""
    app = App(outdir=str(directory))
    lock_stack = build(app)
    for name, stack in WORKFLOWS.items():
        stack(app, name, locks=lock_stack.locks)
    app.synth()
    return directory
