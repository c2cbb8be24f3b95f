"""Workflows, direct callers and Python clients take turns at one pace.

`PACE_WORKFLOWS=50 PACE_INTERVAL=6 pytest tests/e2e/turns -k "apart and PaceEach"` prints the
figures of fifty workflows at ten a minute, in five minutes.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from fairlock import LockClient, SlotTooLate
from fairlock.protocol.pace import LEAST_SLOT_US, MICROSECONDS
from fairlock.protocol.schema import pace_key
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.turns.stack import INTERVAL_SECONDS, example, run_example

WORKFLOWS = int(os.environ.get("PACE_WORKFLOWS", "6"))
_STEP_FUNCTIONS_SECONDS = 5
"""What the embedded Step Functions may take beside whole seconds, on a busy machine."""
_AT_ONCE = 4
"""The embedded Lambda runs few environments: more calls than that wait until they time out."""
_LONGEST_CALL_SECONDS = 120
"""A bound and no promise: how late the last slot may be reserved."""
_STATES = 4
"""Enter, Reserve, Reserved?, Wait."""


@pytest.fixture(scope="module")
def paced(deployment: Deployment) -> Deployment:
    return deployment.of("OtherService")


@pytest.fixture
def name() -> str:
    """A pace that no other test takes turns at."""
    return f"pace-{uuid.uuid4()}"


def next_slot(paced: Deployment, name: str) -> float:
    found = paced.aws.client("dynamodb").get_item(TableName=paced.table_name, Key=pace_key(name))
    return int(found["Item"]["next_slot_us"]["N"]) / MICROSECONDS


@pytest.mark.parametrize("form", ["PaceEach", "PacePath"])
def test_workflows_begin_an_interval_apart(
    paced: Deployment,
    name: str,
    form: str,
    record_property: Callable[[str, object], None],
) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        started = list(pool.map(lambda n: reserving(paced, form, name, n), range(WORKFLOWS)))
    longest = WORKFLOWS * INTERVAL_SECONDS + _LONGEST_CALL_SECONDS
    ended = [paced.ended(execution, seconds=longest) for execution in started]
    assert [(one.status, one.output) for one in ended] == [
        ("SUCCEEDED", {"pace": name, "n": n}) for n in range(WORKFLOWS)
    ]
    begun = sorted(paced.stopped_at(execution) for execution in started)
    # Each has a slot of its own.
    assert begun[-1] >= begun[0] + (WORKFLOWS - 1) * INTERVAL_SECONDS - 2
    assert next_slot(paced, name) >= begun[0] + (WORKFLOWS - 1) * INTERVAL_SECONDS
    late = LEAST_SLOT_US / MICROSECONDS + _STEP_FUNCTIONS_SECONDS
    for window in (2, 5, 10 * INTERVAL_SECONDS):
        most = math.ceil((window + late) / INTERVAL_SECONDS)
        assert most_within(window, begun) <= most
    assert {len(paced.states_entered(execution)) for execution in started} == {_STATES}
    calls = sum(paced.calls(execution) for execution in started)
    asked, answered = (
        [entered(paced, execution, state) for execution in started]
        for state in ("Reserve", "Reserved?")
    )
    order = [paced.stopped_at(execution) for execution in started]
    in_order = [
        (a, b) for a in range(WORKFLOWS) for b in range(WORKFLOWS) if answered[a] < asked[b]
    ]
    assert all(order[a] < order[b] for a, b in in_order), "who asks later begins later"
    gaps = sorted(b - a for a, b in pairwise(begun))
    text = (
        f"{WORKFLOWS} workflows, a slot each {INTERVAL_SECONDS} s: gaps {gaps[0]:.1f} to "
        f"{gaps[-1]:.1f} s, mean {sum(gaps) / len(gaps):.2f} s; at most "
        f"{most_within(10 * INTERVAL_SECONDS, begun)} within {10 * INTERVAL_SECONDS} s; "
        f"in order in all {len(in_order)} pairs of which one asked after the other's answer; "
        f"{_STATES} states each; {calls} calls of the function"
    )
    record_property("figures", text)


def reserving(paced: Deployment, form: str, name: str, number: int) -> str:
    """Starts a workflow, and returns its ARN when it has a slot."""
    execution_arn = paced.start(form, {"pace": name, "n": number})
    wait_until(
        lambda: any(one.endswith("Reserved?") for one in paced.states_entered(execution_arn)),
        seconds=_LONGEST_CALL_SECONDS,
    )
    return execution_arn


def entered(paced: Deployment, execution_arn: str, state: str) -> float:
    """When the workflow entered a state of the fragment."""
    [name] = [one for one in paced.states_entered(execution_arn) if one.endswith(f": {state}")]
    return paced.timeline(execution_arn).entered(name)


def most_within(seconds: float, begun: list[float]) -> int:
    """How many have begun in any window of this length."""
    return max(sum(at <= one < at + seconds for one in begun) for at in begun)


def test_once_an_hour_exactly_one_workflow_runs(paced: Deployment, name: str) -> None:
    with ThreadPoolExecutor(WORKFLOWS) as pool:
        ended = list(pool.map(lambda _: paced.run("PaceHourly", {"pace": name}), range(WORKFLOWS)))
    assert sorted(one.output for one in ended) == ["ran"] + ["skipped"] * (WORKFLOWS - 1)


def test_a_workflow_whose_slot_is_too_late_fails_by_name(paced: Deployment, name: str) -> None:
    assert paced.run("PaceFails", {"pace": name}).status == "SUCCEEDED"
    failed = paced.run("PaceFails", {"pace": name})
    assert (failed.status, failed.error) == ("FAILED", "SlotTooLate")
    assert failed.cause is not None
    assert failed.cause.startswith(f"pace {name}: the next slot begins in 3")
    assert failed.cause.endswith(" s, and max_wait is 0 s; nothing was reserved")


def test_a_name_that_breaks_its_rule_fails_by_name(paced: Deployment) -> None:
    failed = paced.run("PaceFails", {"pace": ""})
    assert (failed.status, failed.error) == ("FAILED", "InvalidRequest")


def test_each_iteration_of_a_map_has_a_slot_of_its_own(paced: Deployment, name: str) -> None:
    before = paced.run("PaceEach", {"pace": name})
    assert before.status == "SUCCEEDED"
    first = next_slot(paced, name)
    assert paced.run("PaceInMap", [{"pace": name}] * 4).status == "SUCCEEDED"
    assert next_slot(paced, name) >= first + 4 * INTERVAL_SECONDS


def test_clients_functions_and_workflows_share_a_pace(paced: Deployment, name: str) -> None:
    hourly = {"pace_name": name, "rate": [1, 3600]}
    with LockClient(paced.table_name, client=paced.aws.client("dynamodb")) as locks:
        locks.pace(name, rate=(1, 3600), max_wait=0)
        with pytest.raises(SlotTooLate):
            locks.pace(name, rate=(1, 3600), max_wait=0)
    assert paced.invoke("Pace", **hourly)["reason"] == "TOO_LATE"
    assert paced.run("PaceHourly", {"pace": name}).output == "skipped"


def test_the_state_and_the_client_of_the_document_share_a_pace(paced: Deployment) -> None:
    with LockClient(paced.table_name, client=paced.aws.client("dynamodb")) as locks:
        run_example(example("# returns when the slot begins"), locks=locks)
        first = next_slot(paced, "vendor")
        execution = paced.start("PaceExample", {"n": 1})
        assert paced.ended(execution).output == {"n": 1}
        assert paced.stopped_at(execution) >= first - 1, "by AWS's time, which is known to a second"
        assert next_slot(paced, "vendor") == first + 6


def test_the_hourly_job_of_the_document_runs_once(
    paced: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []
    hourly = example("except SlotTooLate")
    with LockClient(paced.table_name, client=paced.aws.client("dynamodb")) as locks:
        for _ in range(2):
            run_example(hourly, locks=locks, report=ran.append)
    assert ran == [0]
    assert capsys.readouterr().out == "another machine has done it within this hour\n"
