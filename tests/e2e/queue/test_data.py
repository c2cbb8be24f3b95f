"""What enters a guard in the queue reaches the task, and what the task returns leaves it."""

from __future__ import annotations

import json

import pytest

from tests.e2e.deployment import Deployment, Ended
from tests.e2e.guard.test_guard import FAILING, lock_of

VALUES = [
    {"a": [1, {"b": None}], "text": "ä€"},
    [1, "two", None],
    [7],
    [],
    "text",
    9007199254740991,
    1.5,
    None,
]


@pytest.mark.parametrize("form", ["QueueFlat", "QueueFlatPath", "QueueChainPath"])
def test_any_json_passes_unchanged(deployment: Deployment, form: str) -> None:
    for value in VALUES:
        assert deployment.run(form, value) == Ended(status="SUCCEEDED", output=value)


@pytest.mark.parametrize(
    "form", ["QueueFlat", "QueueFlatPath", "QueueChainPath", "QueueChainDecides"]
)
def test_the_tasks_error_keeps_its_name_and_cause(deployment: Deployment, form: str) -> None:
    execution = deployment.start(form, FAILING)
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")
    assert json.loads(ended.cause or "")["errorMessage"] == "no funds"
    assert deployment.held(lock_of(execution)) == 0


@pytest.mark.parametrize("form", ["QueueTokenJsonata", "QueueTokenPath"])
def test_the_task_is_given_the_fencing_token_of_its_grant(
    deployment: Deployment, form: str
) -> None:
    assert deployment.run(form, {}).output["token"] > 1_700_000_000_000_000
