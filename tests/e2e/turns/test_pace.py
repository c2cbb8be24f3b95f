"""Workflows, direct callers and Python clients take turns at one pace."""

from __future__ import annotations

import uuid

import pytest

from fairlock import LockClient, SlotTooLate
from fairlock.protocol.pace import MICROSECONDS
from fairlock.protocol.schema import pace_key
from tests.e2e.deployment import Deployment
from tests.e2e.other_service import INTERVAL_SECONDS
from tests.e2e.together import together

WORKFLOWS = 4
_STATES = 4
"""Enter, Reserve, Reserved?, Wait."""
ITERATIONS = 3


@pytest.fixture(scope="module")
def paced(deployment: Deployment) -> Deployment:
    return deployment.of("OtherService")


def new_name() -> str:
    """A pace that no other test takes turns at."""
    return f"pace-{uuid.uuid4()}"


@pytest.fixture
def name() -> str:
    return new_name()


def next_slot(paced: Deployment, name: str) -> float:
    found = paced.aws.client("dynamodb").get_item(TableName=paced.table_name, Key=pace_key(name))
    return int(found["Item"]["next_slot_us"]["N"]) / MICROSECONDS


@together
def test_workflows_begin_an_interval_apart_in_the_order_in_which_they_asked(
    deployment: Deployment,
) -> None:
    paced, name = deployment.of("OtherService"), new_name()
    started = [paced.start("PaceEach", {"pace": name, "n": n}) for n in range(WORKFLOWS)]
    ended = [paced.ended(execution) for execution in started]
    assert [(one.status, one.output) for one in ended] == [
        ("SUCCEEDED", {"pace": name, "n": n}) for n in range(WORKFLOWS)
    ]
    begun = [paced.stopped_at(execution) for execution in started]
    # Each has a slot of its own.
    assert max(begun) >= min(begun) + (WORKFLOWS - 1) * INTERVAL_SECONDS - 2
    assert next_slot(paced, name) >= min(begun) + (WORKFLOWS - 1) * INTERVAL_SECONDS
    assert {len(paced.states_entered(execution)) for execution in started} == {_STATES}
    asked, answered = (
        [entered(paced, execution, state) for execution in started]
        for state in ("Reserve", "Reserved?")
    )
    numbers = range(WORKFLOWS)
    in_order = [(a, b) for a in numbers for b in numbers if answered[a] < asked[b]]
    assert all(begun[a] < begun[b] for a, b in in_order), "who asks later begins later"


def entered(paced: Deployment, execution_arn: str, state: str) -> float:
    """When the workflow entered a state of the fragment."""
    [name] = [one for one in paced.states_entered(execution_arn) if one.endswith(f": {state}")]
    return paced.entered(execution_arn, name)


def test_a_slot_that_is_too_late_and_a_name_that_breaks_its_rule_fail_by_name(
    paced: Deployment, name: str
) -> None:
    assert paced.run("PaceFails", {"pace": name}).status == "SUCCEEDED"
    failed = paced.run("PaceFails", {"pace": name})
    assert (failed.status, failed.error) == ("FAILED", "SlotTooLate")
    assert (failed.cause or "").startswith(f"pace {name}: the next slot begins in 3")
    assert (failed.cause or "").endswith(" s, and max_wait is 0 s; nothing was reserved")
    assert paced.run("PaceFails", {"pace": ""}).error == "InvalidRequest"


@together
def test_each_iteration_of_a_map_has_a_slot_of_its_own(deployment: Deployment) -> None:
    paced, name = deployment.of("OtherService"), new_name()
    assert paced.run("PaceEach", {"pace": name}).status == "SUCCEEDED"
    first = next_slot(paced, name)
    assert paced.run("PaceInMap", {"pace": name}).status == "SUCCEEDED"
    assert next_slot(paced, name) >= first + ITERATIONS * INTERVAL_SECONDS


def test_clients_functions_and_workflows_share_a_pace(paced: Deployment, name: str) -> None:
    hourly = {"pace_name": name, "rate": [1, 3600]}
    assert paced.run("PaceHourly", {"pace": new_name()}).output == "ran"
    with LockClient(paced.table_name, client=paced.aws.client("dynamodb")) as locks:
        locks.pace(name, rate=(1, 3600), max_wait=0)
        with pytest.raises(SlotTooLate):
            locks.pace(name, rate=(1, 3600), max_wait=0)
    assert paced.invoke("Pace", **hourly)["reason"] == "TOO_LATE"
    assert paced.run("PaceHourly", {"pace": name}).output == "skipped"
