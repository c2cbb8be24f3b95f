"""A guard in the queue costs the same whether it waits a second or a minute; polling does not."""

from __future__ import annotations

import uuid

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.queue.scenarios import WAITS_SECONDS, Waited
from tests.e2e.scenario_runs import ScenarioRuns

WORK = 1


@pytest.mark.parametrize(
    ("machine", "overhead"), [("QueuePatient", 3), ("QueuePatientChain", 4), ("Waits", 4)]
)
def test_uncontended_a_guard_costs_a_known_number_of_transitions(
    deployment: Deployment, machine: str, overhead: int
) -> None:
    execution = deployment.start(machine, {"lock": str(uuid.uuid4())})
    assert deployment.ended(execution).status == "SUCCEEDED"
    work = 2 if machine == "QueuePatientChain" else WORK
    assert deployment.transitions(execution) == overhead + work
    assert deployment.calls(execution) == 3  # acquire, the work, release


@pytest.mark.parametrize("seconds", WAITS_SECONDS)
def test_waiting_in_the_queue_costs_no_transition_and_no_call(
    queue_runs: ScenarioRuns, seconds: int
) -> None:
    waited: Waited = queue_runs.only(f"QueuePatient waits {seconds} s")
    assert seconds <= waited.seconds
    assert (waited.transitions, waited.calls, waited.tries) == (3 + WORK, 3, 1)


@pytest.mark.parametrize("seconds", WAITS_SECONDS)
def test_waiting_by_polling_costs_three_transitions_and_a_call_a_try(
    queue_runs: ScenarioRuns, seconds: int
) -> None:
    waited: Waited = queue_runs.only(f"Waits waits {seconds} s")
    assert seconds <= waited.seconds
    assert waited.tries > 2
    assert waited.transitions == 4 + WORK + 3 * (waited.tries - 1)
    assert waited.calls == 3 + waited.tries - 1
