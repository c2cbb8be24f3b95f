"""The deployed functions."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.direct.functions import Functions


@pytest.fixture(scope="session")
def functions(deployment: Deployment) -> Functions:
    return Functions(deployment)
