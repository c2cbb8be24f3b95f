"""A guard whose `max_wait` is zero skips a busy lock, whatever its way to wait."""

from __future__ import annotations

import uuid

import pytest

from tests.e2e.deployment import Deployment, Ended


@pytest.mark.parametrize("form", ["Skips", "SkipsElsewhere"])
def test_a_free_lock_is_held_while_the_task_runs(deployment: Deployment, form: str) -> None:
    name = f"free/{uuid.uuid4()}"
    assert deployment.run(form, {"lock": name, "return": 1}) == Ended("SUCCEEDED", output=1)
    assert deployment.held(name) == 0


def test_a_busy_lock_is_skipped_and_its_queue_left_alone(deployment: Deployment) -> None:
    name = f"busy/{uuid.uuid4()}"
    owners = [{"lock_name": name, "owner_id": str(uuid.uuid4())} for _ in range(2)]
    assert deployment.invoke("Acquire", **owners[0], owner_name="a test")["acquired"] is True
    value = {"lock": name, "a": [1]}

    failing = deployment.start("Skips", value)
    ended = deployment.ended(failing)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    assert (ended.cause or "").endswith("held by a test")
    assert deployment.transitions(failing) == 5

    assert deployment.invoke("Acquire", **owners[1], queue=True)["reason"] == "QUEUED"
    going_elsewhere = deployment.start("SkipsElsewhere", value)
    assert deployment.ended(going_elsewhere) == Ended("SUCCEEDED", output={"skipped": value})
    assert deployment.states_entered(going_elsewhere) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Acquired?",
        "Guard: Give up",
        "Skipped",
    ]
    assert deployment.calls(going_elsewhere) == 2
    assert (deployment.queue_length(name), deployment.holders(name)) == (1, ["a test"])

    assert deployment.invoke("Release", **owners[0])["released"] is True
    assert deployment.run("SkipsElsewhere", value).output == {"skipped": value}
    assert deployment.invoke("Release", **owners[1])["released"] is True
