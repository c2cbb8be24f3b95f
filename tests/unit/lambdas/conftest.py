"""What the handlers meet outside: the workflow engine, and the queue of the reaper."""

from __future__ import annotations

import pytest

from fairlock.aws.executions import StepFunctions
from tests.support.store_bench import FakeWorkflows
from tests.unit.lambdas.test_reap_handler import QUEUE_URL, Outside


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeWorkflows:
    """Answers the handlers instead of Step Functions."""
    engine = FakeWorkflows()
    for name in ("wake_waiter", "end_heartbeat", "describe"):
        # A bound method is no descriptor: it is called without the StepFunctions it is called on.
        monkeypatch.setattr(StepFunctions, name, getattr(engine, name))
    return engine


@pytest.fixture
def outside(engine: FakeWorkflows, monkeypatch: pytest.MonkeyPatch) -> Outside:
    outside = Outside()
    engine.runs = outside.describe
    monkeypatch.setattr("lambdas.reap_messages.send_message", outside.send)
    monkeypatch.setattr("lambdas.reap_messages.hide_message", outside.hide)
    monkeypatch.setenv("FAIRLOCK_REAP_QUEUE_URL", QUEUE_URL)
    return outside
