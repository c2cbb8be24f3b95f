"""Case 10: many executions are stopped together."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta

from tests.e2e.deployment import wait_until
from tests.smoke.account import Account
from tests.smoke.facts import LONG_SECONDS, await_holder, dead_letters, in_parallel

WORK_SECONDS = 3000
_METRIC_DELAY_SECONDS = 180


def test_the_locks_of_many_stopped_executions_are_freed_without_a_dead_letter(
    account: Account, lock: str
) -> None:
    """Decides whether throttles or recursion detection stop the reaper after a mass stop."""
    workflows = account.workflows
    began = datetime.now(UTC)
    locks = [f"{lock}/{number}" for number in range(account.sizes.stopped)]
    executions = [
        workflows.start("Holds", {"lock": name, "seconds": WORK_SECONDS}) for name in locks
    ]
    for name, execution in zip(locks, executions, strict=True):
        await_holder(account, name, execution)
    many = [f"{lock}/one/{number}" for number in range(account.sizes.claims)]
    in_parallel(account, lambda name: _acquire_for(account, executions[0], name), many)

    stopped_at = time.time()
    in_parallel(account, workflows.stop, executions)
    for name in (*locks, *many):
        wait_until(
            lambda name=name: workflows.holders(name) == [],  # type: ignore[misc]  # this one
            seconds=LONG_SECONDS,
        )
    seconds = time.time() - stopped_at
    account.tell(f"{len(executions)} stopped, {len(many)} locks of one: free in {seconds:.1f} s")
    for execution in executions:  # until the second pass is done with them
        wait_until(
            lambda execution=execution: workflows.claims(execution) == [],  # type: ignore[misc]  # this one
            seconds=LONG_SECONDS,
            pause_seconds=2,
        )
    assert dead_letters(account) == 0
    assert _dropped_as_recursive(account, began) == 0


def _acquire_for(account: Account, execution: str, lock: str) -> None:
    answer = account.workflows.invoke(
        "Acquire",
        lock_name=lock,
        owner_id=str(uuid.uuid4()),
        execution_arn=execution,
        lease_seconds=12 * 3600,
    )
    assert answer["acquired"] is True, answer


def _dropped_as_recursive(account: Account, since: datetime) -> int:
    """How many invocations of the reaper Lambda has refused as a loop."""
    if account.is_embedded:
        return 0  # It has no recursion detection; whether AWS's stays quiet, AWS decides.
    time.sleep(_METRIC_DELAY_SECONDS)  # CloudWatch shows a metric after minutes.
    reaper = account.workflows.outputs[account.workflows.service]["ReapFunctionName"]
    answer = account.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/Lambda",
        MetricName="RecursiveInvocationsDropped",
        Dimensions=[{"Name": "FunctionName", "Value": reaper}],
        StartTime=since - timedelta(minutes=5),
        EndTime=datetime.now(UTC) + timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )
    return int(sum(point["Sum"] for point in answer["Datapoints"]))
