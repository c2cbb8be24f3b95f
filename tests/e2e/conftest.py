"""The embedded AWS with `Fairlock` in it, started and deployed once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from app import build
from testbed.localaws import LocalAws
from tests.e2e.attacks.stack import Attacks
from tests.e2e.deployment import Deployment
from tests.e2e.durable.executions import DurableForms
from tests.e2e.guard.stack import GuardForms
from tests.e2e.known_failures.stack import KnownFailures
from tests.e2e.lifetimes.contested_lock import MOST_CALLING
from tests.e2e.lifetimes.stack import DyingWorkflows, Lifetimes, Unreaped
from tests.e2e.optimistic.stack import OptimisticForms
from tests.e2e.readme.test_samples import guard_sample
from tests.e2e.together import begun, judge, spread, warm_up
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
}
FEW_ENVIRONMENTS = {"LOCALAWS_FEW_ENVIRONMENTS": "1"}
"""Each environment of a function is a cold start: most of a second of a processor."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return judge(pyfuncitem)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`Fairlock` and the stacks of workflows that the suites run against it."""
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        yield deployed(aws, WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session")
def dying(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Another one, whose suites are run by another process: most of their tests wait."""
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        dying = deployed(aws, DYING_WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))
        warm_up(dying, environments=MOST_CALLING)
        warm_up(dying, environments=MOST_CALLING, operations=("Heartbeat",))
        with begun(request.session, dying, "attacks", "lifetimes"):
            yield dying


@pytest.fixture(scope="session")
def long_waits(request: pytest.FixtureRequest, deployment: Deployment) -> Iterator[None]:
    """Those of guards, beside the tests that are quick."""
    warm_up(deployment, environments=3)
    with begun(request.session, deployment, "guard"):
        yield


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
