"""The tests of this folder are begun at the same time."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment


@pytest.fixture(scope="session")
def deployment(dying: Deployment) -> Deployment:
    return dying
