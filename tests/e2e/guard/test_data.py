"""What enters a guard reaches the task, and what the task returns leaves it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.deployment import Deployment, Ended

VALUES = [
    {"a": [1, {"b": None}], "text": "ä€"},
    {},
    [1, "two", None],
    [7],
    [],
    [[1]],
    "text",
    "",
    0,
    1.5,
    9007199254740991,
    True,
    None,
]


@pytest.mark.parametrize("form", ["Flat", "FlatPath", "ChainPath"])
@pytest.mark.parametrize("value", VALUES)
def test_any_json_passes_unchanged(deployment: Deployment, form: str, value: object) -> None:
    assert deployment.run(form, value) == Ended(status="SUCCEEDED", output=value)


def test_the_task_may_return_something_else_than_it_was_given(deployment: Deployment) -> None:
    for form in ("Flat", "FlatPath", "ChainPath"):
        assert deployment.run(form, {"return": ["new"]}).output == ["new"]


@pytest.mark.parametrize("form", ["TokenJsonata", "TokenPath"])
def test_the_task_is_given_the_fencing_token_of_its_grant(
    deployment: Deployment, form: str
) -> None:
    first, second = (deployment.run(form, {}).output["token"] for _ in range(2))
    assert isinstance(first, int)
    assert first > 1_700_000_000_000_000  # the seed is the epoch in microseconds
    assert second > first


def test_an_express_workflow_returns_what_its_task_returns(deployment: Deployment) -> None:
    assert deployment.run_express("ExpressFlat", {"return": [1]}) == Ended(
        status="SUCCEEDED", output=[1]
    )


def spans_of_two_runs(deployment: Deployment, machine: str) -> list[tuple[float, float]]:
    """From when to when the task of each worked; two runs of one start have one name and input."""
    name = str(uuid.uuid4())
    with ThreadPoolExecutor(2) as pool:
        run = [
            pool.submit(deployment.run_express, machine, {"sleep": 3}, name=name) for _ in range(2)
        ]
        outputs = [each.result(timeout=60).output for each in run]
    return sorted((output["began"], output["ended"]) for output in outputs)


def test_an_express_workflow_that_aws_runs_twice_does_its_work_twice_and_never_at_once(
    deployment: Deployment,
) -> None:
    """Each run is an owner of its own: AWS runs an asynchronous Express start at least once."""
    first, second = spans_of_two_runs(deployment, "ExpressFlat")
    assert first[1] <= second[0]


def test_control_without_a_guard_the_two_runs_work_at_once(deployment: Deployment) -> None:
    first, second = spans_of_two_runs(deployment, "ExpressUnguarded")
    assert second[0] < first[1]
