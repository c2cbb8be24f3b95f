"""A release that fails for good beside a heartbeat: result and error stand."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment, Ended, wait_until

FENCING_TOKEN = 1_900_000_000_000_001


@pytest.mark.parametrize(
    "result", [{"token": FENCING_TOKEN, "half": 0.5}, [7], [[7]], "text", "", None, 0, False]
)
def test_the_result_stands(deployment: Deployment, result: object) -> None:
    request = {"lock": f"not-released/{result}", "return": result}
    execution = deployment.start("KeepAliveNotReleased", request)
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": result})
    assert deployment.states_entered(execution)[-3:] == [
        "Guard: Lock not released",
        "Guard: Not released",
        "After",
    ]


def test_the_error_stands(deployment: Deployment) -> None:
    request = {"lock": "not-released/error", "raise": "CardDeclined"}
    execution = deployment.start("KeepAliveNotReleased", request)
    assert deployment.ended(execution).error == "CardDeclined"
    assert "Guard: Release after error" in deployment.states_entered(execution)
    # The reaper gets an event of the failure, and may release the lock first.
    wait_until(lambda: deployment.held("not-released/error") == 0)
