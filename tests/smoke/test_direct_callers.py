"""Functions that are called directly, and the way of an event to the reaper."""

from __future__ import annotations

import json

from tests.e2e.deployment import wait_until
from tests.smoke.account import Account
from tests.smoke.facts import dead_letters


def test_direct_callers_hold_the_lock_one_after_the_other(account: Account, lock: str) -> None:
    """Decides whether the functions may do in AWS what they do: table, tracing, logs, metrics."""
    invoke = account.workflows.invoke
    first, second = (
        {"lock_name": lock, "owner_id": f"owner-{number}-of-{lock}"} for number in (1, 2)
    )
    granted = invoke("Acquire", **first)
    assert granted["acquired"] is True
    assert invoke("Acquire", **first)["fencing_token"] == granted["fencing_token"]
    assert invoke("Acquire", **second)["reason"] == "HELD"
    assert invoke("Heartbeat", **first)["renewed"] is True
    assert invoke("Release", **first)["released"] is True
    later = invoke("Acquire", **second)
    assert later["fencing_token"] > granted["fencing_token"]
    assert invoke("Acquire", **second)["fencing_token"] == later["fencing_token"]
    assert invoke("Release", **second)["released"] is True
    assert account.workflows.held(lock) == 0


def test_a_mistake_is_a_typed_error(account: Account, lock: str) -> None:
    """Decides whether Lambda reports an error by the class name that workflows match on."""
    response = account.client("lambda").invoke(
        FunctionName=account.workflows.function_name("Acquire"),
        Payload=json.dumps({"lock_name": lock, "limit": 0}),
    )
    answer = json.load(response["Payload"])
    assert answer["errorType"] == "InvalidRequest"
    assert answer["errorMessage"].startswith("limit: ")
    assert account.workflows.holders(lock) == []


def test_a_lock_of_a_stopped_workflow_is_reaped_long_before_its_lease_is_over(
    account: Account, lock: str
) -> None:
    """Decides whether the event of a stop reaches the reaper: its rule, queue, policy and role."""
    workflows = account.workflows
    execution = workflows.start("Holds", {"lock": f"{lock}/other", "seconds": 600})
    holder = {"owner_id": f"owner-of-{lock}", "execution_arn": execution, "lease_seconds": 3600}
    assert workflows.invoke("Acquire", lock_name=lock, **holder)["acquired"] is True
    workflows.stop(execution)
    wait_until(lambda: workflows.holders(lock) == [], seconds=60)
    account.tell(f"1 execution stopped: {dead_letters(account)} dead letters")
    assert dead_letters(account) == 0
