"""Case 12: a herd of workflows on one lock."""

from __future__ import annotations

import itertools
import statistics

from tests.smoke.account import Account
from tests.smoke.facts import await_waiters, held, most_inside, outputs


def test_each_of_a_herd_is_woken_by_a_push(account: Account, lock: str) -> None:
    """Decides whether pushes reach all waiters of a herd, or some only their fallback poll."""
    workflows = account.workflows
    with held(account, lock) as release:
        executions = []
        for number in range(account.sizes.herd):
            executions.append(workflows.start("Holds", {"lock": lock, "seconds": 0}))
            if account.is_embedded:  # else each of them is a cold start of this machine
                await_waiters(account, lock, number)
        await_waiters(account, lock, account.sizes.herd)
        release()
    spans = sorted(outputs(account, executions), key=lambda span: float(span["began_ms"]))
    gaps = [after["began_ms"] - before["ended_ms"] for before, after in itertools.pairwise(spans)]
    events = [event for each in executions for event in workflows.timeline(each).events]
    polls = sum(event["type"] == "TaskTimedOut" for event in events)
    calls = sum(event["type"] == "TaskScheduled" for event in events)
    account.tell(
        f"herd of {len(executions)}: hand-off median {statistics.median(gaps):.0f} ms, "
        f"longest {max(gaps):.0f} ms, {calls} calls, {polls} fallback polls"
    )
    assert most_inside(spans) == 1
    assert polls == 0
