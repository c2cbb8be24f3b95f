"""Case 3: what a waiter in the queue gets when its fallback periods go by."""

from __future__ import annotations

from tests.e2e.deployment import wait_until
from tests.smoke.account import Account
from tests.smoke.facts import ended, held, outputs
from tests.smoke.stack import SHORT_FALLBACK_SECONDS, WAITS_SECONDS

PERIODS = 2


def test_a_push_after_two_fallback_periods_wakes_the_waiter_and_a_longer_wait_ends_on_time(
    account: Account, lock: str
) -> None:
    """Decides whether a task that is repeated after States.Timeout gets a task token that counts.

    And whether `max_wait` holds to two seconds.
    """
    workflows = account.workflows
    given_up = f"{lock}/given up"
    with held(account, lock) as release, held(account, given_up):
        executions = [
            workflows.start("Waits", {"lock": name, "seconds": 0}) for name in (lock, given_up)
        ]
        pushed, gives_up = executions
        wait_until(
            lambda: workflows.calls(pushed) > PERIODS,
            seconds=(PERIODS + 1) * SHORT_FALLBACK_SECONDS + account.sizes.delay_seconds,
        )
        released_at = release()
        [span] = outputs(account, [pushed])
        late = span["began_ms"] / 1000 - released_at
        account.tell(f"pushed after {PERIODS} fallback periods, {late:.2f} s after the release")
        assert 0 <= late < account.sizes.delay_seconds
        events = [event["type"] for event in workflows.timeline(pushed).events]
        assert events.count("TaskTimedOut") == PERIODS

        [end] = ended(account, [gives_up])
        entered = workflows.timeline(gives_up).entered
        waited = entered("Guard: Give up") - entered("Guard: Enter")
        account.tell(f"max_wait of {WAITS_SECONDS} s took {waited:.2f} s")
        assert (end.status, end.error) == ("FAILED", "LockWaitTimeout")
        assert abs(waited - WAITS_SECONDS) <= account.sizes.miss_seconds
        assert workflows.waiters(given_up) == []
