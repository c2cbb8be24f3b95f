"""The workflow engine of the handlers."""

from __future__ import annotations

import pytest

from leasehold.workflows.step_functions import StepFunctions
from tests.support.workflows import FakeWorkflows


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeWorkflows:
    """Answers the handlers instead of Step Functions."""
    engine = FakeWorkflows()
    for name in ("wake_waiter", "end_heartbeat", "describe"):
        # A bound method is no descriptor: it is called without the StepFunctions it is called on.
        monkeypatch.setattr(StepFunctions, name, getattr(engine, name))
    return engine
