"""What the handlers meet outside: callers, the workflow engine, and the queue of the reaper."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlock.aws.executions import Liveness, StepFunctions
from tests.support import LambdaContextStub
from tests.support.bad_inputs import NAMED, VALID_EXECUTION
from tests.support.store_bench import FakeWorkflows

CONTEXT = LambdaContextStub()
Output = pytest.CaptureFixture[str]
ANNA = {"lock_name": "customer/1", "owner_id": "5f0e7c1e-anna-4c57-9d43-000000000001"}
BEN = {"lock_name": "customer/1", "owner_id": "77aa01f2-ben_-4a1b-8b1e-000000000002"}
WHO = {"requested_by": "olga", "reason": "hangs since 3 a.m."}
WORKFLOW = {**NAMED, "execution_arn": VALID_EXECUTION}
RIVAL = {**NAMED, "owner_id": "rival-0123456789"}
QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/123456789012/reap"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeWorkflows:
    """Answers the handlers instead of Step Functions."""
    engine = FakeWorkflows()
    for name in ("wake_waiter", "end_heartbeat", "describe"):
        # A bound method is no descriptor: it is called without the StepFunctions it is called on.
        monkeypatch.setattr(StepFunctions, name, getattr(engine, name))
    return engine


@dataclass
class ReapQueue:
    """Which messages are sent with which delay, and for how long one that came is hidden."""

    sent: list[tuple[str, dict[str, Any], int]] = field(default_factory=list)
    hidden: list[tuple[str, str, int]] = field(default_factory=list)

    def send(self, queue_url: str, body: str, delay_seconds: int) -> None:
        self.sent.append((queue_url, json.loads(body), delay_seconds))

    def hide(self, *message: Any) -> None:  # noqa: ANN401 - the queue, the receipt and the time
        self.hidden.append(message)


@pytest.fixture
def queue(engine: FakeWorkflows, monkeypatch: pytest.MonkeyPatch) -> ReapQueue:
    """Of the reaper, to which the engine says that an execution is over."""
    queue = ReapQueue()
    engine.runs = Liveness.OVER
    monkeypatch.setattr("lambdas.reap_messages.send_message", queue.send)
    monkeypatch.setattr("lambdas.reap_messages.hide_message", queue.hide)
    monkeypatch.setenv("FAIRLOCK_REAP_QUEUE_URL", QUEUE_URL)
    return queue
