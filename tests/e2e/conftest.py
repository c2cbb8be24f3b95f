"""The embedded AWS with `Fairlock` in it, started and deployed once per run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from app import build
from testbed.localaws import LocalAws
from tests.e2e.attacks.stack import Attacks, SecondService, Untold
from tests.e2e.deployment import Deployment
from tests.e2e.durable.executions import DurableForms
from tests.e2e.guard import queued_lock
from tests.e2e.guard.stack import GuardForms
from tests.e2e.known_failures.stack import KnownFailures
from tests.e2e.lifetimes.stack import DyingWorkflows, Lifetimes, Unreaped
from tests.e2e.optimistic.stack import OptimisticForms
from tests.e2e.readme.test_samples import guard_sample
from tests.e2e.scenario_runs import ScenarioRuns, begun, warm_up
from tests.e2e.turns.stack import OtherService, TurnForms

WORKFLOWS = {
    "GuardForms": GuardForms,
    "KnownFailures": KnownFailures,
    "TurnForms": TurnForms,
    "OtherService": OtherService,
    "OptimisticForms": OptimisticForms,
    "DurableForms": DurableForms,
    "Billing": guard_sample,
}
DYING_WORKFLOWS = {
    "Lifetimes": Lifetimes,
    "DyingWorkflows": DyingWorkflows,
    "Unreaped": Unreaped,
    "Attacks": Attacks,
    "SecondService": SecondService,
    "Untold": Untold,
}
FEW_ENVIRONMENTS = {"LOCALAWS_FEW_ENVIRONMENTS": "1"}
"""Each environment of a function is a cold start: most of a second of a processor."""


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`Fairlock` and the stacks of workflows that the suites run against it."""
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        yield deployed(aws, WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session")
def dying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Another one, whose suites are run by another process: they play long scenarios."""
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        yield deployed(aws, DYING_WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session")
def queue_runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    """Long waits in queues, all at the same time, beside the tests that are quick."""
    warm_up(deployment, environments=queued_lock.AT_ONCE)
    with begun(deployment, queued_lock.SCENARIOS) as runs:
        yield runs


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


Tell = Callable[[str, Sequence[float]], None]
"""Shows how often something was measured, and how long it took."""


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """For the summary at the end of the run, see `conftest.py` of the repository."""

    def tell(what: str, seconds: Sequence[float]) -> None:
        ordered = sorted(seconds)
        p95 = ordered[round(0.95 * (len(ordered) - 1))]
        figures = (
            f"n = {len(ordered)}, median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, "
            f"max {ordered[-1]:.2f} s"
        )
        record_property("figures", f"{what}: {figures}")

    return tell
