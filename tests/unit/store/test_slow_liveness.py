"""Step Functions may be slow or busy: calls of ours come to their end nevertheless."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.stub import Stubber
from mypy_boto3_stepfunctions import SFNClient

from fairlock.aws.executions import Delivery, Execution, StepFunctions
from fairlock.aws.retry import RetryBudget
from fairlock.protocol.model import Liveness
from fairlock.protocol.outcomes import Refusal
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire
from tests.support.store_bench import RUN, Bench
from tests.support.workflows import FakeWorkflows
from tests.unit.workflows.test_step_functions import GRANT, TOKEN

PERMITS = 5
SECONDS_AN_ANSWER = 4.5
"""Three tries of 1.5 s each."""
MOST_SECONDS = 10.0
THROTTLED = "ThrottlingException"


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """All permits are out to workflows whose leases are over."""
    bench = Bench(MemoryTable(), clock)
    for number in range(PERMITS):
        store = bench.store()
        store.acquire(acquire(f"w{number}", execution_arn=f"{RUN}{number}", limit=PERMITS))
    clock.advance(100)
    return bench


def seconds_to_refuse(bench: Bench) -> float:
    def hang(_execution_arn: str) -> Execution:
        bench.clock.advance(SECONDS_AN_ANSWER)
        return Execution(Liveness.UNKNOWN)

    began = bench.clock.monotonic()
    answer = bench.store(workflows=FakeWorkflows(runs=hang)).acquire(acquire("anna", limit=PERMITS))
    assert isinstance(answer, Refusal)
    assert answer.liveness_unknown
    return bench.clock.monotonic() - began


def test_an_acquire_does_not_ask_about_one_workflow_after_another_while_no_one_answers(
    bench: Bench,
) -> None:
    assert seconds_to_refuse(bench) < MOST_SECONDS


def test_without_a_check_of_the_clock_it_would_outlast_its_function(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryBudget, "is_spent", lambda _self, *, since: False)  # noqa: ARG005 - as the real one
    assert seconds_to_refuse(bench) > 20


def push(workflows: SFNClient, clock: FakeClock) -> Delivery:
    retry_budget = RetryBudget(clock=clock, random=lambda: 0.5)
    return StepFunctions(lambda: workflows, retry_budget).wake_waiter(TOKEN, GRANT)


def fails(stub: Stubber, code: str, *, retries: int = 0) -> None:
    meta: Any = {"RetryAttempts": retries}
    stub.add_client_error("send_task_success", code, response_meta=meta)


def test_a_push_that_step_functions_is_too_busy_for_is_repeated(
    workflows: SFNClient, clock: FakeClock
) -> None:
    with Stubber(workflows) as stub:
        fails(stub, THROTTLED, retries=2)
        fails(stub, THROTTLED, retries=2)
        stub.add_response("send_task_success", {})
        assert push(workflows, clock) is Delivery.DELIVERED
        stub.assert_no_pending_responses()


def test_but_not_for_ever(workflows: SFNClient, clock: FakeClock) -> None:
    began = clock.monotonic()
    with Stubber(workflows) as stub:
        for _ in range(200):
            fails(stub, THROTTLED)
        assert push(workflows, clock) is Delivery.UNKNOWN
    assert 5 <= clock.monotonic() - began < 6


@pytest.mark.parametrize(("retries", "pushed"), [(0, Delivery.GONE), (1, Delivery.UNKNOWN)])
def test_a_task_that_is_gone_after_a_repeat_may_have_heard_the_first_sending(
    workflows: SFNClient, clock: FakeClock, retries: int, pushed: Delivery
) -> None:
    with Stubber(workflows) as stub:
        fails(stub, "TaskTimedOut", retries=retries)
        assert push(workflows, clock) is pushed
