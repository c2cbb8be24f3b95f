"""What enters a guard reaches the task, and what the task returns leaves it."""

from __future__ import annotations

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
