"""What leaves a guard, and in what state the lock is then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.deployment import Ended
from tests.e2e.known_failures.lock import Lock

ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"raise": "CardDeclined", "message": "no funds"}, "CardDeclined"),
    ({"hang": True}, "States.Timeout"),
]


@pytest.mark.parametrize(("inputs", "error"), ERRORS)
def test_the_lock_is_free_before_the_error_reaches_who_catches_it(
    lock: Lock, inputs: dict[str, Any], error: str
) -> None:
    ended = lock.run("Caught", **inputs)
    assert (ended.status, ended.output["error"]) == ("SUCCEEDED", error)
    assert ended.output["next_acquire"]["acquired"] is True


@pytest.mark.parametrize(("inputs", "error"), ERRORS)
def test_a_chain_that_catches_nothing_leaks_its_permit(
    lock: Lock, inputs: dict[str, Any], error: str
) -> None:
    execution = lock.start("CaughtChain", **inputs)
    ended = lock.ended(execution)
    assert (ended.status, ended.output["error"]) == ("SUCCEEDED", error)
    assert (ended.output["next_acquire"]["acquired"], ended.output["next_acquire"]["reason"]) == (
        False,
        "HELD",
    )
    assert [holder.owner_name for holder in lock.state().holders] == [execution]


def test_the_output_is_the_tasks_output(lock: Lock) -> None:
    result = {"charged": [1, None]}
    assert lock.run("Output", **{"return": result}) == Ended(status="SUCCEEDED", output=result)


def test_a_chain_that_says_nothing_about_its_output_returns_the_reply_of_the_release(
    lock: Lock,
) -> None:
    output = lock.run("OutputReplaced", **{"return": {"charged": [1, None]}}).output
    assert "charged" not in output
    assert output["Payload"]["released"] is True
