"""Case 14: a customer's keys, on the table and on machines."""

from __future__ import annotations

from dataclasses import replace

from tests.e2e.deployment import Deployment
from tests.smoke.account import KEYS, Account
from tests.smoke.facts import await_waiters, ended, held, outputs


def test_a_service_with_a_key_wakes_the_waiters_of_a_machine_with_that_key(
    account: Account, lock: str
) -> None:
    """Decides whether functions that may use a machine's KMS key can complete its task tokens.

    And whether functions that may not use it cannot: that is shown with the figures.
    """
    with account.stacks.created(KEYS) as created:
        workflows = Deployment(aws=account.workflows.aws, outputs={KEYS: created}, service=KEYS)
        encrypted = replace(account, workflows=workflows)
        with held(encrypted, lock) as release:
            waiter = workflows.start("KnownKey", {"lock": lock, "seconds": 0})
            await_waiters(encrypted, lock, 1)
            released_at = release()
        [span] = outputs(encrypted, [waiter])
        late = span["began_ms"] / 1000 - released_at
        account.tell(f"machine with a known key: woken {late:.2f} s after the release")
        assert len(workflows.timeline(waiter).calls("Guard: Acquire")) == 1
        foreign = workflows.start("ForeignKey", {"lock": f"{lock}/foreign", "seconds": 0})
        [end] = ended(encrypted, [foreign])
        account.tell(f"machine with a foreign key: {end.status} {end.error} {end.cause}")
    account.needs_aws("it enforces no permissions for keys")
