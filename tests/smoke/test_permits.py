"""Case 11: one lock with as many permits as are allowed."""

from __future__ import annotations

from collections import Counter

from tests.smoke.account import Account
from tests.smoke.facts import in_parallel, most_inside, outputs

WORK_SECONDS = 1


def test_a_lock_with_many_permits_keeps_its_limit_while_work_takes_a_second(
    account: Account, lock: str
) -> None:
    """Decides whether DynamoDB throttles one item with 100 permits and work of a second."""
    workflows = account.workflows
    inputs = {"lock": lock, "seconds": WORK_SECONDS, "limit": account.sizes.permits}
    # One after the other, the first ones would have ended before the last ones begin.
    executions = in_parallel(
        account, lambda _: workflows.start("Holds", inputs), range(account.sizes.sharing)
    )
    spans = outputs(account, executions)
    most = most_inside(spans)
    began = min(span["began_ms"] for span in spans)
    seconds = (max(span["ended_ms"] for span in spans) - began) / 1000
    events = [event for each in executions for event in workflows.timeline(each).events]
    failures = [event.get("taskFailedEventDetails") for event in events]
    failed = Counter(failure["error"] for failure in failures if failure)
    causes = {failure["error"]: failure.get("cause", "")[:300] for failure in failures if failure}
    account.tell(
        f"{account.sizes.permits} permits, {len(spans)} executions in {seconds:.1f} s, "
        f"at most {most} inside, calls that failed: {dict(failed)} {causes}"
    )
    assert 1 < most <= account.sizes.permits
    assert workflows.held(lock) == 0
    assert failed["LockStoreUnavailable"] == 0
