"""The embedded AWS with `Fairlock` in it, started and deployed once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from app import build
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment
from tests.e2e.durable.executions import DurableForms
from tests.e2e.guard.stack import GuardForms
from tests.e2e.known_failures.stack import KnownFailures
from tests.e2e.lifetimes.stack import DyingWorkflows, Lifetimes
from tests.e2e.optimistic.stack import OptimisticForms
from tests.e2e.other_service import OtherService
from tests.e2e.readme.test_samples import guard_sample
from tests.e2e.together import begun, in_turn, judge, spread
from tests.e2e.turns.stack import TurnForms

WORKFLOWS: dict[str, tuple[Callable[..., Stack], str]] = {
    "GuardForms": (GuardForms, "guard known_failures"),
    "KnownFailures": (KnownFailures, "known_failures"),
    "TurnForms": (TurnForms, "turns"),
    "OtherService": (OtherService, "turns lifetimes"),
    "OptimisticForms": (OptimisticForms, "optimistic"),
    "DurableForms": (DurableForms, "durable"),
    "Billing": (guard_sample, "readme"),
    "Lifetimes": (Lifetimes, "lifetimes"),
    "DyingWorkflows": (DyingWorkflows, "lifetimes attacks"),
}
"""Stacks of workflows, and the folders whose tests need them."""
FEW_ENVIRONMENTS = {"LOCALAWS_FEW_ENVIRONMENTS": "1"}
"""Each environment of a function is a cold start: most of a second of a processor."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=in_turn)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return judge(pyfuncitem)


@pytest.fixture(scope="session")
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """`Fairlock` and the stacks that the tests of this run need."""
    folders = {item.path.parent.name for item in request.session.items}
    workflows = {
        name: stack for name, (stack, users) in WORKFLOWS.items() if folders & set(users.split())
    }
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        deployment = deployed(aws, workflows, tmp_path_factory.mktemp("cdk.out"))
        with begun(request.session, deployment):
            yield deployment


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
        record_property("figures", f"{what}: {spread(seconds)}")

    return tell
