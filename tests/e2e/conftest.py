"""The embedded AWS with `Fairlock` in it, started and deployed once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from app import build
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment
from tests.e2e.durable.stack import DurableForms
from tests.e2e.guard.stack import GuardFaults, GuardForms
from tests.e2e.known_failures.stack import KnownFailures
from tests.e2e.lifetimes.dying_workflows import Unreaped
from tests.e2e.newest.stack import NewestForms
from tests.e2e.optimistic.stack import OptimisticForms
from tests.e2e.pace.stack import PaceForms
from tests.e2e.queue.stack import QueueForms
from tests.e2e.readme.stack import guard_sample
from tests.e2e.turns.stack import TurnForms

WORKFLOWS = {
    "GuardForms": GuardForms,
    "GuardFaults": GuardFaults,
    "QueueForms": QueueForms,
    "KnownFailures": KnownFailures,
    "NewestForms": NewestForms,
    "OptimisticForms": OptimisticForms,
    "PaceForms": PaceForms,
    "TurnForms": TurnForms,
    "Unreaped": Unreaped,
    "DurableForms": DurableForms,
    "Billing": guard_sample,
}
FEW_ENVIRONMENTS = {"LOCALAWS_FEW_ENVIRONMENTS": "1"}
"""Each environment of a function is a cold start: most of a second of a processor."""


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`Fairlock` and the stacks of workflows that the suites run against it."""
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        yield deployed(aws, WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session")
def aws(deployment: Deployment) -> LocalAws:
    return deployment.aws


def deployed(
    aws: LocalAws, workflows: Mapping[str, Callable[..., Stack]], path: Path
) -> Deployment:
    """The lock service and these stacks, deployed by the CDK CLI."""
    # Synthesized in this process: another one would take seconds to start.
    app = App(outdir=str(path))
    lock_stack = build(app)
    for name, stack in workflows.items():
        stack(app, name, locks=lock_stack.locks)
    app.synth()
    aws.bootstrap()
    outputs = aws.deploy(app=path, stacks=("Fairlock", *workflows))
    return Deployment(aws=aws, outputs=outputs)
