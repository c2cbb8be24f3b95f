"""A branch is stopped because its sibling failed, and its execution goes on.

No Catch runs in it, and no one is told: an execution that runs is not reaped, nor robbed.
"""

from __future__ import annotations

import time

import pytest

from fairlock.protocol.lease_time import stored_end_ms
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.lifetimes.contested_lock import OVER_SECONDS, ContestedLock
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS

GOES_ON_SECONDS = 40
LAPSED_SECONDS = stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000 + OVER_SECONDS


def goes_on(contested: ContestedLock, execution: str) -> bool:
    return "GoesOn" in contested.deployment.states_entered(execution)


@pytest.mark.parametrize("machine", ["PlainSibling", "KeepAliveSibling"])
def test_what_the_branch_held_is_taken_until_the_execution_ends(
    deployment: Deployment, machine: str
) -> None:
    """Which is documented: the guard belongs around the whole, or a Catch into the branch."""
    contested = ContestedLock(deployment)
    execution = contested.start_inside(machine, seconds=GOES_ON_SECONDS)
    wait_until(lambda: goes_on(contested, execution))
    time.sleep(LAPSED_SECONDS)  # A lease ends by the clock and by nothing else.
    assert (contested.ask()["acquired"], deployment.is_running(execution)) == (False, True)
    contested.stop(execution)
    wait_until(lambda: contested.holders() == [])


def test_what_it_is_handed_later_is_free_after_its_lease(deployment: Deployment) -> None:
    """No one was there to be notified, so Step Functions is not asked either."""
    contested = ContestedLock(deployment)
    owner_id = contested.ask(lease_seconds=600)["owner_id"]
    execution = contested.start_behind("PlainSibling", seconds=GOES_ON_SECONDS)
    wait_until(lambda: goes_on(contested, execution))
    deployment.invoke("Release", lock_name=contested.lock, owner_id=owner_id)
    assert contested.holders() == [execution]
    contested.ask_until_granted()
    assert deployment.is_running(execution)
    contested.stop(execution)
