"""A deployment with the guards of these cases, and of those that tests/e2e/lifetimes has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import localaws
from testbed.second_engine.cases.stack import GuardCases
from tests.e2e.conftest import deployed
from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.stack import Lifetimes
from tests.e2e.optimistic.stack import OptimisticForms


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`Fairlock` and these stacks."""
    stacks = {
        "GuardCases": GuardCases,
        "Lifetimes": Lifetimes,
        "OptimisticForms": OptimisticForms,
    }
    with localaws.LocalAws() as aws:
        yield deployed(aws, stacks, tmp_path_factory.mktemp("cdk.out"))
