"""All attacks are begun at the same time, on a deployment of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.localaws import LocalAws
from tests.e2e.attacks import children, redrives, siblings
from tests.e2e.attacks.stack import Attacks, SecondService, Untold
from tests.e2e.conftest import FEW_ENVIRONMENTS, deployed
from tests.e2e.deployment import Deployment
from tests.e2e.scenario_runs import ScenarioRuns, begun, warm_up

WORKFLOWS = {"Attacks": Attacks, "SecondService": SecondService, "Untold": Untold}


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with LocalAws(settings=FEW_ENVIRONMENTS) as aws:
        yield deployed(aws, WORKFLOWS, tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session", autouse=True)
def runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    warm_up(deployment, environments=3)
    with begun(
        deployment, {**redrives.SCENARIOS, **siblings.SCENARIOS, **children.SCENARIOS}
    ) as runs:
        yield runs
