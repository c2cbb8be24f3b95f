"""All scenarios run at the same time, beside the tests that are quick; their figures are told."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import pytest

from testbed.localaws import LocalAws
from tests.e2e.conftest import FEW_ENVIRONMENTS, deployed
from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.contested_lock import MOST_CALLING
from tests.e2e.lifetimes.dying_workflows import DyingWorkflows, Unreaped
from tests.e2e.lifetimes.scenarios import SCENARIOS
from tests.e2e.lifetimes.stack import Lifetimes
from tests.e2e.scenario_runs import ScenarioRuns, begun, warm_up

Tell = Callable[[str, Sequence[float]], None]
"""Shows how often something was measured, its median and its largest value, in seconds."""


WORKFLOWS = {"Lifetimes": Lifetimes, "Unreaped": Unreaped, "DyingWorkflows": DyingWorkflows}


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One of its own, so that this suite is run beside the others."""
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        yield deployed(aws, WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session", autouse=True)
def runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    for service in (deployment, deployment.of("Unreaped")):
        warm_up(
            service,
            environments=MOST_CALLING + MOST_CALLING // 2,
            operations=("Acquire", "Release", "Heartbeat"),
        )
    with begun(deployment, SCENARIOS) as runs:
        yield runs


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """For the summary at the end of the run, see `tests/conftest.py`."""

    def tell(what: str, seconds: Sequence[float]) -> None:
        median, longest = statistics.median(seconds), max(seconds)
        figures = f"n = {len(seconds)}, median {median:.2f} s, max {longest:.2f} s"
        record_property("figures", f"{what}: {figures}")

    return tell
